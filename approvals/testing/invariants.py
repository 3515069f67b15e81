"""Reads the invariants of ARCHITECTURE.md off the database and the ledgers of replaced peers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from approvals.models import Approval, Decision, Effect, Entry, Message, Outbox, Run, Wait
from approvals.states import (
    NOT_UNDONE,
    RUN_FINAL,
    STEP_FAILURES,
    STEP_RESULTS,
    EffectStatus,
    RunStatus,
    WaitKind,
    WaitStatus,
    next_state,
)

_CALLS = frozenset({"step", "transaction", "now", "refused", "wait_any", "compensate"})
_SAYS_WHAT = ("intend", "revise")
_ASKED = ("", "cancel_asked", "pause_asked", "fail_asked")
_HOLDERS_EVENTS = (
    "intend",
    "dispatch",
    "redispatch",
    "commit",
    "not_sent",
    "refuse",
    "verify",
    "contradict",
    "revise",
)
_BY_HOLDER = frozenset(
    {"approval.deny", "run.suspend", "run.yield", *(f"effect.{e}" for e in _HOLDERS_EVENTS)}
)


def problems(peers: Sequence[tuple[type, Any]], runs: Iterable[Run] | None = None) -> list[str]:
    """Every invariant that does not hold, in words; of runs, only of these, if they are given."""
    found: list[str] = []
    for _, ledger in peers:
        found += _applied_once(ledger)
    for run in Run.objects.all() if runs is None else runs:
        found += _of_run(run)
    found += _consumed_once()
    return found


def _applied_once(ledger: Any) -> Iterator[str]:
    for key, times in Counter(ledger.keys).items():
        if times > 1:
            yield f"I1: {key} was applied {times} times"
    never = {EffectStatus.WITHDRAWN, EffectStatus.REFUSED}
    for effect in Effect.objects.filter(key__in=set(ledger.keys), status__in=never):
        yield f"I6: {effect.key} is {effect.status} and was applied"
    for request, key in zip(ledger.requests, ledger.keys, strict=True):
        intent = Effect.objects.filter(key=key).first()
        if intent is None:
            yield f"I2: {key} was applied without an intent"
        elif intent.policies != "[]" and not _was_allowed(intent):
            yield f"I2: {key} was applied without an approval of exactly it: {request!r}"


def _consumed_once() -> Iterator[str]:
    """I11: every dispatch names the approvals that it consumed; no two effects name the same one."""
    used: dict[str, str] = {}
    for entry in Entry.objects.filter(kind__in=("effect.dispatch", "effect.redispatch")).order_by(
        "run", "seq"
    ):
        told = json.loads(entry.data)
        for approval in told.get("approved_by", ()):
            if used.setdefault(approval, told["id"]) != told["id"]:
                yield f"I11: approval {approval} was consumed by two effects"


def _was_allowed(effect: Effect) -> bool:
    """Each pinned policy has an approval of these bytes that this effect consumed, or decided by itself."""
    from approvals import facts, policy
    from approvals.models import PolicyVersion

    for pin in json.loads(effect.policies):
        used = Approval.objects.filter(
            effect=effect, policy__slug=pin["slug"], digest=effect.digest, consumed_by=effect
        )
        if used.filter(wait__outcome="approved").exists():
            continue
        version = PolicyVersion.objects.get(slug=pin["slug"], version=pin["version"])
        if policy.choose(facts.read(version), facts.of_effect(effect.run, effect)).kind != "automatic":
            return False
    return True


def _of_run(run: Run) -> Iterator[str]:
    entries = list(Entry.objects.filter(run=run).order_by("seq"))
    yield from _fold(run, entries)
    ends = Counter(e.position for e in entries if e.kind in (*STEP_RESULTS, *STEP_FAILURES))
    if twice := [position for position, n in ends.items() if n > 1]:
        yield f"I7: {run} recorded the end of a step twice, at {twice}"
    effects = Counter(Effect.objects.filter(run=run).values_list("status", flat=True))
    if run.status != RunStatus.RUNNING and effects[EffectStatus.DISPATCHED]:
        yield f"I4: {run} is {run.status} with a dispatched effect"
    if run.status == RunStatus.COMPLETED and (run.cancel_requested_at or run.pause_requested_at):
        yield f"I3: {run} was asked to stop, and completed"
    open_waits = Wait.objects.filter(run=run, status=WaitStatus.OPEN)
    unsettled = (
        EffectStatus.INTENDED,
        EffectStatus.DISPATCHED,
        EffectStatus.IN_DOUBT,
        EffectStatus.CONTRADICTED,
    )
    if run.status == RunStatus.COMPLETED and (open_waits.exists() or any(effects[s] for s in unsettled)):
        yield f"I5: {run} is completed with something open: {dict(effects)}"
    if run.status in RUN_FINAL and open_waits.exists():
        yield f"I5: {run} is {run.status} with open waits"
    if run.status in RUN_FINAL and effects[EffectStatus.INTENDED]:
        yield f"I5: {run} is {run.status} with an effect that was never sent nor withdrawn"
    yield from _undone(run)
    yield from _parked(run)
    yield from _messages(run)
    yield from _decisions(run)
    yield from _replay(run)


def _fold(run: Run, entries: Sequence[Entry]) -> Iterator[str]:
    """I7 and I3: the status is the fold of the journal, and nothing leaves a final state. I8: see `fence`."""
    if [e.seq for e in entries] != list(range(1, run.seq + 1)):
        yield f"I7: {run} has gaps in its journal"
    states: dict[str, str | None] = {"run": None}
    digests: dict[str, str] = {}
    claims = 0
    for entry in entries:
        machine, _, event = entry.kind.partition(".")
        yield from _timely(run, states["run"], entry)
        if machine not in ("run", "effect", "wait") or event in _ASKED:
            continue
        claims += entry.kind == "run.claim"
        key = "run" if machine == "run" else json.loads(entry.data)["id"]
        to = next_state(machine, states.get(key), event)  # type: ignore[arg-type]
        if to is None:
            yield f"I3: {run}: {entry.kind} from {states.get(key)} at {entry.seq}"
            return
        states[key] = to
        if event in _SAYS_WHAT:
            digests[key] = entry.digest
    if states["run"] != run.status:
        yield f"I7: {run} is {run.status}, its journal says {states['run']}"
    if claims != run.fence:
        yield f"I8: {run} was claimed {claims} times and has fence {run.fence}"
    yield from _rows(run, states, digests)


def _timely(run: Run, status: str | None, entry: Entry) -> Iterator[str]:
    if status in RUN_FINAL:
        yield f"I3: {run} was {status}, and then {entry.kind} at {entry.seq}"
    if status != RunStatus.RUNNING and _is_a_holder_s(entry):
        yield f"I8: {run}: {entry.kind} at {entry.seq}, written while nobody held it"


def _rows(run: Run, states: Mapping[str, str | None], digests: Mapping[str, str]) -> Iterator[str]:
    """I7 and I2: effects and waits are what their journal says."""
    rows: list[Effect | Wait] = [*Effect.objects.filter(run=run), *Wait.objects.filter(run=run)]
    for row in rows:
        if states.get(str(row.pk)) != row.status:
            yield f"I7: {row!r} is {row.status}, its journal says {states.get(str(row.pk))}"
        if isinstance(row, Effect) and row.digest != digests.get(str(row.pk)):
            yield f"I2: {row!r} is not what its journal says that it is"


def _is_a_holder_s(entry: Entry) -> bool:
    """Whether only the worker that holds the run may have written it."""
    if entry.kind == "effect.verify":  # an operator may vouch for it, while the run waits
        return bool(json.loads(entry.data)["by"] == "read-back")
    return entry.kind in _BY_HOLDER or entry.kind.partition(".")[0] in _CALLS


def _undone(run: Run) -> Iterator[str]:
    """What is compensated is so by its own compensation's receipt; what a run owed is undone or an operator knows."""
    done = (EffectStatus.COMMITTED, EffectStatus.VERIFIED, EffectStatus.CONTRADICTED)
    for effect in Effect.objects.filter(run=run, compensates=None):
        undoing = Effect.objects.filter(compensates=effect).first()
        has_receipt = undoing is not None and undoing.status == EffectStatus.COMMITTED
        if has_receipt != (effect.status == EffectStatus.COMPENSATED):
            yield f"I7: {effect} is {effect.status}, and its compensation {undoing and undoing.status}"
        if run.unwinding and run.finished_at and effect.status in done and not has_receipt:
            asked = Wait.objects.filter(run=run, kind=WaitKind.RECONCILIATION, name=NOT_UNDONE)
            if not asked.exists() and not Wait.objects.filter(run=run, outcome="fail").exists():
                yield f"I12: {run} owed to undo {effect}, and nobody was asked"


def _parked(run: Run) -> Iterator[str]:
    """I9 and I12: a suspended run waits for enough that is open, and no other run is parked on anything."""
    parked = Wait.objects.filter(run=run).exclude(parked=Wait.NOT_PARKED)
    if parked.exclude(status=WaitStatus.OPEN).exists():
        yield f"I9: {run} is parked on what is closed"
    if run.status == RunStatus.SUSPENDED and not 1 <= run.parked_left <= parked.count():
        yield f"I12: {run} is suspended for {run.parked_left} of {parked.count()} open waits: nothing wakes it"
    if run.status not in (RunStatus.SUSPENDED, RunStatus.PAUSED) and parked.exists():
        yield f"I9: {run} is {run.status} and parked"
    for wait in Wait.objects.filter(run=run, kind=WaitKind.CHILD, status=WaitStatus.OPEN):
        child = Run.objects.filter(parent_wait=wait.pk).first()
        ended = child is not None and child.status in RUN_FINAL
        if child is None or (ended and not Outbox.objects.filter(subject=child.pk).exists()):
            yield f"I9: {run} waits for a child that will not tell it: {wait}"


def _messages(run: Run) -> Iterator[str]:
    """A message closes one wait, once, and is not kept where somebody waits for it."""
    waits = Wait.objects.filter(run=run, kind=WaitKind.SIGNAL)
    taken = Counter(Message.objects.filter(run=run, status="consumed").values_list("wait", flat=True))
    for wait in waits:
        if taken[wait.pk] != (wait.outcome == "received"):
            yield f"I7: {wait} ({wait.outcome}) took {taken[wait.pk]} messages"
    kept = Message.objects.filter(run=run, status="buffered").values("name")
    if waits.filter(status=WaitStatus.OPEN, name__in=kept).exists():
        yield f"I9: {run} waits for a message that is there"


def _decisions(run: Run) -> Iterator[str]:
    """I13, row by row: how a wait closed, by whom it may have been, and that nobody decided after that."""
    over = Wait.objects.filter(run=run, kind=WaitKind.APPROVAL).exclude(status=WaitStatus.OPEN)
    outcomes = {
        WaitStatus.RESOLVED: ("approved", "rejected", "changes_requested"),
        WaitStatus.EXPIRED: ("expired",),
        WaitStatus.CANCELLED: ("left",),
    }
    for wait in over:
        if wait.outcome not in outcomes[WaitStatus(wait.status)]:
            yield f"I13: {wait} is {wait.status} with the outcome {wait.outcome}"
    for approval in Approval.objects.filter(wait__in=over, wait__status=WaitStatus.RESOLVED):
        said = Decision.objects.filter(
            approval=approval, outcome=approval.wait.outcome, counted=True, withdrawn_at=None
        )
        people = said.filter(revision=approval.revision).values("reviewer_name").distinct().count()
        if people < (approval.needed if approval.wait.outcome == "approved" else 1):
            yield f"I2: {approval.wait} is {approval.wait.outcome} by {people} of {approval.needed} people"
    late = Decision.objects.filter(approval__wait__run=run, approval__wait__closed_at__isnull=False)
    for decision in late.select_related("approval__wait"):
        closed = decision.approval.wait.closed_at
        if closed is not None and decision.at > closed:
            yield f"I13: {decision} came after its approval closed"


def _replay(run: Run) -> Iterator[str]:
    """I10: the code gives the same entries again."""
    from approvals.engine.replay import replay
    from approvals.errors import UnknownVersion

    if run.status == RunStatus.RUNNING:
        return
    case = Wait.objects.filter(run=run, status=WaitStatus.OPEN, kind=WaitKind.RECONCILIATION)
    if case.filter(name__in=("replay diverged", "crashed", "version unknown")).exists():
        return
    try:
        report = replay(run.pk)
    except UnknownVersion:
        return
    if not report.same:
        yield f"I10: {run}: {report.difference}"
