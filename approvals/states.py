"""The state tables of ARCHITECTURE.md as data, with one total `next_state`. Pure: no Django."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

Machine = Literal["run", "effect", "wait"]


class RunStatus(StrEnum):
    """Where a run is."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EffectStatus(StrEnum):
    """What is known of one change in the outside world."""

    INTENDED = "intended"
    DISPATCHED = "dispatched"
    IN_DOUBT = "in_doubt"
    COMMITTED = "committed"
    VERIFIED = "verified"
    CONTRADICTED = "contradicted"
    COMPENSATED = "compensated"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


class WaitStatus(StrEnum):
    """Whether a wait is still open, and how it closed."""

    OPEN = "open"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class WaitKind(StrEnum):
    """What a wait waits for."""

    APPROVAL = "approval"
    WEBHOOK = "webhook"
    SIGNAL = "signal"
    TIMER = "timer"
    CHILD = "child"
    RECONCILIATION = "reconciliation"


RUN_FINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
EFFECT_FINAL = frozenset({EffectStatus.COMPENSATED, EffectStatus.REFUSED, EffectStatus.WITHDRAWN})
EFFECT_UNSETTLED = frozenset({EffectStatus.DISPATCHED, EffectStatus.IN_DOUBT})
EFFECT_DONE = frozenset({EffectStatus.COMMITTED, EffectStatus.VERIFIED})
WAIT_CLOSED = frozenset({WaitStatus.RESOLVED, WaitStatus.EXPIRED, WaitStatus.CANCELLED})

_R, _E, _W = RunStatus, EffectStatus, WaitStatus
_LIVE = (_R.PENDING, _R.RUNNING, _R.SUSPENDED, _R.PAUSED)


def _rows(event: str, to: StrEnum, *sources: StrEnum | None) -> dict[tuple[str | None, str], str]:
    return {(None if source is None else source.value, event): to.value for source in sources}


TABLES: dict[Machine, dict[tuple[str | None, str], str]] = {
    "run": {
        **_rows("start", _R.PENDING, None),
        **_rows("claim", _R.RUNNING, _R.PENDING),
        **_rows("suspend", _R.SUSPENDED, _R.RUNNING),
        **_rows("yield", _R.PENDING, _R.RUNNING),
        **_rows("lose_lease", _R.PENDING, _R.RUNNING),
        **_rows("wake", _R.PENDING, _R.SUSPENDED),
        **_rows("strand", _R.SUSPENDED, _R.PENDING),
        **_rows("stop", _R.SUSPENDED, _R.RUNNING),
        **_rows("pause", _R.PAUSED, _R.PENDING, _R.SUSPENDED, _R.RUNNING),
        **_rows("unwind", _R.PENDING, _R.SUSPENDED, _R.PAUSED),
        **_rows("resume", _R.PENDING, _R.PAUSED),
        **_rows("complete", _R.COMPLETED, _R.RUNNING),
        **_rows("fail", _R.FAILED, _R.RUNNING, _R.SUSPENDED),
        **_rows("cancel", _R.CANCELLED, *_LIVE),
    },
    "effect": {
        **_rows("intend", _E.INTENDED, None),
        **_rows("dispatch", _E.DISPATCHED, _E.INTENDED),
        **_rows("revise", _E.INTENDED, _E.INTENDED),
        **_rows("withdraw", _E.WITHDRAWN, _E.INTENDED),
        **_rows("commit", _E.COMMITTED, _E.DISPATCHED),
        **_rows("not_sent", _E.INTENDED, _E.DISPATCHED),
        **_rows("refuse", _E.REFUSED, _E.DISPATCHED),
        **_rows("doubt", _E.IN_DOUBT, _E.DISPATCHED),
        **_rows("redispatch", _E.DISPATCHED, _E.IN_DOUBT),
        **_rows("confirm", _E.COMMITTED, _E.IN_DOUBT),
        **_rows("confirm", _E.VERIFIED, _E.CONTRADICTED),
        **_rows("disprove", _E.INTENDED, _E.IN_DOUBT),
        **_rows("abandon", _E.WITHDRAWN, _E.IN_DOUBT),
        **_rows("verify", _E.VERIFIED, _E.COMMITTED, _E.VERIFIED),
        **_rows("contradict", _E.CONTRADICTED, _E.COMMITTED, _E.VERIFIED),
        **_rows("accept", _E.VERIFIED, _E.CONTRADICTED),
        **_rows("redo", _E.INTENDED, _E.CONTRADICTED),
        **_rows("compensate", _E.COMPENSATED, _E.COMMITTED, _E.VERIFIED, _E.CONTRADICTED),
    },
    "wait": {
        **_rows("open", _W.OPEN, None),
        **_rows("decide", _W.OPEN, _W.OPEN),
        **_rows("withdraw", _W.OPEN, _W.OPEN),
        **_rows("revise", _W.OPEN, _W.OPEN),
        **_rows("escalate", _W.OPEN, _W.OPEN),
        **_rows("resolve", _W.RESOLVED, _W.OPEN),
        **_rows("expire", _W.EXPIRED, _W.OPEN),
        **_rows("cancel", _W.CANCELLED, _W.OPEN),
        **_rows("invalidate", _W.RESOLVED, _W.RESOLVED),
    },
}

STATUSES: dict[Machine, tuple[str, ...]] = {
    "run": tuple(RunStatus),
    "effect": tuple(EffectStatus),
    "wait": tuple(WaitStatus),
}
EVENTS: dict[Machine, tuple[str, ...]] = {
    machine: tuple(dict.fromkeys(event for _, event in table)) for machine, table in TABLES.items()
}

NOT_UNDONE = "not undone"

RESOLUTIONS: Mapping[str, tuple[str, ...]] = {
    "in doubt": ("confirm", "disprove", "fail"),
    "contradicted": ("accept", "confirm", "redo", "fail"),
    "cannot tell": ("confirm", "resume", "fail"),
    NOT_UNDONE: ("resume", "accept", "fail"),
    "crashed": ("resume", "fail"),
    "replay diverged": ("resume", "fail"),
    "no progress": ("resume", "fail"),
    "version unknown": ("resume", "fail"),
    "too old": ("resume", "fail"),
}
"""How a reconciliation may be settled, by what is wrong."""


SYNC_STEP = "step.sync"
"""What the kinds of entries of a `sync` step begin with. The default costs the journal no byte: it is `step`."""
STEP_RESULTS = ("step.complete", f"{SYNC_STEP}.complete", "transaction.complete")
STEP_FAILURES = ("step.fail", f"{SYNC_STEP}.fail", "transaction.fail")


def durability(kind: str) -> str:
    """How a step was stored, by the kind of the entry that ended it; empty for anything but a step.

    Entries of `sync` steps that were written before this was recorded read as `async`.
    """
    if kind not in STEP_RESULTS + STEP_FAILURES or kind.startswith("transaction"):
        return ""
    return "sync" if kind.startswith(SYNC_STEP) else "async"


def resolutions(why: str) -> tuple[str, ...]:
    """How a case of this kind may be settled; of a kind that this code does not know, by what fits every run."""
    return RESOLUTIONS.get(why, ("resume", "fail"))


def next_state(machine: Machine, status: str | None, event: str) -> str | None:
    """The state that `event` leads to from `status` (None: does not exist yet).

    Total: every pair has an answer; None means that the event may not happen there.
    """
    return TABLES[machine].get((status, event))
