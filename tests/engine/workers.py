"""Small workflows, and workers in this process: started with threads, or given one run by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

from django.db import connections

from approvals import Context, step, workflow
from approvals.engine import leases
from approvals.engine.loop import Worker
from approvals.models import Run
from approvals.services import runs
from approvals.testing import wait_for
from tests.engine.shop import status

done: list[Any] = []
gate = threading.Event()
entered = threading.Event()


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


def holding() -> tuple[Any, leases.Lease]:
    """A run, and the lease of a worker that holds it and does nothing."""
    run, worker = runs.start(count_to, 1), Worker()
    claimed_by(worker, run)
    assert worker.lease is not None
    return run, worker.lease


@contextmanager
def passages(of: type, method: str) -> Iterator[threading.Semaphore]:
    """Counts the calls of a method that have ended, in whatever thread."""
    ended, real = threading.Semaphore(0), getattr(of, method)

    def counted(self: Any, *args: Any) -> Any:
        told = real(self, *args)
        ended.release()
        return told

    with mock.patch.object(of, method, counted):
        yield ended
