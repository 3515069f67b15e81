"""Many rows, written at once, and how PostgreSQL reads among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connection

from approvals import clock
from approvals.models import Run, Wait

MANY = 5_000


def crowd(**columns: Any) -> list[Run]:
    """Many runs, written at once."""
    now = clock.now()
    common = {"workflow": "odd", "version": 1, "input": "1", "created_at": now, "seq": 1}
    made = [Run(**{**common, "seed": clock.new_id(), "ready_at": now, **columns}) for _ in range(MANY)]
    return Run.objects.bulk_create(made)


def waits_of(some: list[Run], **columns: Any) -> list[Wait]:
    """A wait of each of these."""
    now = clock.now()
    made = [Wait(run=r, position=1, name="w", opened_at=now, **columns) for r in some]
    return Wait.objects.bulk_create(made)


def plans(work: Callable[[], Any], table: str) -> list[str]:
    """How PostgreSQL runs each statement of `work` that reads this table, bound as the statement itself is."""
    seen: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with connection.execute_wrapper(note):
        work()
    found = []
    for sql, params in seen:
        if table in sql and sql.lstrip().startswith(("SELECT", "WITH")):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {sql}", params)
                found.append("\n".join(line for (line,) in cursor.fetchall()))
    assert found, [sql for sql, _ in seen]
    return found
