"""Turns that die, hang, last long or get nowhere; and a poison run (CASES 14, 16)."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import getcontext
from typing import Any
from unittest import mock

import pytest

from approvals import Context, workflow
from approvals.clock import now
from approvals.engine import leases, sweeper
from approvals.engine.loop import Worker
from approvals.engine.turn import Turn
from approvals.errors import Crashed
from approvals.limits import Limits
from approvals.models import Entry, Run
from approvals.models import Worker as Row
from approvals.services import runs
from approvals.testing import assert_invariants, clock, crash_at, drive, wait_for
from approvals.transitions import locked
from approvals.transitions import runs as run_events
from tests.engine.make import case, kinds
from tests.engine.shop import settle, status
from tests.engine.workers import (
    alone,
    claimed_by,
    count_to,
    done,
    ends,
    entered,
    gate,
    lingers,
    passages,
    sleeps,
    working,
)

pytestmark = pytest.mark.usefixtures("fresh_workers")


def limits(**changes: Any) -> Any:
    made = Limits(**changes)
    return mock.patch.multiple("approvals.engine.holding", limits=lambda: made)


def test_a_turn_that_died_though_its_worker_lives_is_given_up() -> None:
    run = runs.start(count_to, 1)
    worker = Worker()
    claimed_by(worker, run)
    worker._claimed.clear()  # its thread is gone without a trace
    worker._look_after_turns()
    assert status(run) == "running", "perhaps it is just being claimed"
    worker._look_after_turns()
    assert status(run) == "pending"
    assert "its turn is gone" in Entry.objects.get(run=run.id, kind="run.lose_lease").data
    drive()
    assert status(run) == "completed"
    assert_invariants()


def test_a_hung_turn_is_given_up_past_the_limit_and_its_end_disturbs_no_later_one() -> None:
    run = runs.start(lingers, 7)
    worker = Worker()
    first = claimed_by(worker, run)
    hung = threading.Thread(target=alone(lambda: worker.take(first)))
    hung.start()
    assert entered.wait(5)
    with limits(turn_seconds=0):
        worker._look_after_turns()
    assert status(run) == "pending"
    assert "past the limit" in Entry.objects.get(run=run.id, kind="run.lose_lease").data
    second = claimed_by(worker, run)
    later_turn = Turn(second, lingers)
    worker.turns[run.id, second.fence] = later_turn
    gate.set()
    hung.join(5)
    assert worker.turns == {(run.id, second.fence): later_turn}
    assert worker._claimed == {(run.id, second.fence)}
    assert done == [], "the hung turn went no further"
    later_turn.execute()
    assert status(run) == "completed" and done == [7]
    assert_invariants()


def test_a_step_longer_than_any_lease_is_not_taken_from_a_worker_that_lives(settings: Any) -> None:
    """CASES 14."""
    settings.APPROVALS_LEASE_SECONDS = 1.5
    run = runs.start(lingers, 1)
    with passages(leases.Lease, "renew") as renewed, working(threads=1), working(threads=1):
        assert entered.wait(5)
        over = max(Row.objects.values_list("lease_until", flat=True))
        while now() <= over:
            assert renewed.acquire(timeout=5)
        sweeper.sweep()
        gate.set()
        assert ends(run) == "completed"
    assert kinds(run).count("run.claim") == 1
    assert_invariants()


def test_turns_lost_without_progress_ask_an_operator() -> None:
    run = runs.start(sleeps, 0)
    for _ in range(5):
        with crash_at("claimed"):
            drive()
    drive()
    assert case(run).name == "no progress" and status(run) == "suspended"
    settle(run, "resume")
    drive()
    assert status(run) == "completed"
    assert_invariants()


def test_progress_is_what_counts() -> None:
    """A run whose worker dies after every step goes on for ever longer than the limit."""
    run = runs.start(count_to, 8)
    for _ in range(8):
        with crash_at("after_flush"):
            drive()
    drive()
    assert status(run) == "completed" and done == list(range(8))
    assert_invariants()


def poisonous(n: int) -> int:
    if n == 4:
        raise Crashed("poison")
    return n


@workflow(name="perhaps-poison", version=1)
def perhaps_poison(ctx: Context, n: int) -> int:
    for _ in range(3):
        ctx.step("drink", poisonous, n)
    return n


def test_one_poison_run_among_ten() -> None:
    """CASES 16: they are claimed together each time, and the poison kills the worker first."""
    started = [runs.start(perhaps_poison, n) for n in range(10)]
    poison = started[4]
    for _ in range(9):
        worker = Worker(threads=10)
        worker.lease = leases.Lease(known=worker.known)
        sweeper.sweep()
        claimed = worker._claim(10)
        try:
            for run in sorted(claimed, key=lambda r: r.pk != poison.id):
                worker.take(run)
        except Crashed:
            worker.lease.drop_locks()
        else:
            worker.lease.release()
        wait_for(lambda: not leases.dead() or sweeper.sweep(), seconds=5)
    for _ in range(20):
        drive()
    found = [status(r) for r in started]
    assert found.count("completed") == 9 and case(poison).name == "no progress"
    assert_invariants()


def test_a_busy_worker_makes_room_for_a_suspect() -> None:
    run, other = runs.start(count_to, 1), runs.start(count_to, 2)
    Run.objects.filter(pk=run.id).update(turns_lost=3)
    worker = Worker(threads=2)
    worker.lease = leases.Lease(known=worker.known)
    assert [r.pk for r in worker._claim(1)] == [other.id], "it is not empty: no suspect"
    assert worker._claim(1) == []
    clock.shift(timedelta(seconds=11))
    worker.lease.renew()
    worker._looked_for_suspects -= 11
    third = runs.start(count_to, 3)
    assert worker._claim(1) == [], "it takes no more until it is empty"
    assert [r.pk for r in worker._claim(2)] == [run.id]
    assert worker._claim(1) == [], "and nothing beside the suspect"
    assert [r.pk for r in worker._claim(2)] == [third.id]
    worker.lease.release()


def test_a_suspect_that_lasts_keeps_its_worker_for_a_minute_and_not_for_hours() -> None:
    run, other = runs.start(count_to, 1), runs.start(count_to, 2)
    Run.objects.filter(pk=run.id).update(turns_lost=3, ready_at=now() - timedelta(hours=1))
    worker = Worker(threads=2)
    worker.lease = leases.Lease(known=worker.known)
    worker._looked_for_suspects -= 10
    assert worker._claim(1) == [], "room is made for it"
    worker._room_since -= 30
    assert [r.pk for r in worker._claim(1)] == [other.id], "but not for ever"
    assert [r.pk for r in worker._claim(2)] == [run.id]
    third = runs.start(count_to, 3)
    assert worker._claim(1) == []
    worker._alone_until -= 60
    assert [r.pk for r in worker._claim(1)] == [third.id]
    worker.lease.release()


def test_a_run_that_hangs_each_time_costs_its_worker_no_thread_and_asks_an_operator() -> None:
    """CASES 16: of one thread, none is left to the others if a body that does not come back keeps it."""
    run = runs.start(lingers, 1)
    with limits(turn_seconds=1), working(threads=1):
        assert entered.wait(15)
        others = [runs.start(count_to, n) for n in (1, 2)]
        assert [ends(other, seconds=60) for other in others] == ["completed", "completed"]
        wait_for(lambda: Run.objects.filter(pk=run.id, waits__name="no progress").exists())
        assert status(run) == "suspended" and "past the limit" in case(run).data
    assert_invariants()


def test_a_body_that_hangs_costs_no_thread_either_when_its_run_was_taken_over() -> None:
    run = runs.start(lingers, 1)
    with limits(turn_seconds=1), working(threads=1) as worker:
        assert entered.wait(15)
        with locked(run.id) as tx:
            run_events.lose_lease(tx, why="its worker was taken for dead")
            run_events.flag_cancel(tx, actor="olaf", reason="no more")
            run_events.cancel_unheld(tx)
        assert ends(runs.start(count_to, 1), seconds=60) == "completed"
        assert status(run) == "cancelled" and len(worker.turns) == 1, "it still hangs"
    assert_invariants()


@workflow(name="rounds", version=1)
def rounds(ctx: Context, digits: int) -> int:
    return ctx.step("set", set_digits, digits)


def set_digits(digits: int) -> int:
    before, getcontext().prec = getcontext().prec, digits
    return before


def test_what_a_body_sets_in_its_context_ends_with_its_turn() -> None:
    one, other = runs.start(rounds, 2), runs.start(rounds, 2)
    drive()  # one after the other, in one thread
    assert [runs.get(one.id).output, runs.get(other.id).output] == [getcontext().prec] * 2
