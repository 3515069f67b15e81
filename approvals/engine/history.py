"""What the journal of a run holds, by position: what replay answers from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from approvals import errors
from approvals.errors import ApprovalsError, words_of
from approvals.models import statements
from approvals.states import WaitKind
from approvals.transitions import NewEntry

CLOSINGS = frozenset({"wait.resolve", "wait.expire", "wait.cancel"})
REFUSED = "refused"
"""The entry of a call that raised before anything else was recorded of it."""
_RECORDED = (
    "SELECT seq, position, kind, name, digest, data FROM approvals_entry "
    "WHERE run_id = %s AND position IS NOT NULL ORDER BY seq"
)
_ENDS = (".complete", ".fail")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One entry at a position. `data` is JSON text."""

    seq: int
    kind: str
    name: str
    digest: str
    data: str

    def read(self) -> Any:
        """Its data."""
        return json.loads(self.data)


@dataclass(frozen=True, slots=True)
class Closed:
    """How a wait closed, and when in journal order."""

    seq: int
    wait_id: UUID
    outcome: str
    value: Any


@dataclass
class History:
    """The recorded positions of a run and the closings of its waits."""

    positions: dict[int, list[Recorded]] = field(default_factory=dict)
    closed: dict[UUID, Closed] = field(default_factory=dict)
    highest: int = 0
    effects: bool = False
    open_waits: set[str] = field(default_factory=set)
    _cases: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, run_id: UUID) -> History:
        """Reads the journal of a run, in one query."""
        history = cls()
        history.learn(statements.run(_RECORDED, [run_id]))
        history.highest = max(history.positions, default=0)
        return history

    def learn(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Takes in entries (seq, position, kind, name, digest, data)."""
        for seq, position, kind, name, digest, data in rows:
            if position is None:
                continue
            if kind.startswith("effect."):
                self.effects = True
            elif kind.startswith("wait.") and not self._learn_wait(seq, kind, json.loads(data)):
                continue
            self.positions.setdefault(position, []).append(Recorded(seq, kind, name, digest, data))

    def _learn_wait(self, seq: int, kind: str, told: dict[str, Any]) -> bool:
        """False for an operator's case: it stands beside the code's own calls and answers none of them."""
        if kind == "wait.open":
            self.open_waits.add(told["id"])
        elif kind in CLOSINGS:
            self.open_waits.discard(told["id"])
        if told.get("wait") == WaitKind.RECONCILIATION:
            self._cases.add(told["id"])
        if told["id"] in self._cases:
            return False
        if kind in CLOSINGS:
            value = json.loads(told["value"]) if "value" in told else None
            wait_id = UUID(told["id"])
            self.closed[wait_id] = Closed(seq, wait_id, told.get("outcome", "left"), value)
        return True

    def at(self, position: int) -> list[Recorded]:
        """The entries at a position, in journal order."""
        return self.positions.get(position, [])


def call_of(entry: Recorded) -> str:
    """Which call of the context made the first entry at a position."""
    machine, _, event = entry.kind.partition(".")
    if entry.kind == REFUSED:
        return str(entry.read()["call"])
    if machine == "wait" and event:
        told = entry.read()
        return str(told.get("call") or told.get("wait"))
    return machine if event or machine == "now" else entry.kind


def refused(call: str, position: int, name: str, error: ApprovalsError) -> NewEntry:
    """The entry of a call that raised this before anything else was recorded of it."""
    values = {k: v for k, v in error.values.items() if isinstance(v, str | int | float | None)}
    told = {"call": call, "type": type(error).__name__, "message": words_of(error), "values": values}
    return NewEntry(REFUSED, position, name, "", json.dumps(told))


def refusal_of(entry: Recorded) -> ApprovalsError:
    """The error that a call raised, as recorded."""
    told = entry.read()
    kind = getattr(errors, told["type"], errors.ContextMisuse)
    return cast("ApprovalsError", kind(told["message"], **told["values"]))


def end_of(entries: list[Recorded]) -> Recorded | None:
    """The entry by which a step ended, if it did."""
    return next((e for e in entries if e.kind.endswith(_ENDS)), None)
