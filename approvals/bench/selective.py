"""What it costs to commit only where something leaves the process, beside committing every step (ARCHITECTURE 6)."""

from __future__ import annotations

from typing import Any

from django.db.models import Max, Min

from approvals.bench.driver import Row, reviewer, settled, until, worker
from approvals.bench.machine import Database, ref


def played(database: Database, how: str, *, n: int, threads: int) -> Row:
    """`n` runs of the twenty-turn agent (`how`: selective or full): up to their approvals, and from there to the end.

    Counted is what a worker does from its start to its end; starting and deciding happen while there is none.
    """
    from approvals.models import Approval, Entry, Run, Wait
    from approvals.services import decisions, runs

    rate, _ = ref(database.url)
    for i in range(n):
        runs.start_json(f"bench-{how}", i)
    asked = Wait.objects.filter(kind="approval")
    first = _worked(database, threads, lambda: asked.filter(status="open").count() == n)
    who: Any = reviewer()
    for wait, digest in Approval.objects.values_list("wait_id", "digest"):
        decisions.decide(wait, actor=who, outcome="approved", digest=digest)
    second = _worked(database, threads, lambda: not Run.objects.exclude(status="completed").exists())
    claims = Entry.objects.filter(kind="run.claim")
    woken = asked.aggregate(at=Max("closed_at"))["at"]
    parts = (
        (claims.aggregate(at=Min("at")), asked.aggregate(at=Max("opened_at"))),
        (claims.filter(at__gt=woken).aggregate(at=Min("at")), Run.objects.aggregate(at=Max("finished_at"))),
    )
    seconds = sum((ended["at"] - began["at"]).total_seconds() for began, ended in parts)
    commits, transactions, rows, wal = (a + b for a, b in zip(first, second, strict=True))
    return {
        "ref": rate,
        "commits/run": commits / n,
        "transactions/run": transactions / n,
        "rows/run": rows / n,
        "WAL bytes/run": wal / n,
        "ms/run": seconds * 1000 / n,
        "runs/s ÷ ref": n / seconds / rate,
    }


def _worked(database: Database, threads: int, is_over: Any) -> tuple[int, int, int, int]:
    """(commits that wrote, all transactions, rows written, WAL bytes) of one worker until something is so."""
    settled(database)
    before = (database.commits(), *database.counters())
    with worker(threads):
        until(is_over)
    settled(database)
    after = (database.commits(), *database.counters())
    a, b, c, d = (y - x for x, y in zip(before, after, strict=True))
    return a, b, c, d
