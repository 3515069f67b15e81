"""Plays one program to its end, dying where a schedule says; and what is compared of two such plays."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest import mock
from uuid import UUID

from django.contrib.auth.models import Group

from approvals import clock as database_time
from approvals import faults as points
from approvals.errors import Crashed
from approvals.models import Approval, Effect, Entry, Run, Wait
from approvals.services import decisions, reconciliation, runs
from approvals.states import NOT_UNDONE
from approvals.testing import clock, drive, people
from tests.model.programs import Program
from tests.model.world import world

_SEED = UUID(int=1)


@dataclass(frozen=True)
class Schedule:
    """What goes wrong: after how many passages of crash points each process dies, and how peers answer."""

    deaths: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass
class Play:
    """What came of it."""

    run: Run
    passed: int
    died_at: list[str]
    cases: list[Wait]
    journal: dict[str, list[Any]]
    """By position, of the run and of its children."""
    applied: Counter[str]
    rows: list[str]

    @property
    def end(self) -> tuple[str, Any, Any]:
        told = json.loads(self.run.output)["same"] if self.run.output else None
        return self.run.status, told, self.run.error


class Dying:
    """Counts passages of crash points, and ends the process at some."""

    def __init__(self, deaths: Sequence[int]) -> None:
        self.left, self.passed, self.since = list(deaths), 0, 0
        self.died_at: list[str] = []

    @contextmanager
    def here(self) -> Iterator[None]:
        """While this lasts, `drive` and `decide` may end anywhere."""
        reach = points.reach

        def reached(point: str) -> None:
            reach(point)
            self.passed, self.since = self.passed + 1, self.since + 1
            if self.left and self.since >= self.left[0]:
                self.left.pop(0)
                self.since = 0
                self.died_at.append(point)
                raise Crashed(point)

        with mock.patch.object(points, "reach", reached):
            yield

    def drive(self) -> None:
        """Until idle, by as many processes as it takes."""
        died = -1
        while died != len(self.died_at):
            died = len(self.died_at)
            drive()


def play(flow: Any, program: Program, schedule: Schedule) -> Play:
    """Raises AssertionError if the run comes to no end."""
    dying, who = Dying(schedule.deaths), people()
    world.answers = list(schedule.answers)
    before = len(world.keys)
    run = runs.start(flow, program, requester=who.requester)
    Run.objects.filter(pk=run.id).update(seed=_SEED)  # what is drawn at random is the same in each play
    with dying.here():
        for _ in range(200):
            dying.drive()
            tree = _tree(run.id)
            if all(r.finished_at for r in tree):
                break
            if not any(_answer(r, who) for r in tree):
                _let_time_pass(tree)
        else:
            raise AssertionError(f"no end: {list(Wait.objects.filter(status='open').values())}")
    world.answers = []
    return Play(
        run=tree[0],
        passed=dying.passed,
        died_at=dying.died_at,
        cases=list(Wait.objects.filter(run__in=tree, kind="reconciliation")),
        journal={f"{i}:{p}": told for i, r in enumerate(tree) for p, told in _journal(r).items()},
        applied=Counter(
            f"{kind} {request.n}"
            for kind, request in zip(world.kinds[before:], world.requests[before:], strict=True)
        ),
        rows=sorted(
            f"{i} {name.partition(' ')[2]}"
            for i, r in enumerate(tree)
            for name in Group.objects.filter(name__startswith=str(r.pk)).values_list("name", flat=True)
        ),
    )


def _tree(run_id: Any) -> list[Run]:
    """The run and what came of it, parents first, in the order of positions."""
    run = Run.objects.get(pk=run_id)
    waits = Wait.objects.filter(run=run, kind="child").order_by("position").values_list("pk", flat=True)
    children = [Run.objects.get(parent_wait=wait) for wait in waits]
    return [run, *(below for child in children for below in _tree(child.pk))]


# --- people, operators, time -----------------------------------------------------------------------


def _answer(run: Run, who: Any) -> bool:
    """Somebody does the next thing that this run waits for, as its name says."""
    for wait in Wait.objects.filter(run=run, status="open").order_by("position", "ordinal"):
        answer = wait.name.rpartition(" ")[2]
        if wait.kind == "reconciliation":
            return _settle(wait, who)
        if wait.kind == "signal" and answer == "comes":
            runs.signal(run.pk, wait.name, "now", message_id=str(wait.pk))
            return True
        if wait.kind == "approval" and answer != "expired":
            outcome = "approved" if answer == "agreed" else answer
            digest = Approval.objects.get(pk=wait.pk).digest
            try:
                decisions.decide(wait.pk, actor=who.reviewers[0], outcome=outcome, digest=digest)
            except Crashed:  # after the commit: whoever asks again is told the same
                decisions.decide(wait.pk, actor=who.reviewers[0], outcome=outcome, digest=digest)
            return True
    return False


def _settle(case: Wait, who: Any) -> bool:
    """An operator looks, and says what is so; lets be what cannot be undone. False: it is too early to tell."""
    world.land()
    assert case.name in ("in doubt", NOT_UNDONE), f"{case.name}: {case.data}"
    effect = Effect.objects.get(pk=json.loads(case.data)["effect"])
    there = effect.key in world.keys
    if case.name == NOT_UNDONE:
        resolution = "accept"
    elif there:
        resolution = "confirm"
    else:
        resolution = "disprove"
        assert effect.deadline_at is not None
        settled_at = effect.deadline_at + timedelta(seconds=6)
        clock.shift(max(timedelta(), settled_at - database_time.now()))
    reconciliation.resolve(
        case.pk,
        actor=who.operator,
        resolution=resolution,
        note="looked myself",
        external_id=f"id-{effect.key}" if resolution == "confirm" else None,
    )
    return True


def _let_time_pass(tree: list[Run]) -> None:
    """Up to the next deadline."""
    world.land()
    due = Wait.objects.filter(run__in=tree, status="open", due_at__isnull=False).order_by("due_at").first()
    assert due is not None and due.due_at is not None, [(str(r), r.status, r.error) for r in tree]
    clock.shift(max(timedelta(), due.due_at - database_time.now()) + timedelta(milliseconds=10))


# --- the journal, as it must be in each play ---------------------------------------------------------


def _journal(run: Run) -> dict[int, list[Any]]:
    """By position: what the code asked for, and what it was answered; how often that was tried is left out."""
    found: dict[int, list[Any]] = {}
    names = {str(pk): name for pk, name in Wait.objects.filter(run=run).values_list("pk", "name")}
    for entry in Entry.objects.filter(run=run, position__isnull=False).order_by("seq"):
        machine, _, event = entry.kind.partition(".")
        told = json.loads(entry.data)
        line: list[Any] = [entry.kind, entry.name, entry.digest]
        if machine == "wait":
            if event not in ("open", "resolve", "expire") or _is_the_engine_s(run, entry, told):
                continue
            line.append(told.get("outcome", told.get("wait")))
        elif machine == "effect":
            if entry.kind not in _ENDS:
                continue
            line[0] = _ENDS[entry.kind]
        elif entry.kind == "wait_any":
            line.append(names[told["winner"]])
        elif machine in ("step", "transaction", "refused"):
            line.append(told)
        assert entry.position is not None
        lines = found.setdefault(entry.position, [])
        if line not in lines:  # an intent that was disproved is sent again, and so on
            lines.append(line)
    return found


_ENDS = {
    "effect.intend": "intended",
    "effect.commit": "done",
    "effect.confirm": "done",
    "effect.refuse": "refused",
    "effect.withdraw": "withdrawn",
    "effect.compensate": "compensated",
}


def _is_the_engine_s(run: Run, entry: Entry, told: dict[str, Any]) -> bool:
    """A case, or a timer of an effect that was in doubt: they come of what went wrong."""
    wait = Wait.objects.get(pk=told["id"])
    if wait.kind == "reconciliation":
        return True
    return wait.kind == "timer" and Effect.objects.filter(run=run, position=wait.position).exists()
