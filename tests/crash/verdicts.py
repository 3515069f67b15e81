"""Right, stopped for a person, or wrong: from the ledger and the rows of the database, never from a run's status."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin.models import LogEntry

from approvals.models import Approval, Decision, Effect, Run, Wait
from approvals.testing import invariants
from tests.crash.cells import Cell, Verdict
from tests.crash.peers import WINDOW, Arrival, world
from tests.crash.scenes import SCENES

_HAD_LOOKED = (
    "after alone:transitions.effects.may_still_be_sent",
    "before peer:perform",
    f"{WINDOW} peer:perform",
)
"""Who stops here has seen that it holds the run, and may send the same once more where the peer deduplicates."""


@dataclass
class _Applied:
    """A ledger as the invariants read it."""

    keys: list[str] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)


def judge(cell: Cell, died_at: str, woke: Sequence[Arrival]) -> tuple[str, Verdict]:
    """Why, and what it is; `woke`: the calls that a zombie made after it had woken up."""
    world.ledger.time.on(max(0.0, world.ledger.all_landed_at - world.ledger.time.now()))
    found = problems(cell)
    had_looked = any(moment in died_at for moment in _HAD_LOOKED)
    if sent := [a.kind for a in woke if a.is_applied or not had_looked]:
        found.append(f"a zombie sent: {sent}")
    if found:
        only_window = died_at.split()[1:2] == [WINDOW] and cell.death == "stop" and cell.peer != "once"
        return "; ".join(found), "window" if only_window else "wrong"
    cases = sorted(Wait.objects.filter(kind="reconciliation").values_list("name", flat=True))
    return ", ".join(cases), "stopped" if cases else "correct"


def problems(cell: Cell) -> list[str]:
    """What is wrong as things are now, in words."""
    applied = [a for a in world.ledger.arrivals() if a.is_applied]
    seen = _Applied([a.key for a in applied], [a.request for a in applied])
    return [*_world(cell, applied), *_rows(applied), *invariants.problems([(Effect, seen)])]


def _world(cell: Cell, applied: Sequence[Arrival]) -> Iterator[str]:
    """How often what happened, and with which bytes."""
    scene = SCENES[cell.scene]
    counted = Counter(a.kind.split(".")[1] for a in applied)
    for what in sorted({*scene.applied, *counted}):
        if counted[what] > scene.applied.get(what, 0):
            yield f"{what} was applied {counted[what]} times, not {scene.applied.get(what, 0)}"
        elif counted[what] < scene.applied.get(what, 0):
            yield f"lost: {what} was applied {counted[what]} times, not {scene.applied[what]}"
    if (lines := LogEntry.objects.count()) != scene.lines:
        yield f"the application's table has {lines} rows, not {scene.lines}"
    by_key = {a.key: a.request for a in applied}
    for asked in Approval.objects.filter(consumed_by__isnull=False).select_related("consumed_by"):
        sent = by_key.get(asked.consumed_by.key) if asked.consumed_by is not None else None
        if sent is not None and sent != json.loads(asked.action):
            yield f"not approved: {sent}"
    shown = {e["body"] for a in Approval.objects.all() for e in json.loads(a.evidence) if e["type"] == "text"}
    for sent in (a.request["note"] for a in applied if ".mail." in a.kind):
        if shown and sent not in shown:
            yield f"a mail went out that no reviewer saw: {sent!r}"


def _rows(applied: Sequence[Arrival]) -> Iterator[str]:
    """What the database says for itself, beside the invariants."""
    unfinished = Run.objects.filter(finished_at=None)
    for run in unfinished:
        cases = Wait.objects.filter(run=run, kind="reconciliation", status="open")
        told = ", ".join(f"{c.name}: {c.data}"[:300] for c in cases) or "and nobody was asked"
        yield f"{run.workflow} did not end: {run.status}, {told}"
    for run in Run.objects.filter(finished_at__isnull=False, error__isnull=False):
        if run.error:
            yield f"{run.workflow} failed: {run.error}"
    receipts = Effect.objects.filter(status__in=("committed", "verified")).values_list("key", flat=True)
    for key in set(receipts) - {a.key for a in applied}:
        yield f"there is a receipt of {key}, and nothing was done"
    for effect in Effect.objects.exclude(status__in=("committed", "verified")):
        yield f"{effect.kind} is {effect.status}"
    twice = Counter(Decision.objects.values_list("approval", "reviewer"))
    yield from (f"{who} decided {n} times" for who, n in twice.items() if n > 1)
    for case in Wait.objects.filter(kind="reconciliation").exclude(name="in doubt"):
        yield f"a person was asked of '{case.name}': {case.data[:300]}"
