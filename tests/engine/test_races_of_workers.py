"""Ends, starts, claims and the sweeper at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import transaction

from approvals import Context, workflow
from approvals.engine import leases, sweeper
from approvals.engine.loop import Worker
from approvals.errors import IllegalTransition, RunConflict
from approvals.models import Run
from approvals.services import runs
from approvals.testing import assert_invariants, clock, drive, peer, wait_for
from tests.engine.make import kinds
from tests.engine.racing import Holder, answered, as_named, both, held_run, swapped, waiting
from tests.engine.shop import Findable, Order, buy_findable, later, status

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.postgres]


@workflow(name="does-nothing", version=1)
def does_nothing(ctx: Context, n: int) -> int:
    return n


@workflow(name="naps", version=1)
def naps(ctx: Context, n: int) -> int:
    ctx.sleep("an hour", timedelta(hours=1))
    return n


# --- ends ------------------------------------------------------------------------------------------


@swapped
@pytest.mark.parametrize("flow", [does_nothing, buy_findable], ids=["touched nothing", "with an effect"])
def test_cancel_against_finish(who: Any, flow: Any, swap: bool) -> None:
    """CASES 18: one final state, for good."""
    with peer(Findable):
        run = runs.start(flow, 1 if flow is does_nothing else Order(), requester=who.requester)
        holder = Holder(run)
        with holder.up_to("before_complete") as turn, held_run(run) as queue:

            def finish() -> Any:
                holder.let_go.set()
                return turn.result(20)

            cancel = lambda: runs.cancel(run.id, actor=who.requester, reason="no more")  # noqa: E731
            queue.add(*both(finish, cancel, swap))
            _, told = as_named(queue, swap)
        assert status(run) == ("cancelled" if swap else "completed")
        assert told is None if swap else isinstance(told, IllegalTransition)
        holder.done()
        drive()
        later(hours=1)
        assert status(run) == ("cancelled" if swap else "completed")
        assert sum(k in ("run.complete", "run.cancel", "run.fail") for k in kinds(run)) == 1
        assert_invariants()


@swapped
def test_a_receipt_and_the_sweeper_that_takes_the_run(swap: bool) -> None:
    with peer(Findable) as shop:
        run = runs.start(buy_findable, Order())
        holder = Holder(run)
        with holder.up_to("performed") as turn, held_run(run) as queue:
            assert holder.worker.lease is not None
            clock.shift(timedelta(seconds=20))

            def commit() -> Any:
                holder.let_go.set()
                return turn.result(20)

            queue.add(*both(commit, sweeper.sweep, swap))
            queue.go()
        holder.worker.lease.drop_locks()
        drive()
        later(seconds=60)
        assert status(run) == "completed" and len(shop.calls) == 1
        assert ("effect.doubt" in kinds(run)) is swap
        assert_invariants()


# --- starts and claims -----------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [False, True], ids=["the first gives up", "the first commits"])
def test_twenty_simultaneous_starts_with_one_key(commits: bool) -> None:
    """CASES 50: they all wait for the one that holds the key."""
    started, go = threading.Event(), threading.Event()

    def first() -> Any:
        with transaction.atomic():
            mine = runs.start(does_nothing, 1, key="one")
            started.set()
            assert go.wait(30)
            transaction.set_rollback(not commits)
        return mine

    with ThreadPoolExecutor(22) as pool:
        mine = pool.submit(answered, first)
        assert started.wait(10)
        futures = [pool.submit(answered, lambda: runs.start(does_nothing, 1, key="one")) for _ in range(20)]
        other = pool.submit(answered, lambda: runs.start(does_nothing, 2, key="one")) if commits else None
        try:
            wait_for(lambda: waiting() >= 20, seconds=20)
        finally:
            go.set()
        found = {f.result(20).id for f in futures}
        assert other is None or isinstance(other.result(20), RunConflict)
        assert not commits or found == {mine.result(20).id}
    assert len(found) == 1 == Run.objects.count()
    drive()
    assert_invariants()


def test_a_run_that_is_being_claimed_is_passed_over() -> None:
    first, second = runs.start(does_nothing, 1), runs.start(does_nothing, 2)
    worker = Worker()
    worker.lease = leases.Lease(known=worker.known)
    with held_run(first):
        assert [r.pk for r in worker._claim(2)] == [second.id], "without waiting for the other"
    assert [r.pk for r in worker._claim(2)] == [first.id]
    worker.lease.drop_locks()


def test_claims_by_many_workers_give_no_run_to_two() -> None:
    for n in range(60):
        runs.start(does_nothing, n)
    barrier = threading.Barrier(6)

    def claims() -> list[Any]:
        worker = Worker()
        worker.lease = leases.Lease(known=worker.known)
        barrier.wait(10)
        found: list[Any] = []
        while batch := worker._claim(3):
            assert len(batch) <= 3
            found += [run.pk for run in batch]
        worker.lease.drop_locks()
        return found

    with ThreadPoolExecutor(6) as pool:
        found = [
            pk for future in [pool.submit(answered, claims) for _ in range(6)] for pk in future.result(20)
        ]
    assert len(found) == len(set(found)) == 60
    assert set(Run.objects.values_list("fence", flat=True)) == {1}


def test_a_worker_stopped_in_a_transaction_keeps_its_run_from_the_sweeper_and_no_other() -> None:
    """The sweeper of a worker waits for a lock for a while only."""
    stuck, free = runs.start(naps, 1), runs.start(naps, 2)
    drive()
    clock.shift(timedelta(hours=2))
    with mock.patch("approvals.engine.loop._LOCK_MILLISECONDS", 1_000), held_run(stuck):
        worker = Worker(threads=1)
        worker.start()
        try:
            wait_for(lambda: status(free) == "completed", seconds=10)
            assert status(stuck) == "suspended"
        finally:
            worker.stop(5)
    drive()
    assert status(stuck) == "completed"
    assert_invariants()
