"""What durability costs a long run that is struck once: its time, without what the crash took, beside the bare work's.

Pairs: the work as it is, and the same work as a run whose worker is killed on the way, at the same time, so that both
see the same machine. The work waits, as for a model's answers, so several pairs can go on beside each other.
"""

from __future__ import annotations

import math
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.models import F

from approvals.bench.agents import Shift, bare, record
from approvals.bench.driver import Row, until

_STEPS_A_SECOND = 1
_FEWEST_STEPS = 10


class _Crew:
    """Workers of one thread, so that a kill strikes one run; as many again as runs, who take over."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._living: dict[int, subprocess.Popen[bytes]] = {}
        for _ in range(count):
            self._hire()

    def _hire(self) -> None:
        process = subprocess.Popen([sys.executable, "manage.py", "worker", "--threads", "1"])
        self._living[process.pid] = process

    def kill(self, pid: int) -> float:
        """When, in seconds since the epoch. Another one is hired."""
        with self._lock:
            process = self._living.pop(pid)
            at = time.time_ns() / 1e9
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            self._hire()
        return at

    def end(self) -> None:
        """All of them."""
        for process in self._living.values():
            process.kill()
            process.wait(30)


def overhead(*, pairs: int, seconds: float, beside: int) -> Row:
    """`pairs` of runs of so many seconds, `beside` each other."""
    from approvals.models import Worker

    Path(settings.DATA_DIR).mkdir(parents=True, exist_ok=True)
    crew = _Crew(2 * beside)
    try:
        until(lambda: Worker.objects.count() == 2 * beside)
        time.sleep(5)  # their sweepers trust locks by then
        with ThreadPoolExecutor(beside) as lanes:
            found = list(lanes.map(lambda n: _pair(n, seconds, crew), range(pairs)))
    finally:
        crew.end()
    percent = sorted(100 * (run - lost - noticed - alone) / alone for run, lost, noticed, alone in found)
    low = max(math.floor(pairs / 2 - 0.98 * math.sqrt(pairs)), 0)  # ranks that hold the median in 95 of 100
    return {
        "pairs": pairs,
        "bare work s": statistics.median(f[3] for f in found),
        "struck run s": statistics.median(f[0] for f in found),
        "lost work s": statistics.median(f[1] for f in found),
        "noticed after s": statistics.median(f[2] for f in found),
        "overhead median %": statistics.median(percent),
        "overhead 95 % from": percent[low],
        "overhead 95 % to": percent[-1 - low],
    }


def _pair(n: int, seconds: float, crew: _Crew) -> tuple[float, float, float, float]:
    """Seconds of the run, of work that was lost, from the kill to the next claim, and of the bare work."""
    from approvals.models import Entry, Run
    from approvals.services import runs

    steps = max(round(seconds * _STEPS_A_SECOND), _FEWEST_STEPS)
    shift = Shift(n=n, steps=steps, seconds=seconds / steps)
    taken: list[float] = []

    def alone() -> None:
        began = time.monotonic()
        bare(shift.model_copy(update={"n": -1 - n}))
        taken.append(time.monotonic() - began)

    try:
        beside = threading.Thread(target=alone)
        beside.start()
        run: Any = runs.start_json("bench-overhead", shift.model_dump())
        time.sleep(seconds * random.uniform(0.2, 0.8))  # noqa: S311
        until(lambda: Run.objects.filter(pk=run.id, status="running").exists())
        (name,) = Run.objects.filter(pk=run.id).values_list("worker__name", flat=True)
        killed_at = crew.kill(pid := int(name.split(":")[1]))
        until(lambda: Run.objects.filter(pk=run.id, status="completed").exists())
        beside.join()
        claims = Entry.objects.filter(run=run.id, kind="run.claim").order_by("seq")
        claimed = [at.timestamp() for at in claims.values_list("at", flat=True)]
        (took,) = Run.objects.filter(pk=run.id).values_list(F("finished_at") - F("created_at"))[0]
    finally:
        connections.close_all()
    noticed = next(at for at in claimed if at > killed_at) - killed_at
    return took.total_seconds(), _lost(n, pid, killed_at), noticed, taken[0]


def _lost(n: int, pid: int, killed_at: float) -> float:
    """Seconds that the dead worker had put into what another one did again."""
    lines = [line.split() for line in record(n).read_text().splitlines()]
    begun = {turn: float(at) for by, turn, at in lines if int(by) == pid}
    again = [begun[turn] for by, turn, _ in lines if int(by) != pid and turn in begun]
    return killed_at - min(again) if again else 0.0
