"""Housekeeping: what it takes away and leaves, who asks for it, and how often."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session

from approvals import clock, jobs, outbox
from approvals.engine import housekeeping
from approvals.models import Run, Worker
from approvals.services import runs
from approvals.testing import drive, wait_for
from tests.live.flows import anybodys

pytestmark = pytest.mark.usefixtures("engine")


def worker(name: str, *, silent: timedelta, stopped: bool = False) -> Worker:
    """A worker that gave its last sign so long ago."""
    last = clock.now() - silent
    return Worker.objects.create(
        name=name, started_at=last, lease_until=last, stopped_at=last if stopped else None
    )


def session(seconds: int) -> str:
    """A session that is over in so many seconds."""
    made = SessionStore()
    made.set_expiry(seconds)
    made.create()
    return str(made.session_key)


def names() -> set[str]:
    return set(Worker.objects.values_list("name", flat=True))


def test_sessions_that_are_over_are_taken_away() -> None:
    session(-10)
    lasting = session(1000)
    housekeeping.tidy()
    assert [s.session_key for s in Session.objects.all()] == [lasting]


def test_workers_are_forgotten_a_day_after_their_last_sign() -> None:
    hour, days = timedelta(hours=1), timedelta(days=2)
    worker("stopped today", silent=hour, stopped=True)
    worker("silent for an hour", silent=hour)
    worker("stopped long ago", silent=days, stopped=True)
    worker("silent for long", silent=days)
    assert housekeeping.tidy() == 2
    assert names() == {"stopped today", "silent for an hour"}
    assert housekeeping.tidy() == 0


def test_a_worker_that_still_holds_a_run_is_kept() -> None:
    """Its run is another's business: the sweeper's."""
    run = runs.start(anybodys, 1)
    Worker.objects.all().delete()
    holder = worker("silent with a run", silent=timedelta(days=2))
    Run.objects.filter(pk=run.id).update(status="running", worker=holder, fence=1)
    assert housekeeping.tidy() == 0 and names() == {"silent with a run"}
    drive()  # its run is taken
    housekeeping.tidy()
    assert "silent with a run" not in names()


def test_one_pass_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_MOST_WORKERS", 2)
    for n in range(3):
        worker(str(n), silent=timedelta(days=2))
    assert [housekeeping.tidy(), housekeeping.tidy(), housekeeping.tidy()] == [2, 1, 0]


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Moves the housekeeper's own clock."""

    class Watch:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def move(self, hours: float) -> None:
            self.now += hours * 3600

    watch = Watch()
    monkeypatch.setattr(housekeeping, "time", watch)
    return watch


@pytest.fixture
def alone(settings: Any) -> None:
    """No Redis: the sweeping worker does it itself."""
    settings.RQ_QUEUES = {}


def test_without_redis_the_sweeping_worker_does_it_once_an_hour(
    alone: None, hours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[float] = []
    monkeypatch.setattr(housekeeping, "tidy", lambda: done.append(hours.now))
    keeper = housekeeping.Housekeeper()
    keeper.look()
    assert done == []  # not while everything starts
    for _ in range(100):
        hours.move(0.05)
        keeper.look()
    assert 4 <= len(done) <= 5
    assert min(b - a for a, b in pairwise(done)) >= 3600


def test_housekeeping_that_fails_ends_no_sweep(
    alone: None, hours: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(housekeeping, "tidy", lambda: 1 / 0)
    keeper = housekeeping.Housekeeper()
    hours.move(1)
    with caplog.at_level(logging.ERROR):
        keeper.look()
    assert "housekeeping failed; it is tried again in an hour" in caplog.text


@pytest.fixture
def queue(engine: object) -> Iterator[Any]:
    """RQ's queue, empty."""
    import django_rq

    outbox._redis_away_until = 0.0
    found: Any = django_rq.get_queue("default")
    for key in (outbox.WAKE_KEY, outbox.HOUSEKEEPING_KEY):
        found.connection.delete(key)
    found.empty()
    yield found
    found.empty()
    found.connection.delete(outbox.HOUSEKEEPING_KEY)


@pytest.mark.postgres
def test_with_redis_it_is_one_job_an_hour_whoever_sweeps(queue: Any, hours: Any) -> None:
    from approvals.management.jobs import JobThread

    keepers = [housekeeping.Housekeeper() for _ in range(3)]
    hours.move(1)
    for keeper in keepers:
        keeper.look()
    assert [job.func_name for job in queue.jobs] == ["approvals.jobs.housekeeping"]
    assert 3000 < queue.connection.ttl(outbox.HOUSEKEEPING_KEY) <= 3600
    worker("long gone", silent=timedelta(days=2))
    thread = JobThread(["default"])
    thread.start()
    try:
        wait_for(lambda: "long gone" not in names())
    finally:
        thread.stop()
    hours.move(0.5)
    keepers[0].look()
    assert queue.count == 0
    queue.connection.delete(outbox.HOUSEKEEPING_KEY)  # the hour is over
    hours.move(0.5)
    keepers[0].look()
    assert queue.count == 1


@pytest.mark.postgres
def test_a_redis_that_is_away_costs_one_look(queue: Any, hours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from redis.exceptions import ConnectionError as Away

    keeper = housekeeping.Housekeeper()
    with monkeypatch.context() as away:
        away.setattr(outbox, "_queue", lambda: (_ for _ in ()).throw(Away("refused")))
        hours.move(1)
        keeper.look()
    assert queue.count == 0
    monkeypatch.setattr(outbox, "_redis_away_until", 0.0)
    hours.move(0.2)
    keeper.look()
    assert queue.count == 1


def test_the_job_does_it() -> None:
    worker("long gone", silent=timedelta(days=2))
    jobs.housekeeping()
    assert names() == set()
