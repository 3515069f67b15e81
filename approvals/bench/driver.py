"""Runs a workload against a scratch database with real worker processes, and counts what it cost."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import transaction

from approvals import clock, outbox
from approvals.bench.machine import Database, ref
from approvals.bench.workflows import STEPS

Row = dict[str, float]

_POLL_SECONDS = 0.1  # each look is a transaction that the workers did not make
_TIMEOUT_SECONDS = 300


@contextmanager
def worker(threads: int, processes: int = 1) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Worker processes that end with the block; their statistics have reached the database by then."""
    command = [sys.executable, "manage.py", "worker", "--threads", str(threads)]
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield started
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(30)


def until(what: Callable[[], bool]) -> None:
    """Waits for it, bounded."""
    ends = time.monotonic() + _TIMEOUT_SECONDS
    while not what():
        if time.monotonic() > ends:
            raise TimeoutError("the workload did not end in time")
        time.sleep(_POLL_SECONDS)


def w1(database: Database, durability: str, *, n: int, threads: int, processes: int = 1) -> Row:
    """`n` runs of twelve trivial steps, let go when the workers are idle; from the first claim to the last end."""
    from django.db.models import Max, Min

    from approvals.models import Entry, Run, Worker
    from approvals.services import runs

    rate, _ = ref(database.url)
    for i in range(n):
        runs.start_json(f"bench-w1-{durability}", i)
    Run.objects.update(ready_at=clock.now() + timedelta(days=1))
    with worker(threads, processes) as started:
        until(lambda: Worker.objects.count() == processes)
        time.sleep(1)
        cpu = sum(map(_cpu_seconds, started))
        with transaction.atomic():
            Run.objects.update(ready_at=clock.now())
            outbox.hint()
        before = database.counters()
        until(lambda: not Run.objects.exclude(status="completed").exists())
        cpu = sum(map(_cpu_seconds, started)) - cpu
    begun = Entry.objects.filter(kind="run.claim").aggregate(at=Min("at"))["at"]
    ended = Run.objects.aggregate(at=Max("finished_at"))["at"]
    after, steps = settled(database), n * STEPS
    seconds = (ended - begun).total_seconds()
    return {
        "ref": rate,
        "steps/s": steps / seconds,
        "steps/s ÷ ref": steps / seconds / rate,
        "transactions/step": (after[0] - before[0]) / steps,
        "commits/run": (after[0] - before[0]) / n,
        "rows/step": (after[1] - before[1]) / steps,
        "WAL bytes/step": (after[2] - before[2]) / steps,
        "worker CPU ms/step": cpu * 1000 / steps,
    }


def w2(database: Database, how: str, *, n: int, threads: int) -> Row:
    """Parks `n` runs; then 200 paced resumes for the latency, and 800 (or what is left) in one burst."""
    from approvals.models import Entry, Run, Wait

    kind = "signal" if how == "signal" else "approval"
    rate, _ = ref(database.url)
    empty = database.size()
    answer = _Answers(how, n)
    with worker(threads):
        until(lambda: Wait.objects.filter(kind=kind, status="open").count() == n)
        parked = database.size() - empty
        paced = answer.ids[: min(200, n // 5)]
        sent = {}
        for run_id in paced:
            sent[run_id] = answer(run_id)
            time.sleep(0.04)
        until(lambda: Run.objects.filter(pk__in=paced, status="completed").count() == len(paced))
        latencies = sorted((_began(run_id) - at) / 1e6 for run_id, at in sent.items())
        burst = answer.ids[len(paced) : len(paced) + 800]
        begun = time.monotonic()
        for run_id in burst:
            answer(run_id)
        until(lambda: Run.objects.filter(pk__in=burst, status="completed").count() == len(burst))
        seconds = time.monotonic() - begun
    return {
        "ref": rate,
        "resumes/s": len(burst) / seconds,
        "resumes/s ÷ ref": len(burst) / seconds / rate,
        "latency p50 ms": latencies[len(latencies) // 2],
        "latency p95 ms": latencies[int(len(latencies) * 0.95)],
        "latency p99 ms": latencies[int(len(latencies) * 0.99)],
        "bytes/parked run": parked / n,
        "turns lost": Entry.objects.filter(kind="run.lose_lease").count(),
    }


class _Answers:
    """Starts the runs of W2, and answers them: by a signal, or by a real decision with policy and digest."""

    def __init__(self, how: str, n: int) -> None:
        from approvals.services import runs

        self.how = how
        self.ids = [runs.start_json(f"bench-w2-{how}", i).id for i in range(n)]
        self.reviewer: Any = None

    def __call__(self, run_id: Any) -> int:
        """When the answer was committed, in nanoseconds since the epoch."""
        from approvals.models import Approval
        from approvals.services import decisions, runs

        if self.how == "signal":
            runs.signal(run_id, "go", {})
            return time.time_ns()
        self.reviewer = self.reviewer or reviewer()
        approval = Approval.objects.only("wait_id", "digest").get(wait__run=run_id)
        decisions.decide(approval.wait_id, actor=self.reviewer, outcome="approved", digest=approval.digest)
        return time.time_ns()


def reviewer() -> Any:
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission

    reviewer = get_user_model()._default_manager.create(username="bench-reviewer")
    reviewer.user_permissions.add(
        Permission.objects.get(content_type__app_label="approvals", codename="review")
    )
    return reviewer


def _began(run_id: Any) -> int:
    from approvals.models import Entry

    entry = Entry.objects.get(run=run_id, kind="step.complete", name="after")
    return int(json.loads(entry.data))


def settled(database: Database) -> tuple[int, int, int]:
    """Backends report as they end; ask until nothing changes any more."""
    from django.db import connection

    connection.close()
    found = database.counters()
    for _ in range(20):
        time.sleep(0.1)
        again = database.counters()
        if again == found:
            break
        found = again
    return found


def _cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """User and system time of a running process (Linux)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(rows: Sequence[Row]) -> str:
    """Median, minimum and maximum of each column."""
    lines = []
    for column in rows[0]:
        found = [row[column] for row in rows]
        low, middle, high = min(found), statistics.median(found), max(found)
        lines.append(f"  {column:<22} {_short(middle):>10}   {_short(low)} – {_short(high)}")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
