"""What people, operators, peers and workers do to the machine's runs, each with what must come of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

from django.db import connection

from approvals import clock as database_time
from approvals import faults as points
from approvals.engine import sweeper
from approvals.engine.leases import Lease
from approvals.engine.loop import Worker
from approvals.engine.turn import Turn
from approvals.errors import ApprovalsError, Crashed, LeaseLost
from approvals.models import Approval, Effect, Outbox, Run, Wait
from approvals.services import decisions, policies, reconciliation, runs
from approvals.states import NOT_UNDONE, RUN_FINAL, resolutions
from approvals.testing import clock, crash_at, drive, people
from approvals.transitions import runs as run_events
from approvals.workflows import registry
from tests.emptying import empty
from tests.model.flows import ONE_YES, Errand
from tests.model.memory import Memory
from tests.model.world import world

_HOLDS_NOTHING = ("suspended", "completed")
"""Points where a turn has nothing left to write: it need not notice that its run was taken."""


def answered(do: Callable[..., Any], *args: Any, **options: Any) -> str:
    """What a call came to: "", or the name of the error that it raised."""
    try:
        do(*args, **options)
    except ApprovalsError as error:
        return type(error).__name__
    return ""


@contextmanager
def held_up(at: str, passage: int, meanwhile: Callable[[], None]) -> Iterator[None]:
    """At this passage of a crash point, outside transactions, something else happens before the turn goes on."""
    reach, left = points.reach, [passage]

    def reached(passed: str) -> None:
        reach(passed)
        if passed == at and not connection.in_atomic_block:
            left[0] -= 1
            if left[0] == 0:
                with mock.patch.object(points, "reach", reach):
                    meanwhile()

    with mock.patch.object(points, "reach", reached):
        yield


class Acts:
    """An empty database, and what may be done. Between two acts nobody holds a run; one that crashed may seem to."""

    def __init__(self) -> None:
        super().__init__()
        empty()
        world.clear()
        self.who = people()
        policies.load(ONE_YES)
        self.runs: list[Any] = []
        self.keys: dict[tuple[str, str], tuple[Any, Errand]] = {}
        self.memory = Memory(world)

    # --- what is there ----------------------------------------------------------------------------

    def all_runs(self) -> list[Any]:
        """In an order that is the same each time."""
        found: list[Any] = []
        for run_id in self.runs:
            found += [run_id, *Run.objects.filter(parent_run=run_id).values_list("pk", flat=True)]
        return found

    def run_at(self, n: int) -> Run:
        there = self.all_runs()
        return Run.objects.get(pk=there[n % len(there)])

    def wait_at(self, n: int, kind: str) -> Wait | None:
        """A wait of this kind, the open ones first."""
        order = {run_id: i for i, run_id in enumerate(self.all_runs())}
        there = sorted(
            Wait.objects.filter(kind=kind),
            key=lambda w: (w.status != "open", order[w.run_id], w.position, w.ordinal),
        )
        return there[n % len(there)] if there else None

    # --- whoever starts ---------------------------------------------------------------------------

    def starts(self, flow: Any, asked: Errand, key: str | None) -> None:
        earlier = self.keys.get((flow.name, key)) if key is not None else None
        if earlier is not None and earlier[1] != asked:
            assert answered(runs.start, flow, asked, key=key) == "RunConflict"
            return
        run = runs.start(flow, asked, key=key, requester=self.who.requester)
        if earlier is not None:
            assert run.id == earlier[0]
            return
        self.runs.append(run.id)
        if key is not None:
            self.keys[flow.name, key] = run.id, asked

    # --- people -----------------------------------------------------------------------------------

    def decides(
        self,
        wait: Wait,
        by: str,
        outcome: str,
        *,
        stale: bool = False,
        key: str | None = None,
        dies: bool = False,
    ) -> None:
        """`dies`: the process of the web ends right after the commit."""
        wait.refresh_from_db()
        approval, asked = Approval.objects.get(pk=wait.pk), self.memory.approval(wait)
        reviewers = dict(zip(("vera", "sam"), self.who.reviewers, strict=True))
        actor = reviewers[by] if by in reviewers else getattr(self.who, by)
        digest = "0" * 64 if stale else approval.digest
        expected = asked.answer(
            (actor.username, outcome, digest, key),
            right=not stale,
            may=by in reviewers,
            closed=wait.status != "open" or _is_due(wait),
        )
        told, cut_off = "", False
        try:
            with crash_at("decided" if dies else "completed"):
                decisions.decide(wait.pk, actor=actor, outcome=outcome, digest=digest, key=key)
        except Crashed:
            cut_off = True  # whatever the answer was, nobody heard it
        except ApprovalsError as error:
            told = type(error).__name__
        assert cut_off == dies
        assert cut_off or told == {"taken": "", "same": ""}.get(expected, expected), (told, expected, asked)
        if expected == "taken":
            asked.take(actor.username, outcome, digest, key)

    def withdraws(self, wait: Wait, sam: bool) -> None:
        actor, asked = self.who.reviewers[sam], self.memory.approval(wait)
        closed = wait.status != "open" or _is_due(wait)
        told = answered(decisions.withdraw, wait.pk, actor=actor)
        if asked.outcome is not None:
            assert told == "AlreadyDecided"
        elif closed:
            assert told == "WaitClosed"
        elif actor.username not in asked.standing:
            assert told == "DecisionRefused"
        else:
            assert told == ""
            del asked.standing[actor.username]

    def signals(self, run: Run, name: str, payload: str, message: str) -> None:
        known = self.memory.run(run.pk).messages
        told = answered(runs.signal, run.pk, name, payload, message_id=message)
        if (name, message) in known:
            assert told == ("" if known[name, message] == payload else "InvalidInput")
        elif run.status in RUN_FINAL:
            assert told == "WaitClosed"
        else:
            assert told == ""
            known[name, message] = payload

    # --- operators --------------------------------------------------------------------------------

    def cancels(self, run: Run, compensate: bool) -> None:
        over = run.status in RUN_FINAL and run.status != "cancelled"
        failing = bool(run.error) and run.status not in RUN_FINAL
        told = answered(runs.cancel, run.pk, actor=self.who.operator, reason="no more", compensate=compensate)
        assert told == ("IllegalTransition" if over or failing else "")
        free = run.status != "running" and not (compensate or run.unwinding)
        doubt = Effect.objects.filter(run=run, status__in=("dispatched", "in_doubt")).exists()
        if not told and free and not doubt:
            assert Run.objects.get(pk=run.pk).status == "cancelled"

    def pauses(self, run: Run) -> None:
        case = Wait.objects.filter(run=run, kind="reconciliation", status="open").exists()
        refused = run.status in (*RUN_FINAL, "paused") or (case and run.status != "running")
        told = answered(runs.pause, run.pk, actor=self.who.operator, reason="wait")
        assert told == ("IllegalTransition" if refused else "")

    def resumes(self, run: Run) -> None:
        asked = run.status not in RUN_FINAL and run.pause_requested_at is not None
        told = answered(runs.resume, run.pk, actor=self.who.operator)
        assert told == ("" if run.status == "paused" or asked else "IllegalTransition")

    def settles(self, case: Wait, how: int) -> bool:
        """An operator looks for himself, and says what is so; whether the case is closed then."""
        world.land()
        told = json.loads(case.data)
        effect = Effect.objects.get(pk=told["effect"]) if "effect" in told else None
        allowed = list(resolutions(case.name))
        if effect is not None and case.name == "in doubt":
            allowed.remove("disprove" if effect.key in world.keys else "confirm")
        resolution = allowed[how % len(allowed)]
        if effect is not None and (case.name, resolution) == ("contradicted", "confirm"):
            world.there.add(effect.key)  # it was put back
        receipt = f"id-{effect.key}" if effect is not None and resolution == "confirm" else None
        was_open = Wait.objects.get(pk=case.pk).status == "open"
        came = answered(
            reconciliation.resolve,
            case.pk,
            actor=self.who.operator,
            resolution=resolution,
            note="looked myself",
            external_id=receipt,
        )
        case.refresh_from_db()
        assert came or (was_open and case.status == "resolved"), f"{resolution} settled nothing"
        assert was_open or came in ("AlreadyDecided", "WaitClosed"), came
        return case.status != "open"

    # --- workers ----------------------------------------------------------------------------------

    def drives(self) -> None:
        """Everything that can go on does, and nothing that could is left (I9)."""
        drive()
        now = database_time.now()
        rows: list[Any] = [
            *Run.objects.filter(status__in=("pending", "running"), ready_at__lte=now),
            *Wait.objects.filter(status="open", due_at__lte=now),
            *Outbox.objects.filter(due_at__lte=now),
            *run_events.to_cancel(),
        ]
        assert not rows, f"I9: nobody found {rows}"

    def sleeps_past_its_lease(self, point: str, passage: int) -> None:
        """A worker stops at a point; others take its run as far as they can; it wakes up, and does nothing more."""
        sweeper.sweep()
        worker = Worker()
        lease = worker.lease = Lease(known=worker.known)
        if not (claimed := worker._claim(1)):
            lease.release()
            return
        turn = Turn(claimed[0], registry.resolve(claimed[0].workflow, claimed[0].version))
        left: list[tuple[int, int]] = []

        def others_go_on() -> None:
            lease.drop_locks()
            world.land()
            clock.shift(timedelta(seconds=20))
            self.drives()
            left.append((Run.objects.get(pk=turn.run_id).seq, len(world.calls)))

        with held_up(point, passage, others_go_on):
            turn.execute()
        if not left:
            lease.release()
            return
        assert (Run.objects.get(pk=turn.run_id).seq, len(world.calls)) == left[0], "a zombie did something"
        assert point in _HOLDS_NOTHING or isinstance(turn.leaving, LeaseLost), turn.leaving

    # --- the end ----------------------------------------------------------------------------------

    def come_to_an_end(self) -> None:
        """From every state that was reached there is a way to a good end."""
        world.answers.clear()
        for _ in range(40):
            self.drives()
            left = list(Run.objects.filter(finished_at=None).order_by("created_at", "pk"))
            if not left:
                return
            if not sum(self._helps(run) for run in left):
                world.land()
                clock.shift(timedelta(seconds=3_700))
        waits = Wait.objects.filter(status="open").values("kind", "name", "data")
        raise AssertionError(f"no end: {[(str(r), r.status) for r in left]}, {list(waits)}")

    def _helps(self, run: Run) -> bool:
        """Somebody does what this run needs."""
        if run.status == "paused":
            self.resumes(run)
            return True
        for wait in Wait.objects.filter(run=run, status="open").order_by("position", "ordinal"):
            if wait.kind == "reconciliation":
                again = wait.name == NOT_UNDONE and wait.ordinal > 0
                return self.settles(wait, 1 if again else 0)  # what cannot be undone is let be
            if wait.kind == "approval":
                self.decides(wait, "vera", "approved")
                self.decides(wait, "sam", "approved")
                return True
            if wait.kind == "signal":
                self.signals(run, wait.name, "now", str(len(self.memory.run(run.pk).messages)))
                return True
        return False


def _is_due(wait: Wait) -> bool:
    return wait.due_at is not None and wait.due_at <= database_time.now()
