"""Time is the database's clock, read after the lock (ARCHITECTURE idea 12).

Tests move it for every process by the one row of `approvals_clock`; nothing else may ask for "now".
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import DateTimeField, Func

# Milliseconds are all that SQLite's clock gives; a text that sorts like Django's own is what counts.
_SQLITE_NOW = (
    "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', "
    "(SELECT printf('%%+.3f seconds', coalesce(sum(shift), 0) / 1000000.0) FROM approvals_clock))"
)
# What approvals_now() does: PostgreSQL calls such a function as one, at the price of a statement of its own.
_POSTGRESQL_NOW = (
    "(clock_timestamp() + coalesce((SELECT shift FROM approvals_clock WHERE id = 1), interval '0'))"
)


class Now(Func):
    """The database's clock as an expression, at the moment the statement reads it."""

    output_field = DateTimeField()
    template = "approvals_now()"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, tuple[()]]:
        return _SQLITE_NOW, ()


def sql() -> str:
    """The same expression for raw SQL on the current connection (use with parameters: % is doubled)."""
    return _POSTGRESQL_NOW if connection.vendor == "postgresql" else _SQLITE_NOW


def now() -> datetime:
    """The database's time now, aware, in UTC. One query."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql()}", [])
        value = cursor.fetchone()[0]
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return value.astimezone(UTC)  # type: ignore[no-any-return]


def new_id() -> UUID:
    """A UUID of version 7: new rows land beside each other in the index. Its time is no one's truth."""
    millis = time.time_ns() // 1_000_000
    value = (millis << 80) | int.from_bytes(os.urandom(10))
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return UUID(int=value)
