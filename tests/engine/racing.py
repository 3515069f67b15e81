"""Two real connections and a lock that the test holds: who comes first is decided, not hoped for.

Everybody who wants the run queues behind the test's own lock, in the order in which they were started
(PostgreSQL says that each is waiting before the next starts); then the test lets go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from django.db import connection, connections

from approvals import faults as points
from approvals.engine import leases
from approvals.engine.loop import Worker
from approvals.engine.turn import Turn
from approvals.errors import Leave
from approvals.testing import wait_for
from approvals.workflows import registry


def waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


class Queue:
    """Those who wait behind the test's lock."""

    def __init__(self, pool: ThreadPoolExecutor, release: Callable[[], None]) -> None:
        self.pool, self.release = pool, release
        self.futures: list[Future[Any]] = []

    def add(self, *jobs: Callable[[], Any]) -> None:
        """Starts each, and goes on when it waits for a lock."""
        for job in jobs:
            before = waiting()
            future = self.pool.submit(answered, job)
            wait_for(lambda: waiting() > before or future.done(), seconds=10)  # noqa: B023
            self.futures.append(future)

    def go(self) -> list[Any]:
        """Lets go; what each came to: a value, or the exception."""
        assert waiting() == len([f for f in self.futures if not f.done()]) > 0
        self.release()
        return [f.result(20) for f in self.futures]


def answered(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except (Exception, Leave) as told:
        return told
    finally:
        connections.close_all()


@contextmanager
def held(sql: str, *values: Any) -> Iterator[Queue]:
    """Holds what the statement locks, on a connection of its own."""
    own = connections.create_connection("default")
    own.inc_thread_sharing()
    try:
        own.set_autocommit(False)
        with own.cursor() as cursor:
            cursor.execute(sql, values)
        with ThreadPoolExecutor(32) as pool:
            yield Queue(pool, own.rollback)
            own.rollback()
    finally:
        own.close()


def held_run(run: Any) -> Any:
    return held("SELECT id FROM approvals_run WHERE id = %s FOR UPDATE", run.id)


class Holder:
    """A worker's turn of one run, which can be held up at a crash point."""

    def __init__(self, run: Any) -> None:
        self.worker = Worker()
        self.worker.lease = leases.Lease(known=self.worker.known)
        (self.claimed,) = self.worker._claim(1)
        assert self.claimed.pk == run.id
        self.turn: Turn | None = None
        self.reached, self.let_go = threading.Event(), threading.Event()

    def execute(self) -> Any:
        self.turn = Turn(self.claimed, registry.resolve(self.claimed.workflow, self.claimed.version))
        self.turn.execute()
        return self.turn.leaving

    @contextmanager
    def up_to(self, point: str) -> Iterator[Future[Any]]:
        """Its turn runs in a thread and is held up at a point, until `let_go`."""
        reach = points.reach

        def held_up(at: str) -> None:
            reach(at)
            if at == point and threading.current_thread().name.startswith("holder"):
                self.reached.set()
                assert self.let_go.wait(20)

        with (
            mock.patch.object(points, "reach", held_up),
            ThreadPoolExecutor(1, thread_name_prefix="holder") as pool,
        ):
            future = pool.submit(answered, self.execute)
            try:
                assert self.reached.wait(10)
                yield future
            finally:
                self.let_go.set()

    def done(self) -> None:
        assert self.worker.lease is not None
        self.worker.lease.release()


def both(first: Any, second: Any, swap: bool) -> tuple[Any, Any]:
    return (second, first) if swap else (first, second)


def as_named(queue: Queue, swap: bool) -> tuple[Any, Any]:
    """Lets go; the two answers in the order of the test's name."""
    first, second = queue.go()
    return both(first, second, swap)


swapped = pytest.mark.parametrize("swap", [False, True], ids=["as named", "swapped"])
