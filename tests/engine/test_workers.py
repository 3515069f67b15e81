"""Workers that shut down, lose hints, Redis or the database, and know other versions (CASES 3, 17, 18, 21)."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError

from approvals import outbox
from approvals.engine import leases, sweeper
from approvals.engine.loop import Worker
from approvals.models import Run, Wait
from approvals.services import runs
from approvals.testing import assert_invariants, clock, drive, peer, people, wait_for
from tests.engine.make import case, kinds
from tests.engine.shop import Blind, Order, buy_blind, later, settle, status
from tests.engine.workers import alone, count_to, done, ends, entered, gate, lingers, sleeps, working

pytestmark = pytest.mark.usefixtures("fresh_workers")


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
    import django_rq  # noqa: F401  # once per process, and not what is measured

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
    assert status(run) == "pending", "it may well come again"
    later(seconds=58)
    assert status(run) == "pending"
    later(seconds=3)
    assert case(run).name == "version unknown"


def test_nobody_is_told_that_a_version_is_unknown_while_all_were_held_up_together() -> None:
    """Whoever sweeps first after an hour without the database has not renewed its own lease yet, either."""
    run = runs.start(count_to, 1)
    lease = leases.Lease(known=[("count-to", 1)])
    clock.shift(timedelta(hours=1))
    assert sweeper._strand() == 0 and lease.renew()
    assert sweeper._strand() == 0 and status(run) == "pending"
    lease.release()


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
