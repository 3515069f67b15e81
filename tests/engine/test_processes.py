"""Real worker processes that are killed (SIGKILL) and stopped (SIGSTOP); another one notices by itself."""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from approvals import clock
from approvals.engine import leases
from approvals.models import Entry, Run, Worker
from approvals.services import runs
from approvals.testing import assert_invariants, wait_for
from tests.engine.killing import killing, stopping
from tests.engine.make import kinds
from tests.engine.shop import status

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.sigkill]

NOTICED_SECONDS = 2.0


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Closed, and open for ever once it is called."""
    with (tmp_path / "gate").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(held, fcntl.LOCK_UN)


def lines(tmp_path: Path) -> list[tuple[str, float]]:
    """What was done to the world, and when."""
    path = tmp_path / "lines"
    found = path.read_text().splitlines() if path.exists() else []
    return [(key, float(at)) for key, at in (line.split() for line in found)]


def everybody_has_settled() -> bool:
    """Whether a worker that has just come would already believe another one's lock to be gone."""
    newest = Worker.objects.latest("started_at").started_at
    return clock.now() - newest > timedelta(seconds=leases._SETTLED_SECONDS + 1)


def finished(run: Any) -> bool:
    return Run.objects.filter(pk=run.id, finished_at__isnull=False).exists()


def test_a_killed_worker_is_noticed_by_an_idle_one_and_nothing_is_done_twice(
    worker: Callable[..., Any], gate: Callable[[], None], tmp_path: Path, record_property: Any
) -> None:
    first = worker(APPROVALS_FAULT="performed:1", APPROVALS_ALLOW_FAULTS="1")
    run = runs.start(killing, 1)
    wait_for((tmp_path / "entered").exists)
    worker()
    wait_for(everybody_has_settled)
    gate()
    assert first.wait(60) == -signal.SIGKILL
    wait_for(lambda: finished(run))
    assert status(run) == "completed"
    ((key, acted_at),) = lines(tmp_path)
    noticed = Entry.objects.get(run=run.id, kind="run.lose_lease")
    seconds = noticed.at.timestamp() - acted_at
    done = Entry.objects.get(run=run.id, kind="run.complete").at.timestamp() - acted_at
    record_property("noticed_after_seconds", round(seconds, 3))
    print(f"noticed {seconds:.3f} s after the kill, completed after {done:.3f} s ({connection.vendor})")
    assert 0 <= seconds < NOTICED_SECONDS, noticed.data
    assert "its process is gone" in noticed.data
    assert runs.get(run.id).output == key and kinds(run).count("effect.confirm") == 1
    assert_invariants()


def test_a_worker_killed_before_anything_was_done_costs_nothing(
    worker: Callable[..., Any], gate: Callable[[], None], tmp_path: Path
) -> None:
    first = worker(APPROVALS_FAULT="before_flush:1", APPROVALS_ALLOW_FAULTS="1")
    run = runs.start(killing, 1)
    gate()
    assert first.wait(60) == -signal.SIGKILL
    assert status(run) == "running" and lines(tmp_path) == []
    worker()
    wait_for(lambda: finished(run))
    assert status(run) == "completed" and len(lines(tmp_path)) == 1
    assert_invariants()


# A process that is stopped while it writes holds SQLite's one lock: nobody else can write until it goes on.
@pytest.mark.postgres
def test_a_stopped_worker_loses_its_run_when_its_lease_is_over_and_wakes_up_to_nothing(
    worker: Callable[..., Any], tmp_path: Path
) -> None:
    """CASES 13. Its lock is still held: only the lease says so."""
    first = worker(LEASE_SECONDS="2")
    run = runs.start(stopping, 1)
    wait_for((tmp_path / "stopped").exists)
    worker(LEASE_SECONDS="2")
    wait_for(lambda: finished(run))
    assert runs.get(run.id).output == "passed by" and len(lines(tmp_path)) == 1
    assert "its lease ran out" in Entry.objects.get(run=run.id, kind="run.lose_lease").data
    before = Run.objects.get(pk=run.id).seq
    alive = Worker.objects.filter(stopped_at=None).count()
    first.send_signal(signal.SIGCONT)
    wait_for(lambda: Worker.objects.filter(stopped_at=None).count() > alive)  # under a new name
    wait_for((tmp_path / "woken").exists)
    again = runs.start(stopping, 1)
    wait_for(lambda: finished(again))
    first.terminate()
    assert first.wait(60) == 0  # with it the turn that woke up is over
    assert Run.objects.get(pk=run.id).seq == before and len(lines(tmp_path)) == 2
    assert_invariants()


def test_a_worker_that_is_told_to_end_gives_its_runs_back(
    worker: Callable[..., Any], gate: Callable[[], None], tmp_path: Path
) -> None:
    """CASES 17."""
    first = worker()
    run = runs.start(killing, 1)
    wait_for((tmp_path / "entered").exists)
    first.terminate()
    wait_for(lambda: "to stop at their next boundary: 1" in (tmp_path / "worker-0.log").read_text())
    gate()
    assert first.wait(60) == 0
    found = Run.objects.get(pk=run.id)
    assert (found.status, found.fence, found.turns_lost) == ("pending", 1, 0) and lines(tmp_path) == []
    worker()
    wait_for(lambda: finished(run))
    assert status(run) == "completed" and len(lines(tmp_path)) == 1
    assert kinds(run).count("step.complete") == 1
    assert_invariants()
