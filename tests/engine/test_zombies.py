"""Workers that wake up after their run was taken write nothing and send nothing (CASES 13, 14, 20)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from django.db import connection, connections

from approvals import faults as points
from approvals.engine.loop import Worker
from approvals.engine.turn import Turn
from approvals.errors import LeaseLost
from approvals.models import Run
from approvals.services import runs
from approvals.testing import assert_invariants, drive, peer, wait_for
from approvals.transitions import NewEntry, Transaction
from approvals.workflows import registry
from tests.engine.make import kinds
from tests.engine.shop import Findable, Order, buy_findable, later, row, status
from tests.engine.workers import claimed_by, count_to

pytestmark = pytest.mark.usefixtures("fresh_workers")


def zombie(run: Any, point: str, meanwhile: Callable[[], Any]) -> Turn:
    """A turn that is held up at a crash point, while the world goes on."""
    worker = Worker()
    turn = Turn(claimed_by(worker, run), registry.resolve(run.workflow, run.version))
    reach = points.reach

    def held_up(at: str) -> None:
        reach(at)
        if at == point:
            mock_reach.stop()
            assert worker.lease is not None
            worker.lease.drop_locks()
            meanwhile()

    mock_reach = mock.patch.object(points, "reach", held_up)
    mock_reach.start()
    try:
        turn.execute()
    finally:
        mock.patch.stopall()
    return turn


@pytest.mark.parametrize(
    "point", ["claimed", "intent_committed", "performing", "performed", "before_complete"]
)
def test_a_worker_whose_run_was_taken_writes_nothing_and_sends_nothing(point: str) -> None:
    """CASES 13: stopped past its lease; another worker finishes the run; it wakes up."""
    with peer(Findable) as shop:
        run = runs.start(buy_findable, Order())

        def meanwhile() -> None:
            later(seconds=30)
            later(seconds=60)
            assert status(run) == "completed"
            meanwhile.seq = Run.objects.get(pk=run.id).seq  # type: ignore[attr-defined]
            meanwhile.calls = len(shop.calls)  # type: ignore[attr-defined]

        turn = zombie(run, point, meanwhile)
        assert type(turn.leaving).__name__ == "LeaseLost"
        assert Run.objects.get(pk=run.id).seq == meanwhile.seq  # type: ignore[attr-defined]
        assert len(shop.calls) == meanwhile.calls and len(shop.requests) == 1  # type: ignore[attr-defined]
        assert_invariants()


def test_a_zombie_that_wakes_before_the_other_is_done_sends_nothing_either() -> None:
    """The run was taken and waits out the grace; the first worker is still within its deadline."""
    with peer(Findable) as shop:
        run = runs.start(buy_findable, Order())
        turn = zombie(run, "performing", lambda: later(seconds=16))
        assert type(turn.leaving).__name__ == "LeaseLost" and shop.calls == []
        assert row(run).status == "in_doubt" and status(run) == "suspended"
        later(seconds=60)
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_zombies_step_counts_for_nothing() -> None:
    """CASES 14."""
    run = runs.start(count_to, 2)
    turn = zombie(run, "step_done", lambda: later(seconds=30))
    assert type(turn.leaving).__name__ == "LeaseLost" and status(run) == "completed"
    assert kinds(run).count("step.sync.complete") == 2
    assert_invariants()


def test_a_late_heartbeat_of_a_finished_run_changes_nothing_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CASES 20."""
    run = runs.start(count_to, 1)
    worker = Worker()
    turn = Turn(claimed_by(worker, run), count_to)
    assert worker.lease is not None
    worker.lease.drop_locks()
    later(seconds=60)
    assert status(run) == "completed"
    before = Run.objects.get(pk=run.id).seq
    turn.keep(NewEntry("step.complete", 9, "late"))
    turn._buffered_since = 0
    worker._flush(turn)
    worker._flush(turn)
    (told,) = [record.getMessage() for record in caplog.records if "holds no more" in record.getMessage()]
    assert str(run.id) in told and "done again by whoever has the run" in told
    with pytest.raises(LeaseLost):
        turn.enter("step")
    assert not worker.lease.renew()
    worker.turns[run.id, turn.held.fence] = turn
    worker._look_after_turns()
    worker._give_up(run.id, turn.held.fence, "late")
    assert (Run.objects.get(pk=run.id).seq, status(run)) == (before, "completed")
    assert_invariants()


@pytest.mark.postgres
def test_a_run_whose_worker_slept_in_the_middle_of_a_transaction_makes_no_case_of_it() -> None:
    """The server ends such a session; a worker that still holds the run when it wakes gives it up, and goes on."""
    write = Transaction.write
    slept: list[object] = []

    def sleep_once(tx: Transaction) -> None:
        if not slept:
            slept.append(_end_my_session())
        write(tx)

    with peer(Findable) as shop, mock.patch.object(Transaction, "write", sleep_once):
        run = runs.start(buy_findable, Order())
        drive()
    assert slept and status(run) == "completed" and len(shop.requests) == 1
    assert "run.stop" not in kinds(run)


def _end_my_session() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '1ms'")
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:

            def gone() -> bool:
                cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [pid])
                return bool(cursor.fetchone() == (0,))

            return bool(wait_for(gone))
    finally:
        other.close()
