"""How values look: short, bounded, escaped, secrets as dots. Asks nothing of the database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from approvals.models import Run
from approvals.workflows.values import mask

NOTHING = "–"
LONG_CHARS = 20_000
"""Of one value on a page of its own."""
SHORT_CHARS = 2_000
"""Of one value among many."""
CELL_CHARS = 120

RISKS = ("low", "medium", "high")

TONES: Mapping[str, str] = {
    **dict.fromkeys(("completed", "verified", "committed", "approved", "alive", "consumed"), "good"),
    **dict.fromkeys(("suspended", "paused", "open", "intended", "dispatched", "medium", "buffered"), "warn"),
    **dict.fromkeys(("pending", "running"), "busy"),
    **dict.fromkeys(
        ("failed", "in_doubt", "contradicted", "rejected", "expired", "refused", "gone", "high", "late"),
        "bad",
    ),
}


def badge(text: str, tone: str = "") -> SafeString:
    """A word as a label; known statuses bring their own tone."""
    if not text:
        return SafeString(NOTHING)
    return format_html(
        '<span class="ap-badge {}">{}</span>', tone or TONES.get(text, ""), text.replace("_", " ")
    )


def age(delta: timedelta) -> str:
    """A duration in its largest unit or two: 42 s, 12 min, 3 h, 2 days."""
    seconds = max(int(delta.total_seconds()), 0)
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 90 * 60:
        return f"{seconds // 60} min"
    if seconds < 36 * 3600:
        return f"{seconds // 3600} h"
    return f"{seconds // 86400} days"


def moment(at: datetime | None, now: datetime | None = None) -> SafeString:
    """An instant with its zone; with `now`, also how far away it is."""
    if at is None:
        return SafeString(NOTHING)
    local = localtime(at)
    shown = f"{local.day} {local:%b %Y, %H:%M:%S %Z}"
    stamp = format_html('<time datetime="{}">{}</time>', at.isoformat(), shown)
    if now is None:
        return stamp
    away = f"{age(now - at)} ago" if at <= now else f"in {age(at - now)}"
    return format_html('{} <span class="quiet ap-away">{}</span>', stamp, away)


def address(row: Model | type[Model], pk: Any = None) -> str:
    """Where a row's page is."""
    found = row.pk if pk is None else pk
    return reverse(f"admin:approvals_{row._meta.model_name}_change", args=[found])


def link(row: Model | type[Model] | None, text: str = "", *, pk: Any = None) -> SafeString:
    """A link to a row's page."""
    if row is None:
        return SafeString(NOTHING)
    return format_html('<a href="{}">{}</a>', address(row, pk), text or str(row))


def run_link(run_id: Any, workflow: str = "") -> SafeString:
    """A link to a run: its workflow, and its id in short."""
    return link(Run, f"{workflow} {short(run_id)}".strip(), pk=run_id)


def as_id(typed: str) -> UUID | None:
    """What was typed as an id, or None."""
    try:
        return UUID(typed.strip())
    except ValueError:
        return None


def short(identity: Any) -> str:
    """An id that people can tell apart: its end, which differs even within one millisecond."""
    return f"…{str(identity)[-8:]}"


def code(text: str | None, limit: int = CELL_CHARS) -> SafeString:
    """Text as it is stored, cut with a sign where it is long."""
    if not text:
        return SafeString(NOTHING)
    cut = text if len(text) <= limit else f"{text[:limit]}…"
    return format_html("<code>{}</code>", cut)


def text(value: str | None) -> SafeString | str:
    """Prose, or a dash."""
    return bounded(value, SHORT_CHARS)[0] if value else SafeString(NOTHING)


def bounded(value: str, limit: int) -> tuple[str, str]:
    """(what is shown, a note about what is not)."""
    if len(value) <= limit:
        return value, ""
    return f"{value[:limit]}…", f"{len(value) - limit:,} more characters are not shown here."


def block(value: str, limit: int = LONG_CHARS) -> SafeString:
    """A text of several lines, bounded with a note."""
    shown, note = bounded(value, limit)
    more = format_html('<p class="help">{}</p>', note) if note else ""
    return format_html('<pre class="ap-value" tabindex="0">{}</pre>{}', shown, more)


def pretty(stored: str | None, *, unfold: bool = False) -> str:
    """Stored JSON with line breaks, secrets as dots; `unfold` also opens JSON texts within it."""
    if not stored:
        return ""
    return json.dumps(read(stored, unfold=unfold), indent=2, ensure_ascii=False)


def read(stored: str, *, unfold: bool = False) -> Any:
    """Stored JSON as a masked object; what is no JSON is shown as it is."""
    try:
        value = json.loads(stored)
    except ValueError:
        return stored
    found = _unfolded(value) if unfold else value
    return found if isinstance(found, str) else mask(found)


def json_block(stored: str | None, limit: int = LONG_CHARS, *, unfold: bool = False) -> SafeString:
    """Stored JSON, ready for reading."""
    found = pretty(stored, unfold=unfold)
    return block(found, limit) if found else SafeString(NOTHING)


def glance(stored: str) -> str:
    """The first words of stored JSON, on one line."""
    value = read(stored, unfold=True)
    if isinstance(value, dict):
        told = ", ".join(f"{key}: {_flat(item)}" for key, item in value.items() if item not in ("", None))
    else:
        told = _flat(value)
    return bounded(told, CELL_CHARS)[0]


def folded(stored: str) -> SafeString | str:
    """Stored JSON that opens on a click: one line among many."""
    line = glance(stored)
    whole = pretty(stored, unfold=True)
    if not line or whole.count("\n") < 2:
        return code(line)
    return format_html(
        "<details><summary><code>{}</code></summary>{}</details>", line, block(whole, SHORT_CHARS)
    )


def _flat(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _unfolded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unfolded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unfolded(item) for item in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return _unfolded(json.loads(value))
        except ValueError:
            return value
    return value
