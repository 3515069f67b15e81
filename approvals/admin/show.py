"""How values look: short, bounded, escaped, secrets as dots. Asks nothing of the database."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.models import Run
from approvals.queries.wording import TONES, absolute, relative, short
from approvals.workflows.values import mask

NOTHING = "–"
LONG_CHARS = 20_000
"""Of one value on a page of its own."""
SHORT_CHARS = 2_000
"""Of one value among many."""
CELL_CHARS = 120
WORD_CHARS = 20
"""Up to here a code stays on one line."""
_WORD = SafeString(' class="ap-word"')

RISKS = ("low", "medium", "high")


def badge(text: str, tone: str = "") -> SafeString:
    """A word as a label; known statuses bring their own tone."""
    if not text:
        return SafeString(NOTHING)
    return format_html(
        '<span class="ap-badge {}">{}</span>', tone or TONES.get(text, ""), text.replace("_", " ")
    )


def moment(at: datetime | None, now: datetime | None = None) -> SafeString:
    """An instant with its zone; with `now`, also how far away it is."""
    if at is None:
        return SafeString(NOTHING)
    shown = absolute(at)
    stamp = format_html('<time datetime="{}">{}</time>', at.isoformat(), shown)
    if now is None:
        return stamp
    away = '{} <span class="quiet ap-away" title="{}">{}</span>'  # lists have room for this alone
    return format_html(away, stamp, shown, relative(at, now))


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


def code(text: str | None, limit: int = CELL_CHARS) -> SafeString:
    """Text as it is stored, cut with a sign where it is long."""
    if not text:
        return SafeString(NOTHING)
    cut = text if len(text) <= limit else f"{text[:limit]}…"
    return format_html("<code{}>{}</code>", _WORD if len(text) <= WORD_CHARS else "", cut)


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
