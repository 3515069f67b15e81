"""What is configured, what is reachable, what is unsafe."""

from __future__ import annotations

import os
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

from django.conf import settings
from django.db import Error as AnyDatabaseError
from django.db import connection

from approvals import queries
from approvals.limits import limits
from approvals.management.output import FAILED, MANAGE, Answer
from approvals.management.output import Command as AnsweringCommand
from approvals.management.text import fields, table
from approvals.models import Clock
from approvals.workflows import registry

WEAK_KEYS = ("insecure-", "django-insecure-")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at; `next` says what to do unless it is in order."""

    name: str
    level: Literal["ok", "unsafe", "broken"]
    found: str
    next: str = ""


class Command(AnsweringCommand):
    """`manage.py doctor`."""

    name = "doctor"
    help = (
        "Says what is configured, what is reachable and what is unsafe. Exit 1 if something is broken; what is only "
        "unsafe exits 0 (with --json, `level` tells them apart)."
    )

    def answer(self, options: Namespace) -> Answer:
        configured = _configured()
        checks = [check for look in (_database, _redis, _data_dir, _safety) for check in look()]
        is_ok = all(check.level != "broken" for check in checks)
        told = {"ok": is_ok, "configured": configured, "checks": [asdict(check) for check in checks]}
        return Answer(told, _lines(configured, checks), code=0 if is_ok else FAILED)


def _configured() -> dict[str, Any]:
    database = connection.settings_dict
    return {
        "database": connection.vendor,
        "database_name": str(database["NAME"]),
        "database_host": str(database["HOST"] or ""),
        "redis": _without_password(getattr(settings, "REDIS_URL", "")) or "none: workers poll",
        "data_dir": str(settings.DATA_DIR),
        "worker_threads": getattr(settings, "APPROVALS_WORKER_THREADS", None),
        "lease_seconds": getattr(settings, "APPROVALS_LEASE_SECONDS", None),
        "limits": asdict(limits()),
        "workflows": [f"{w.name} v{w.version}" for w in registry.all_current()],
    }


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}" if url else ""


def _database() -> Iterator[Check]:
    try:
        connection.ensure_connection()
    except AnyDatabaseError as error:
        yield Check("database", "broken", _first_line(error), "start it, or mend DATABASE_URL")
        return
    yield Check(
        "database", "ok", f"{connection.vendor} {'.'.join(map(str, connection.get_database_version()))}"
    )
    if pending := queries.pending_migrations():
        yield Check("migrations", "broken", f"{len(pending)} to apply: {pending[0]} …", f"{MANAGE} migrate")
        return
    yield Check("migrations", "ok", "all applied")
    yield from (_workers(), _clock())


def _workers() -> Check:
    workers = queries.workers()
    if not workers:
        return Check("workers", "unsafe", "none lives, so no run moves", f"{MANAGE} worker")
    return Check("workers", "ok", ", ".join(w["name"] for w in workers))


def _clock() -> Check:
    shift = Clock.objects.values_list("shift", flat=True).first() or timedelta()
    if shift:
        next_ = "only tests move it: empty the table approvals_clock"
        return Check("clock", "unsafe", f"database time is moved by {shift}", next_)
    return Check("clock", "ok", "the database's own")


def _redis() -> Iterator[Check]:
    if not getattr(settings, "RQ_QUEUES", None):
        return
    import django_rq
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        redis = django_rq.get_connection("default")
        redis.connection_pool.connection_kwargs.update(socket_timeout=2, retry=Retry(NoBackoff(), 0))
        redis.ping()
    except Exception as error:
        yield Check(
            "redis", "broken", _first_line(error), "start it, or mend REDIS_URL; runs move without it"
        )
    else:
        yield Check("redis", "ok", "answers")


def _data_dir() -> Iterator[Check]:
    folder = settings.DATA_DIR
    if not folder.exists():
        above = next(parent for parent in folder.parents if parent.exists())
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            yield Check("data directory", "ok", f"{folder} does not exist yet; its first use makes it")
            return
    try:
        with tempfile.TemporaryFile(dir=settings.DATA_DIR):
            yield Check("data directory", "ok", f"{settings.DATA_DIR} can be written")
    except OSError as error:
        yield Check("data directory", "broken", _first_line(error), "make it writable, or set DATA_DIR")


def _safety() -> Iterator[Check]:
    looked: list[tuple[str, Callable[[], bool], str, str]] = [
        ("DEBUG", lambda: settings.DEBUG, "on: errors show everything", "unset DEBUG"),
        (
            "SECRET_KEY",
            lambda: _is_weak(settings.SECRET_KEY),
            "a default, or under 50 characters, or of few different ones: a log-in can be forged",
            "set it to a long random text: openssl rand -base64 48",
        ),
        (
            "faults",
            lambda: bool(os.environ.get("APPROVALS_ALLOW_FAULTS") or os.environ.get("APPROVALS_FAULT")),
            "allowed: a worker may kill itself",
            "unset APPROVALS_ALLOW_FAULTS and APPROVALS_FAULT",
        ),
    ]
    for name, is_unsafe, found, next_ in looked:
        yield Check(name, "unsafe", found, next_) if is_unsafe() else Check(name, "ok", "safe")


def _is_weak(key: str) -> bool:
    return key.startswith(WEAK_KEYS) or len(key) < 50 or len(set(key)) < 5


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _lines(configured: dict[str, Any], checks: list[Check]) -> Iterator[str]:
    yield "Configured"
    shown = {k: ", ".join(v) if isinstance(v, list) else v for k, v in configured.items() if k != "limits"}
    yield from fields((name.replace("_", " "), value) for name, value in shown.items())
    yield ""
    yield from table(
        ("check", "", "found", "what to do"), [(c.name, c.level, c.found, c.next) for c in checks]
    )
    broken, unsafe = (sum(c.level == level for c in checks) for level in ("broken", "unsafe"))
    yield f"\n{broken} broken, {unsafe} unsafe."
