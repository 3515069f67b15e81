"""Who is dead, by lock and by lease; and that those who live keep their runs (CASES 15)."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection

from approvals.clock import now
from approvals.engine import leases, sweeper
from approvals.engine.loop import Worker
from approvals.models import Entry, Run
from approvals.models import Worker as Row
from approvals.services import runs
from approvals.testing import assert_invariants, clock, drive, wait_for
from approvals.transitions import runs as run_events
from tests.engine.make import kinds
from tests.engine.shop import status
from tests.engine.workers import count_to, ends, entered, gate, holding, lingers, passages, working

pytestmark = pytest.mark.usefixtures("fresh_workers")


def test_a_dead_worker_is_noticed_by_its_lock_long_before_its_lease_is_over() -> None:
    run, lease = holding()
    sweeper.sweep()
    assert status(run) == "running", "it lives"
    lease.drop_locks()
    wait_for(sweeper.sweep, seconds=5)
    lost = Entry.objects.get(run=run.id, kind="run.lose_lease")
    assert "its process is gone" in lost.data
    drive()
    assert status(run) == "completed"
    assert Row.objects.filter(stopped_at=None).count() == 0
    assert_invariants()


def test_a_worker_whose_lock_cannot_tell_is_dead_when_its_lease_is_over() -> None:
    run, lease = holding()
    clock.shift(timedelta(seconds=leases.lease_seconds() - 2))
    assert sweeper.sweep() == 0
    clock.shift(timedelta(seconds=3))
    assert sweeper.sweep() == 1 and status(run) == "pending"
    assert "its lease ran out" in Entry.objects.get(run=run.id, kind="run.lose_lease").data
    assert not lease.renew(), "it may hold nothing any more"
    lease.drop_locks()
    drive()
    assert status(run) == "completed"
    assert_invariants()


def test_a_renewed_lease_is_kept() -> None:
    _, lease = holding()
    for _ in range(3):
        clock.shift(timedelta(seconds=leases.lease_seconds() - 1))
        assert lease.renew()
        assert sweeper.sweep() == 0
    lease.drop_locks()


@pytest.mark.parametrize("holds", [True, False])
def test_who_speaks_while_it_is_being_judged_keeps_its_run_and_its_name(holds: bool) -> None:
    """What held up its heartbeat held up the sweeper too: both go on at the same moment."""
    run, lease = holding()
    if not holds:
        Run.objects.filter(pk=run.id).update(status="pending", worker=None)
    clock.shift(timedelta(seconds=leases.lease_seconds() + 1))
    judge = leases.dead

    def judged(patience_seconds: float) -> list[leases.Dead]:
        found = judge(patience_seconds)
        assert [dead.id for dead in found] == [lease.worker.pk] and lease.renew()
        return found

    with mock.patch.object(leases, "dead", judged):
        sweeper.sweep()
    assert status(run) == ("running" if holds else "pending")
    assert lease.renew(), "it was not given up"
    lease.drop_locks()


@pytest.mark.postgres
def test_locks_from_before_the_database_started_tell_nothing() -> None:
    """CASES 15: after a restart no session lock is there, and every worker lives."""
    run, lease = holding()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_worker SET locked_at = pg_postmaster_start_time() - interval '1 hour'"
        )
    lease.die()
    assert sweeper.sweep() == 0 and status(run) == "running"
    clock.shift(timedelta(seconds=60))
    assert sweeper.sweep() == 1
    drive()
    assert status(run) == "completed"


@pytest.mark.postgres
def test_a_worker_that_lost_its_session_takes_its_lock_anew() -> None:
    """The backend behind the lock was terminated; the worker lives and says so before others lose patience."""
    run, lease = holding()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [lease.worker.backend_pid])
    assert sweeper.sweep(patience_seconds=60) == 0 and status(run) == "running"
    before = Row.objects.get(pk=lease.worker.pk).backend_pid
    lease.keep_session()
    assert Row.objects.get(pk=lease.worker.pk).backend_pid not in (None, before)
    assert sweeper.sweep() == 0 and status(run) == "running"
    lease.drop_locks()
    wait_for(sweeper.sweep, seconds=5)
    assert status(run) == "pending"


@pytest.mark.postgres
def test_who_has_just_connected_believes_no_lock_to_be_gone() -> None:
    """CASES 15: what cut the sweeper off may have cut off everybody, without a restart that the database tells of."""
    run, lease = holding()
    lease.die()
    lock = leases.SweeperLock()
    with lock as mine:
        assert mine and sweeper.sweep(patience_seconds=lock.patience_seconds) == 0
        assert status(run) == "running" and leases.is_anyone_suspected()
        lock._since -= leases._SETTLED_SECONDS
        wait_for(lambda: sweeper.sweep(patience_seconds=lock.patience_seconds), seconds=5)
        assert status(run) == "pending"
        assert sweeper.sweep() == 0 and not leases.is_anyone_suspected()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [lock._session.connection.info.backend_pid])
    with lock as mine:
        assert not mine
    with lock as mine:
        assert mine and lock.patience_seconds > leases.lease_seconds()
    lock.close()


@pytest.mark.postgres
def test_a_session_that_a_pooler_shares_tells_nothing() -> None:
    run, lease = holding()
    lease.worker.backend_pid = 1  # the next statement was served by another backend
    lease.keep_session()
    assert Row.objects.get(pk=lease.worker.pk).lock_key is None
    assert sweeper.sweep() == 0 and status(run) == "running"
    assert lease.renew()


@pytest.mark.postgres
def test_connections_that_are_cut_cost_no_live_worker_its_run() -> None:
    """CASES 15: every session of two workers is terminated while one is in a long step."""
    run = runs.start(lingers, 1)
    with passages(leases.Lease, "_lock_session") as locked, working(threads=1), working(threads=1):
        assert entered.wait(5)
        assert locked.acquire(timeout=5) and locked.acquire(timeout=5), "each took its lock when it began"
        for _ in range(3):
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid() AND (query LIKE '%%pg_backend_pid%%' OR query LIKE '%%advisory%%' "
                    "OR query LIKE '%%approvals_worker%%' OR query LIKE '%%LISTEN%%')"
                )
            assert locked.acquire(timeout=5) and locked.acquire(timeout=5), "each takes its lock anew"
        assert status(run) == "running" and kinds(run).count("run.claim") == 1
        gate.set()
        assert ends(run) == "completed"
        second = runs.start(count_to, 1)
        assert ends(second) == "completed"
    assert kinds(run).count("run.lose_lease") == 0
    assert_invariants()


@pytest.mark.postgres
def test_a_lease_that_ran_out_while_the_database_was_away_is_not_over_yet() -> None:
    run, lease = holding()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time() - clock_timestamp()")
        since = cursor.fetchone()[0]
    Row.objects.update(lease_until=now() + since - timedelta(seconds=1))
    clock.shift(since + timedelta(seconds=1))  # as if it had started a second ago
    assert sweeper.sweep() == 0 and status(run) == "running"
    clock.shift(timedelta(seconds=leases.lease_seconds()))
    assert sweeper.sweep() == 1
    lease.drop_locks()


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


@pytest.mark.sqlite
def test_a_forked_copy_keeps_no_lock_from_others() -> None:
    _, lease = holding()
    sweeping = leases.SweeperLock()
    (lives_on, ends_it), (told, tells) = os.pipe(), os.pipe()
    with sweeping as mine:
        assert mine
        if (copy := os.fork()) == 0:
            os.close(ends_it)
            os.write(tells, b".")
            os.read(lives_on, 1)
            os._exit(0)
        os.read(told, 1)
    try:
        with leases.SweeperLock() as mine:
            assert mine, "what was given back is free"
        assert not leases.dead(), "its worker lives, whatever its copy let go of"
        lease.drop_locks()
        assert [d.id for d in leases.dead()] == [lease.worker.pk], "it is gone, though its copy lives"
    finally:
        os.close(ends_it)
        os.waitpid(copy, 0)
        for end in (lives_on, told, tells):
            os.close(end)
