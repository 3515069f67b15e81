"""A run's journal as a table. An entry has a composite key, so it has no window of its own."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, F, TextField, Value, When
from django.db.models.functions import Length

from approvals.admin import show
from approvals.admin.base import Section, Table
from approvals.models import Entry, Run

ENTRIES = 500


def section(run: Run) -> Section:
    """The last entries, oldest first; what is very long stays in the database."""
    rows: list[Any] = list(
        Entry.objects.filter(run=run)
        .defer("data")
        .annotate(
            size=Length("data"),
            told=Case(
                When(size__lte=show.LONG_CHARS, then=F("data")), default=Value(""), output_field=TextField()
            ),
        )
        .order_by("-seq")[:ENTRIES]
    )[::-1]
    left = run.seq - len(rows)
    note = f"The last {len(rows)} of {run.seq:,} entries; `manage.py runs show {run.pk}` prints all."
    return Section(
        "Journal",
        table=Table(
            ("Entry", "Position", "When", "What", "Name", "Data"),
            [_cells(row) for row in rows],
            "The journal is empty.",
            note if left > 0 else "",
        ),
    )


def _cells(row: Any) -> tuple[Any, ...]:
    data = show.folded(row.told) if row.told else f"{row.size:,} characters, too long to show here"
    position = show.NOTHING if row.position is None else row.position
    return row.seq, position, show.moment(row.at), show.code(row.kind), show.code(row.name), data
