"""How soon a killed worker is noticed: from SIGKILL to the next journal entry, which another worker writes."""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings

from approvals import Context, clock, step, workflow
from approvals.bench.driver import Row, until

_HELD_SECONDS = 120.0
_SETTLED = timedelta(seconds=5)
"""After so long a worker that has just come trusts the locks that it sees, and its own start is over."""


def _marker(n: int) -> Path:
    return Path(settings.DATA_DIR) / f"detection-{n}"


@step(durability="sync")
def held(n: int) -> int:
    """Whoever comes first is held up here, until it is killed."""
    try:
        _marker(n).touch(exist_ok=False)
    except FileExistsError:
        return n
    time.sleep(_HELD_SECONDS)
    return n


@workflow(name="bench-detection", version=1)
def detection(ctx: Context, n: int) -> int:
    return ctx.step("held", held, n)


def detect(*, trials: int, is_lock_hidden: bool = False) -> Row:
    """Two workers; again and again the one that holds a run is killed in the middle of its step.

    With `is_lock_hidden` each worker's lock is as it would be behind a pooler: it tells nothing.
    """
    command = [sys.executable, "manage.py", "worker", "--threads", "2"]
    Path(settings.DATA_DIR).mkdir(parents=True, exist_ok=True)
    living: dict[int, subprocess.Popen[bytes]] = {}
    found = []
    try:
        for n in range(trials):
            while len(living) < 2:
                process = subprocess.Popen(command)
                living[process.pid] = process
            until(lambda: _are_settled(len(living)))
            found.append(_trial(n, living, is_lock_hidden))
    finally:
        for process in living.values():
            process.kill()
            process.wait(30)
    noticed, begun = ([pair[i] for pair in found] for i in (0, 1))
    return {
        "trials": trials,
        "lease s": settings.APPROVALS_LEASE_SECONDS,
        "noticed p50 s": statistics.median(noticed),
        "noticed p95 s": _percentile(noticed, 0.95),
        "noticed max s": max(noticed),
        "work goes on p50 s": statistics.median(begun),
        "work goes on p95 s": _percentile(begun, 0.95),
    }


def _are_settled(count: int) -> bool:
    from approvals.models import Worker

    alive = Worker.objects.filter(stopped_at=None)
    return alive.count() == count and not alive.filter(started_at__gt=clock.now() - _SETTLED).exists()


def _trial(n: int, living: dict[int, subprocess.Popen[bytes]], is_lock_hidden: bool) -> tuple[float, float]:
    """Seconds from SIGKILL until somebody noticed, and until somebody went on."""
    from approvals.models import Entry, Run, Worker
    from approvals.services import runs

    if is_lock_hidden:
        Worker.objects.update(lock_key=None, backend_pid=None, locked_at=None)
    run: Any = runs.start_json("bench-detection", n)
    until(lambda: _marker(n).exists() and Run.objects.filter(pk=run.id, status="running").exists())
    time.sleep(random.random())  # noqa: S311  # a kill keeps no step with heartbeats and sweeps
    (name,) = Run.objects.filter(pk=run.id).values_list("worker__name", flat=True)
    process = living.pop(int(name.split(":")[1]))
    killed_at = clock.now()
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    until(lambda: Run.objects.filter(pk=run.id, status="completed").exists())
    after = Entry.objects.filter(run=run.id, at__gt=killed_at).order_by("seq")
    noticed, begun = after[0].at, after.filter(kind="run.claim")[0].at
    return (noticed - killed_at).total_seconds(), (begun - killed_at).total_seconds()


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[math.ceil(len(values) * part) - 1]
