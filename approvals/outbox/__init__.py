"""Rows to be worked off after a commit, and losable hints that something became runnable.

Nothing else talks to RQ or to a channel layer. A lost hint costs one sweeper period, never a run.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from approvals import clock
from approvals.models import Outbox, statements
from approvals.outbox.pages import LISTS, RUNS, changed, group, run_topic, serve_pages

if TYPE_CHECKING:
    from rq import Queue

__all__ = [
    "LISTS",
    "RUNS",
    "ask_for_housekeeping",
    "changed",
    "done",
    "group",
    "hint",
    "listen",
    "put",
    "run_topic",
    "serve_pages",
    "take",
    "wake_here",
    "work_off",
]

log = logging.getLogger(__name__)

CHANNEL = "approvals"
NOTIFY = f"pg_notify('{CHANNEL}', '')"
"""The same in SQL, for a statement that is sent anyhow."""
WAKE_KEY = "approvals:wake"
HOUSEKEEPING_KEY = "approvals:housekeeping"
WAKE_MILLISECONDS = 100
"""At most one wake job in this time; a worker that was woken looks again after it, so no hint in it is lost."""
_HINT_SECONDS = 0.25
_BACKLOG = 100
_LONGEST_PAUSE_SECONDS = 3600.0
_listeners: weakref.WeakSet[threading.Event] = weakref.WeakSet()
_redis_away_until = 0.0


def listen(event: threading.Event) -> None:
    """Sets `event` at every hint given in this process, for as long as the event lives."""
    _listeners.add(event)


def wake_here() -> None:
    """Wakes the workers of this process; RQ's job and LISTEN end here."""
    for event in list(_listeners):
        event.set()


def hint(*, notify: bool = True) -> None:
    """Says, after the commit, that some run became runnable; without `notify`, a statement of the caller's does."""
    if notify and connection.vendor == "postgresql":
        statements.run("SELECT pg_notify(%s, '')", [CHANNEL])
    transaction.on_commit(_after_commit)


def _after_commit() -> None:
    wake_here()
    if getattr(settings, "RQ_QUEUES", None):
        _hint_by_rq()


def _hint_by_rq() -> None:
    """A few wake jobs a second, however many hints."""
    _enqueue("approvals.jobs.wake", WAKE_KEY, WAKE_MILLISECONDS)


def ask_for_housekeeping(every: timedelta) -> None:
    """One job in this time, whoever asks and however often; none while Redis is away."""
    _enqueue("approvals.jobs.housekeeping", HOUSEKEEPING_KEY, int(every.total_seconds() * 1000))


def _enqueue(job: str, key: str, milliseconds: int) -> None:
    """At most one such job in this time; a Redis that is away is left alone for a while."""
    global _redis_away_until  # noqa: PLW0603
    if time.monotonic() < _redis_away_until:
        return
    try:
        queue = _queue()
        # Behind a backlog (nobody works it off, or other jobs do the waking) a hint is worth nothing.
        if queue.connection.set(key, "1", nx=True, px=milliseconds) and queue.count < _BACKLOG:
            queue.enqueue(job, result_ttl=0, failure_ttl=0)
    except Exception as error:  # any failure of a hint is harmless: the sweeper finds the run
        _redis_away_until = time.monotonic() + 5
        log.warning("hint by RQ failed, workers fall back on polling: %s", error)


@cache
def _queue() -> Queue:
    """One client for all hints; a Redis that hangs may hold up nobody for longer than a moment."""
    import django_rq
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    queue = django_rq.get_queue("default")
    queue.connection.connection_pool.connection_kwargs.update(
        socket_connect_timeout=_HINT_SECONDS, socket_timeout=_HINT_SECONDS, retry=Retry(NoBackoff(), 0)
    )
    return queue


def put(kind: Outbox.Kind, subject: UUID, **data: Any) -> None:
    """Adds a row in the current transaction; a look-up that is waiting already is not asked for twice."""
    now = clock.now()
    row = Outbox(kind=kind, subject=subject, data=json.dumps(data), due_at=now, created_at=now)
    Outbox.objects.bulk_create([row], ignore_conflicts=True)
    hint()


def take(kinds: Sequence[str], limit: int, hold: timedelta = timedelta(seconds=30)) -> list[Outbox]:
    """Due rows of these kinds, held back from others for `hold`; see `work_off`."""
    now = clock.now()
    if not Outbox.objects.filter(kind__in=kinds, due_at__lte=now).exists():
        return []
    due = (
        "SELECT id FROM approvals_outbox WHERE due_at <= %s "
        f"AND kind IN ({', '.join(['%s'] * len(kinds))}) ORDER BY due_at LIMIT %s"
    )
    if connection.vendor == "postgresql":
        due += " FOR UPDATE SKIP LOCKED"
    sql = (
        f"WITH chosen AS MATERIALIZED ({due}) UPDATE approvals_outbox SET due_at = %s, attempts = attempts + 1 "
        "WHERE id IN (SELECT id FROM chosen) RETURNING *"
    )
    field = Outbox._meta.get_field("due_at")
    at, held_until = (field.get_db_prep_save(t, connection) for t in (now, now + hold))
    with transaction.atomic():
        return list(Outbox.objects.raw(sql, [at, *kinds, limit, held_until]))


def work_off(rows: Iterable[Outbox], handlers: Mapping[str, Callable[[Outbox], None]]) -> None:
    """Each handler removes its row with `done`; a row whose handler raises is tried again, less and less often."""
    for row in rows:
        try:
            handlers[row.kind](row)
        except Exception:
            log.exception("outbox row %s (%s) failed; it is tried again later", row.pk, row.kind)
            pause = timedelta(seconds=min(2.0 ** min(row.attempts, 20), _LONGEST_PAUSE_SECONDS))
            mine = Outbox.objects.filter(pk=row.pk, attempts=row.attempts)
            mine.update(due_at=clock.now() + pause)


def done(row: Outbox) -> None:
    """Removes a row that was worked off (in the transaction that did it, where there is one)."""
    Outbox.objects.filter(pk=row.pk).delete()
