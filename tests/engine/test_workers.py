"""Workers that die, hang, wake up too late, are cut off, or shut down; and the sweeper that finds what they held."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection, connections

from approvals import Context, outbox, step, workflow
from approvals import faults as points
from approvals.clock import now
from approvals.engine import leases, sweeper
from approvals.engine.loop import Worker
from approvals.engine.turn import Turn
from approvals.errors import Crashed, LeaseLost
from approvals.limits import Limits
from approvals.models import Entry, Run, Wait
from approvals.models import Worker as Row
from approvals.services import runs
from approvals.testing import assert_invariants, clock, crash_at, drive, peer, people, wait_for
from approvals.transitions import NewEntry
from approvals.transitions import runs as run_events
from approvals.workflows import registry
from tests.engine.shop import (
    Blind,
    Findable,
    Order,
    buy_blind,
    buy_findable,
    case,
    kinds,
    later,
    row,
    settle,
    status,
)

pytestmark = pytest.mark.usefixtures("engine")

done: list[Any] = []
gate = threading.Event()
entered = threading.Event()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is left over from another test, and every worker's locks are gone after this one."""
    done.clear()
    gate.clear()
    entered.clear()
    made: list[leases.Lease] = []
    begin = leases.Lease.__init__

    def begun(self: leases.Lease, **options: Any) -> None:
        made.append(self)
        begin(self, **options)

    monkeypatch.setattr(leases.Lease, "__init__", begun)
    yield
    gate.set()
    for lease in made:
        lease.drop_locks()


@step(durability="sync")
def note(n: Any) -> Any:
    done.append(n)
    return n


def linger() -> str:
    entered.set()
    gate.wait(20)
    return "ended"


@workflow(name="count-to", version=1)
def count_to(ctx: Context, n: int) -> int:
    for i in range(n):
        ctx.step("note", note, i)
    return n


@workflow(name="lingers", version=1)
def lingers(ctx: Context, n: int) -> str:
    told = ctx.step("linger", linger)
    ctx.step("note", note, n)
    return told


@workflow(name="sleeps", version=1)
def sleeps(ctx: Context, n: int) -> int:
    ctx.sleep("a while", timedelta(seconds=n))
    return n


@contextmanager
def working(**options: Any) -> Iterator[Worker]:
    worker = Worker(**options)
    worker.start()
    try:
        yield worker
    finally:
        gate.set()
        worker.stop(5)


def alone(work: Callable[[], None]) -> Callable[[], None]:
    """For a thread of its own: it leaves no connection open."""

    def do() -> None:
        try:
            work()
        finally:
            connections.close_all()

    return do


def ends(run: Any, *, seconds: float = 15) -> str:
    """Waits until a run is over."""
    wait_for(lambda: Run.objects.filter(pk=run.id, finished_at__isnull=False).exists(), seconds=seconds)
    return status(run)


def claimed_by(worker: Worker, run: Any) -> Run:
    """Gives a run to a worker that then does nothing."""
    worker.lease = worker.lease or leases.Lease(known=worker.known)
    (found,) = worker._claim(1)
    assert found.pk == run.id
    return found


def limits(**changes: Any) -> Any:
    made = Limits(**changes)
    return mock.patch.multiple("approvals.engine.loop", limits=lambda: made)


# --- who is dead -----------------------------------------------------------------------------------


def test_a_dead_worker_is_noticed_by_its_lock_long_before_its_lease_is_over() -> None:
    run = runs.start(count_to, 1)
    worker = Worker()
    claimed_by(worker, run)
    sweeper.sweep()
    assert status(run) == "running", "it lives"
    assert worker.lease is not None
    worker.lease.drop_locks()
    wait_for(sweeper.sweep, seconds=5)
    lost = Entry.objects.get(run=run.id, kind="run.lose_lease")
    assert "its process is gone" in lost.data
    drive()
    assert status(run) == "completed"
    assert Row.objects.filter(stopped_at=None).count() == 0
    assert_invariants()


def test_a_worker_whose_lock_cannot_tell_is_dead_when_its_lease_is_over() -> None:
    run = runs.start(count_to, 1)
    worker = Worker()
    claimed_by(worker, run)
    clock.shift(timedelta(seconds=leases.lease_seconds() - 2))
    assert sweeper.sweep() == 0
    clock.shift(timedelta(seconds=3))
    assert sweeper.sweep() == 1 and status(run) == "pending"
    assert "its lease ran out" in Entry.objects.get(run=run.id, kind="run.lose_lease").data
    assert worker.lease is not None and not worker.lease.renew(), "it may hold nothing any more"
    worker.lease.drop_locks()
    drive()
    assert status(run) == "completed"
    assert_invariants()


def test_a_renewed_lease_is_kept() -> None:
    run = runs.start(count_to, 1)
    worker = Worker()
    claimed_by(worker, run)
    assert worker.lease is not None
    for _ in range(3):
        clock.shift(timedelta(seconds=leases.lease_seconds() - 1))
        assert worker.lease.renew()
        assert sweeper.sweep() == 0
    worker.lease.drop_locks()


@pytest.mark.postgres
def test_locks_from_before_the_database_started_tell_nothing() -> None:
    """CASES 15: after a restart no session lock is there, and every worker lives."""
    run = runs.start(count_to, 1)
    worker = Worker()
    claimed_by(worker, run)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_worker SET locked_at = pg_postmaster_start_time() - interval '1 hour'"
        )
    assert worker.lease is not None
    worker.lease.drop_locks()
    time.sleep(0.2)
    assert sweeper.sweep() == 0 and status(run) == "running"
    clock.shift(timedelta(seconds=60))
    assert sweeper.sweep() == 1
    drive()
    assert status(run) == "completed"


@pytest.mark.postgres
def test_a_worker_that_lost_its_session_takes_its_lock_anew() -> None:
    """The backend behind the lock was terminated; the worker lives and says so before others lose patience."""
    run = runs.start(count_to, 1)
    worker = Worker()
    claimed_by(worker, run)
    assert worker.lease is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [worker.lease.worker.backend_pid])
    assert sweeper.sweep(patience_seconds=60) == 0 and status(run) == "running"
    before = Row.objects.get(pk=worker.lease.worker.pk).backend_pid
    worker.lease.keep_session()
    assert Row.objects.get(pk=worker.lease.worker.pk).backend_pid not in (None, before)
    assert sweeper.sweep() == 0 and status(run) == "running"
    worker.lease.drop_locks()
    wait_for(sweeper.sweep, seconds=5)
    assert status(run) == "pending"


@pytest.mark.postgres
def test_a_session_that_a_pooler_shares_tells_nothing() -> None:
    run = runs.start(count_to, 1)
    worker = Worker()
    claimed_by(worker, run)
    assert worker.lease is not None
    worker.lease.worker.backend_pid = 1  # the next statement was served by another backend
    worker.lease.keep_session()
    assert Row.objects.get(pk=worker.lease.worker.pk).lock_key is None
    assert sweeper.sweep() == 0 and status(run) == "running"
    assert worker.lease.renew()


@pytest.mark.postgres
def test_connections_that_are_cut_cost_no_live_worker_its_run() -> None:
    """CASES 15: every session of two workers is terminated while one is in a long step."""
    run = runs.start(lingers, 1)
    with working(threads=1), working(threads=1):
        assert entered.wait(5)
        for _ in range(3):
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid() AND (query LIKE '%%pg_backend_pid%%' OR query LIKE '%%advisory%%' "
                    "OR query LIKE '%%approvals_worker%%' OR query LIKE '%%LISTEN%%')"
                )
            time.sleep(0.6)
        assert status(run) == "running" and kinds(run).count("run.claim") == 1
        gate.set()
        assert ends(run) == "completed"
        second = runs.start(count_to, 1)
        assert ends(second) == "completed"
    assert kinds(run).count("run.lose_lease") == 0
    assert_invariants()


@pytest.mark.postgres
def test_a_lease_that_ran_out_while_the_database_was_away_is_not_over_yet() -> None:
    run = runs.start(count_to, 1)
    worker = Worker()
    claimed_by(worker, run)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time() - clock_timestamp()")
        since = cursor.fetchone()[0]
    Row.objects.update(lease_until=now() + since - timedelta(seconds=1))
    clock.shift(since + timedelta(seconds=1))  # as if it had started a second ago
    assert sweeper.sweep() == 0 and status(run) == "running"
    clock.shift(timedelta(seconds=leases.lease_seconds()))
    assert sweeper.sweep() == 1
    assert worker.lease is not None
    worker.lease.drop_locks()


def test_sixty_orphans_all_finish_though_the_sweep_is_interrupted() -> None:
    """CASES 15: the database goes away in the middle of the sweep."""
    started = [runs.start(count_to, 0) for _ in range(60)]
    worker = Worker()
    worker.lease = leases.Lease(known=worker.known)
    assert len(worker._claim(worker.threads)) == worker.threads
    while worker._claim(worker.threads):
        pass
    worker.lease.drop_locks()
    taken = 0
    lose = run_events.lose_lease

    def interrupted(*args: Any, **named: Any) -> None:
        nonlocal taken
        taken += 1
        if taken % 3 == 0:
            raise OperationalError("the database is away")
        lose(*args, **named)

    with mock.patch.object(run_events, "lose_lease", interrupted):
        wait_for(sweeper.sweep, seconds=5)
    assert Row.objects.get(pk=worker.lease.worker.pk).stopped_at is None, "it still holds some"
    drive()
    assert {status(r) for r in started} == {"completed"}
    assert_invariants()


# --- zombies ---------------------------------------------------------------------------------------


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
    assert kinds(run).count("step.complete") == 2
    assert_invariants()


def test_a_late_heartbeat_of_a_finished_run_changes_nothing() -> None:
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
    with pytest.raises(LeaseLost):
        turn.flush_due()
    assert not worker.lease.renew()
    worker.turns[run.id] = turn
    worker._look_after_turns()
    worker._give_up(run.id, turn.held.fence, "late")
    assert (Run.objects.get(pk=run.id).seq, status(run)) == (before, "completed")
    assert_invariants()


# --- turns -----------------------------------------------------------------------------------------


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
    worker.turns[run.id] = later_turn
    gate.set()
    hung.join(5)
    assert worker.turns == {run.id: later_turn} and worker._claimed == {run.id: second.fence}
    assert done == [], "the hung turn went no further"
    later_turn.execute()
    assert status(run) == "completed" and done == [7]
    assert_invariants()


def test_a_step_longer_than_any_lease_is_not_taken_from_a_worker_that_lives(settings: Any) -> None:
    """CASES 14."""
    settings.APPROVALS_LEASE_SECONDS = 0.6
    run = runs.start(lingers, 1)
    with working(threads=1), working(threads=1):
        assert entered.wait(5)
        time.sleep(1.5)
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


# --- shutting down ---------------------------------------------------------------------------------


def test_a_worker_that_shuts_down_gives_back_and_claims_no_more() -> None:
    """CASES 17."""
    run = runs.start(lingers, 1)
    worker = Worker(threads=2)
    worker.start()
    assert entered.wait(5)
    stopping = threading.Thread(target=alone(worker.stop))
    stopping.start()
    wait_for(lambda: worker.stopping)
    second = runs.start(count_to, 1)
    gate.set()
    stopping.join(10)
    found = Run.objects.get(pk=run.id)
    assert (found.status, found.fence) == ("pending", 1) and status(second) == "pending"
    assert kinds(run)[-1] == "run.yield" and kinds(run).count("step.complete") == 1
    drive()
    assert status(run) == "completed" and sorted(done) == [0, 1]
    assert_invariants()


def test_what_does_not_end_in_time_is_taken_by_others() -> None:
    run = runs.start(lingers, 1)
    worker = Worker(threads=1)
    worker.start()
    assert entered.wait(5)
    worker.stop(0.1)
    assert status(run) == "running"
    sweeper.sweep()
    assert status(run) == "pending"
    gate.set()
    for thread in worker._threads:
        thread.join(5)
    drive()
    assert status(run) == "completed" and done == [1]
    assert_invariants()


# --- hints, clocks, versions -----------------------------------------------------------------------


def test_every_hint_may_be_lost() -> None:
    """CASES 3."""
    with (
        mock.patch.object(outbox, "hint"),
        mock.patch.object(outbox, "wake_here"),
        working(threads=2) as worker,
    ):
        worker._listen = lambda: None  # type: ignore[method-assign]
        run = runs.start(sleeps, 1)
        began = time.monotonic()
        assert ends(run) == "completed"
        assert time.monotonic() - began < 6
    assert_invariants()


def test_a_redis_that_is_away_costs_nothing(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.RQ_QUEUES = {"default": {"URL": "redis://127.0.0.1:9/0"}}
    cached = getattr(outbox, "_queue", None)
    if cached is not None:
        cached.cache_clear()
    try:
        with mock.patch.object(outbox, "_redis_away_until", 0.0), caplog.at_level(logging.WARNING):
            began = time.monotonic()
            started = [runs.start(count_to, 1) for _ in range(20)]
            assert time.monotonic() - began < 5
        drive()
        assert {status(r) for r in started} == {"completed"}
        assert sum("hint by RQ failed" in r.message for r in caplog.records) <= 1
    finally:
        if cached is not None:
            cached.cache_clear()


def test_an_idle_worker_goes_on_after_the_database_was_away() -> None:
    """Its threads are free before and after: none of them may be forgotten."""
    with working(threads=2) as worker:
        wait_for(lambda: worker._free == 2)
        claim = worker._claim
        times: list[int] = []

        def away(limit: int) -> Any:
            times.append(limit)
            if len(times) < 3:
                raise OperationalError("the database is away")
            return claim(limit)

        with mock.patch.object(worker, "_claim", away):
            worker._wake.set()
            wait_for(lambda: len(times) >= 3)
        run = runs.start(count_to, 1)
        assert ends(run) == "completed"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_workers_clock_may_be_an_hour_off(hours: int) -> None:
    """CASES 21: only the database's clock counts."""
    real = time.time
    with (
        mock.patch("time.time", side_effect=lambda: real() + hours * 3600),
        mock.patch("time.time_ns", side_effect=lambda: int((real() + hours * 3600) * 1e9)),
        peer(Blind),
    ):
        short, long, bought = (
            runs.start(sleeps, 60),
            runs.start(sleeps, 3 * 3600),
            runs.start(buy_blind, Order()),
        )
        drive()
        assert (status(short), status(long), status(bought)) == ("suspended", "suspended", "completed")
        later(seconds=61)
        assert (status(short), status(long)) == ("completed", "suspended")
        later(hours=3)
        assert status(long) == "completed"
    assert_invariants()


def test_a_timer_of_sixty_days_fires_once() -> None:
    run = runs.start(sleeps, 60 * 86_400)
    drive()
    later(days=59, hours=23)
    assert status(run) == "suspended"
    later(hours=2)
    later(days=1)
    assert status(run) == "completed" and kinds(run).count("wait.resolve") == 1
    assert_invariants()


def test_a_run_of_a_version_that_nobody_knows_is_shown_after_a_minute() -> None:
    run = runs.start(count_to, 1)
    Run.objects.filter(pk=run.id).update(version=9)
    later(seconds=58)
    assert status(run) == "pending"
    later(seconds=3)
    assert case(run).name == "version unknown" and '"version": 9' in case(run).data
    Run.objects.filter(pk=run.id).update(version=1)
    settle(run, "resume")
    drive()
    assert status(run) == "completed"
    assert_invariants()


def test_a_version_that_another_live_worker_knows_is_left_to_it() -> None:
    run = runs.start(count_to, 1)
    Run.objects.filter(pk=run.id).update(version=9)
    clock.shift(timedelta(seconds=61))
    other = leases.Lease(known=[("count-to", 9)])
    drive()
    assert status(run) == "pending"
    other.release()
    drive()
    assert case(run).name == "version unknown"


def test_many_runs_over_many_threads_and_workers_all_end_once() -> None:
    started = [runs.start(count_to, 2) for _ in range(30)]
    with working(threads=3), working(threads=3):
        for run in started:
            assert ends(run, seconds=60) == "completed"
    assert all(kinds(r).count("run.claim") == 1 for r in started) and len(done) == 60
    assert_invariants()


def test_cancelling_a_suspended_run_needs_no_worker() -> None:
    """CASES 18."""
    run = runs.start(sleeps, 60)
    drive()
    runs.cancel(run.id, actor=people().operator, reason="no more")
    assert status(run) == "cancelled" and not Wait.objects.filter(status="open").exists()
    drive()
    assert_invariants()
