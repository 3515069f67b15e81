"""A worker's one lease, and who is dead.

By database time the lease runs out after LEASE_SECONDS. Quicker, where it can tell: on PostgreSQL a
session lock on a connection of its own; embedded, a lock on a file. Fences, not leases, keep a worker
that was only slow from writing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import FileIO
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID
from weakref import WeakSet

from django.conf import settings
from django.db import connection, connections

from approvals import clock
from approvals.models import Worker

log = logging.getLogger(__name__)

_NAMESPACE = 0x41505256  # the first half of our advisory lock keys
_SWEEPER = 0
_PATIENCE_SECONDS = 0.8
"""Longer than a heartbeat, so that a worker that lost its session says so first."""
_SETTLED_SECONDS = 3.0
"""In this time after the database came back, every worker that lives has taken its lock anew."""


def lease_seconds() -> float:
    """How long a worker is believed to live without a sign."""
    return float(getattr(settings, "APPROVALS_LEASE_SECONDS", 15))


def _lock_file(worker_id: UUID | str) -> Path:
    folder = Path(settings.DATA_DIR) / "workers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{worker_id}.lock"


def _try_lock_file(path: Path) -> FileIO | None:
    """The locked file; None if another process, or another place in this one, holds it."""
    handle = path.open("ab", buffering=0)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        return None
    _locked.add(handle)
    return handle


def _let_go_in_a_copy() -> None:
    """A forked copy would keep the locks of a process that is gone, and even those that it gave back."""
    for handle in list(_locked):
        handle.close()


_locked: WeakSet[FileIO] = WeakSet()
os.register_at_fork(after_in_child=_let_go_in_a_copy)


def _own_connection() -> Any:
    """A connection outside Django's own, used by one thread after another."""
    made = connections.create_connection("default")
    made.inc_thread_sharing()
    return made


class Lease:
    """This worker's row and lock. `renew` in time, or the runs go to others."""

    def __init__(
        self, *, name: str = "", queue: str = "default", known: Sequence[tuple[str, int]] = ()
    ) -> None:
        now = clock.now()
        self.worker = Worker(
            name=name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}",
            queue=queue,
            started_at=now,
            lease_until=now + timedelta(seconds=lease_seconds()),
            versions=json.dumps(list(known)),
        )
        self._file: FileIO | None = None
        self._session: Any = None
        self._has_session = connection.vendor == "postgresql"
        if self._has_session:
            self._lock_session()
        else:
            self._file = _try_lock_file(_lock_file(self.worker.pk))
        self.worker.save(force_insert=True)

    def _lock_session(self) -> None:
        """Held by a connection of its own for as long as the process lives; its row, if it is there, says so."""
        session, key = _own_connection(), secrets.randbelow(2**31 - 1) + 1
        with session.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_lock(%s, %s), pg_backend_pid(), clock_timestamp()", [_NAMESPACE, key]
            )
            _, pid, at = cursor.fetchone()
            cursor.execute(
                "UPDATE approvals_worker SET lock_key = %s, backend_pid = %s, locked_at = %s WHERE id = %s",
                [key, pid, at, self.worker.pk],
            )
        self._session = session
        self.worker.lock_key, self.worker.backend_pid, self.worker.locked_at = key, pid, at

    def renew(self) -> bool:
        """Another lease period; False if others have given this worker up: it must hold nothing any more."""
        until = clock.now() + timedelta(seconds=lease_seconds())
        return bool(Worker.objects.filter(pk=self.worker.pk, stopped_at=None).update(lease_until=until))

    def keep_session(self) -> None:
        """Called more often than others have patience: a lock whose connection was lost is taken anew.

        A connection that a pooler shares can tell nothing: then the lease alone counts.
        """
        if not self._has_session:
            return
        if self._session is not None and (same := self._is_same_session()) is not None:
            if same:
                return
            log.warning("worker %s has no session of its own: others go by its lease", self.worker.name)
            Worker.objects.filter(pk=self.worker.pk).update(lock_key=None, backend_pid=None, locked_at=None)
            self.drop_locks()
            return
        self._lock_session()

    def _is_same_session(self) -> bool | None:
        """Whether the backend behind the lock is the one that took it; None if the connection was lost."""
        try:
            with self._session.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                return bool(cursor.fetchone()[0] == self.worker.backend_pid)
        except Exception as error:
            log.warning("worker %s lost its session lock, taking it anew: %s", self.worker.name, error)
            self._session.close()
            self._session = None
            return None

    def drop_locks(self) -> None:
        """What the operating system does when the process dies; the row stays."""
        self._has_session = False
        if self._session is not None:
            self._session.close()
        if self._file is not None:
            self._file.close()

    def die(self) -> None:
        """As SIGKILL would, for tests: returns when others can see that the locks are gone."""
        self.drop_locks()
        ends = time.monotonic() + 2
        while self._session is not None and time.monotonic() < ends:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [self.worker.backend_pid])
                if cursor.fetchone() is None:
                    return
            time.sleep(0.002)

    def release(self) -> None:
        """The worker ends by itself, holding nothing."""
        Worker.objects.filter(pk=self.worker.pk).update(stopped_at=clock.now())
        self.drop_locks()
        if self._file is not None:
            _lock_file(self.worker.pk).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Dead:
    """A worker that is gone, why that is known, and how long ago it gave its last sign."""

    id: UUID
    name: str
    why: str
    silent_seconds: float
    seen: tuple[datetime, int | None]
    """Its lease and its lock as it was judged by them."""


# After the database itself was away, every worker has a whole period to renew before its lease counts as over.
_DEAD = """
WITH judged AS (
  SELECT w.*, w.stopped_at IS NOT NULL OR (
    w.lease_until <= approvals_now()
    AND approvals_now() > pg_postmaster_start_time() + make_interval(secs => %s)) AS over
  FROM approvals_worker w
  WHERE w.stopped_at IS NULL OR w.id IN (SELECT worker_id FROM approvals_run WHERE status = 'running'))
SELECT j.id, j.name, j.over, extract(epoch FROM approvals_now() - j.lease_until), j.lease_until, j.lock_key
FROM judged j
WHERE j.over OR (
    j.lock_key IS NOT NULL AND j.locked_at > pg_postmaster_start_time()
    AND NOT EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = %s
        AND l.objid::bigint = j.lock_key AND l.objsubid = 2
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
    AND NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.pid = j.backend_pid AND a.backend_start <= j.locked_at))
"""


_gone_since: dict[tuple[UUID, int | None], float] = {}
"""Since when this process has seen a worker's lock gone; one that was taken anew is another lock."""


def dead(patience_seconds: float = 0) -> list[Dead]:
    """The workers whose runs are free.

    A session lock may be lost though its worker lives, which then takes it anew: with `patience_seconds`, one
    is believed gone only when it has been for so long.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_DEAD, [lease_seconds(), _NAMESPACE])
            rows = cursor.fetchall()
        looked = time.monotonic()
        gone = {(i, key) for i, _, over, _, _, key in rows if not over}
        for lock in _gone_since.keys() - gone:
            _gone_since.pop(lock, None)
        return [
            Dead(i, name, _why(over), lease_seconds() + float(late), (until, key))
            for i, name, over, late, until, key in rows
            if over or looked - _gone_since.setdefault((i, key), looked) >= patience_seconds
        ]
    now = clock.now()
    found = []
    for worker in Worker.objects.filter(stopped_at=None).only("id", "name", "lease_until"):
        over = worker.lease_until <= now
        if over or _is_unlocked(worker.pk):
            found.append(_dead(worker, now, _why(over)))
    held_by_stopped = Worker.objects.filter(stopped_at__isnull=False, pk__in=_holders())
    return found + [_dead(worker, now, _why(True)) for worker in held_by_stopped]


def _dead(worker: Worker, now: datetime, why: str) -> Dead:
    silent = lease_seconds() + (now - worker.lease_until).total_seconds()
    return Dead(worker.pk, worker.name, why, silent, (worker.lease_until, None))


def _holders() -> Any:
    from approvals.models import Run

    return Run.objects.filter(status="running").values("worker")


def _is_unlocked(worker_id: UUID) -> bool:
    path = _lock_file(worker_id)
    if not path.exists():
        return False
    handle = _try_lock_file(path)
    if handle is None:
        return False
    handle.close()
    return True


def _why(over: bool) -> str:
    return "its lease ran out" if over else "its process is gone"


def has_spoken(dead: Dead) -> bool:
    """Whether it has renewed its lease, or taken its lock anew, since it was judged: then it lives.

    What held up its heartbeat (a database that was away, somebody's long transaction) held up its judge too, and ends
    for both at the same moment.
    """
    now = Worker.objects.filter(pk=dead.id, stopped_at=None).values_list("lease_until", "lock_key").first()
    return now is not None and now != dead.seen


def bury(dead: Dead) -> None:
    """After its runs were taken: it is not looked at again, and can renew nothing."""
    if has_spoken(dead):
        return
    Worker.objects.filter(pk=dead.id, stopped_at=None).update(stopped_at=clock.Now())
    if connection.vendor != "postgresql":
        _lock_file(dead.id).unlink(missing_ok=True)


def is_anyone_suspected() -> bool:
    """Whether a lock was gone at the last look, though not for long enough to believe it."""
    return bool(_gone_since)


class SweeperLock:
    """One sweeper at a time. Losing it early does no harm: every sweep locks what it moves, and looks again."""

    def __init__(self) -> None:
        self._session: Any = None
        self._since = 0.0
        self._file: FileIO | None = None

    @property
    def patience_seconds(self) -> float:
        """How long a worker's lock must have been gone before whoever holds this one may believe it.

        What cut all workers off (a restart, a crash of a backend, which does not count as one, a failover) cut
        this session too. So one that is new can tell nothing yet, and one that has lasted has seen no such thing.
        """
        if self._session is None or time.monotonic() - self._since >= _SETTLED_SECONDS:
            return _PATIENCE_SECONDS
        return inf

    def __enter__(self) -> bool:
        if connection.vendor != "postgresql":
            self._file = _try_lock_file(_lock_file("sweeper"))
            return self._file is not None
        if self._session is None:
            self._session = _own_connection()
            self._since = time.monotonic()
            with self._session.cursor() as cursor:
                # A sweeper that is stopped in the middle must not keep all others from sweeping.
                cursor.execute("SET idle_session_timeout = '10s'")
        try:
            with self._session.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [_NAMESPACE, _SWEEPER])
                return bool(cursor.fetchone()[0])
        except Exception:
            self.close()
            return False

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._session is not None:
            try:
                with self._session.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_unlock_all()")
            except Exception:
                self.close()

    def close(self) -> None:
        """Ends its connection."""
        if self._session is not None:
            self._session.close()
            self._session = None
