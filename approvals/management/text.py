"""Words and numbers for a person at a terminal. What others wrote can neither move the cursor nor hide itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_ONE_LINE = 100


def clean(value: Any) -> str:
    """One line; what cannot be seen is shown by its number."""
    text = value if isinstance(value, str) else str(value)
    return "".join(c if c.isprintable() else _visible(c) for c in text)


def _visible(character: str) -> str:
    return " " if character in "\n\r\t" else character.encode("unicode_escape").decode()


def when(moment: str | None, now: datetime) -> str:
    """How long ago or ahead, and the moment itself in the zone of this installation."""
    if moment is None:
        return ""
    at = datetime.fromisoformat(moment)
    seconds = (at - now).total_seconds()
    told = f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"
    return f"{told} ({timezone.localtime(at):%Y-%m-%d %H:%M:%S %Z})"


def span(seconds: float) -> str:
    """A length of time in its two largest units."""
    left = int(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(part for i, part in enumerate(parts) if i == 0 or not part.startswith("0 "))


def shown(value: Any) -> str:
    """A JSON value as text, on one line where it fits."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _ONE_LINE else json.dumps(value, ensure_ascii=False, indent=2)


def block(text: str, indent: str = "  ") -> Iterator[str]:
    """Text of several lines, each cleaned and indented."""
    for line in text.splitlines():
        yield f"{indent}{clean(line)}".rstrip()


def fields(pairs: Iterable[tuple[str, Any]], indent: str = "  ") -> Iterator[str]:
    """Names and values, aligned; what is empty is left out, and a long value gets lines of its own."""
    rows = [(name, str(value)) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        first, *others = value.splitlines() or [""]
        yield f"{indent}{name:<{width}}  {clean(first)}"
        yield from (f"{indent}{'':<{width}}  {clean(line)}" for line in others)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Columns, aligned."""
    cells = [list(headings), *([clean("" if cell is None else cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings))]
    for row in cells:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
