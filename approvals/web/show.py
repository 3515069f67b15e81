"""How values are shown: every character visible, every type named, and never less than was said.

What is to be decided may have been written to deceive: text that runs backwards or takes no space, a harmless
beginning, more fields than anybody reads. Odd characters are shown as marks. A page shows so much by itself
(`Sight`); if it had to shorten anything, it knows, and offers no approval until all of it was shown. CASES 43.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Any

from django.utils.safestring import SafeString, mark_safe

from approvals.queries import trees

TEXT_CHARS = 4_000
"""Of one text that is shown unasked."""
PAGE_CHARS = 60_000
"""Of all texts that one page shows unasked."""
PAGE_ROWS = 300
"""Fields and items that one page shows unasked."""
WHOLE_ROWS = 2_000
"""Beyond these a value is shown as JSON, also to those who asked for all of it."""
DEPTH = 8
MARKS = 2_000
"""Of one text; one with more odd characters is written with escapes instead."""
BLANKS = 40
"""In a row; so many may push what follows out of sight."""
_MARK_CHARS = 30

# What takes no space, turns text round, or looks like a space and is none: general categories Cc, Cf, Co, Cs,
# Zl, Zp and Zs, save for those that have a shape of their own; and fillers and selectors of other categories.
_ODD = (
    "\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ud800-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\U000f0000-\U0010ffff"
)
_COMBINING = "\u0300-\u034e\u0350-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_MARKED = re.compile(
    rf"(?P<odd>[{_ODD}])(?P=odd)*"
    rf"|(?P<stack>[{_COMBINING}]{{4,}})"
    rf"|(?P<blanks>[ \t]{{{BLANKS},}})"
    r"|(?P<breaks>(?:[ \t]{0,39}\n){5,})"
)
_ESCAPED = re.compile(rf"[{_ODD}]+")


def marked(text: Any) -> SafeString:
    """The text, safe in HTML, with a mark for what could not be seen."""
    text, parts, at = str(text), [], 0
    for found in _odd(text):
        parts += [escape(text[at : found.start()]), _mark(found)]
        at = found.end()
    parts.append(escape(text[at:]))
    return mark_safe("".join(parts))  # noqa: S308 - each part was escaped


def _odd(text: str) -> Iterator[re.Match[str]]:
    """What must be marked; most texts are seen at once to hold nothing of it."""
    if text.isascii() and text.isprintable() and " " * BLANKS not in text:
        return iter(())
    return _MARKED.finditer(text)


def _mark(found: re.Match[str]) -> str:
    count = len(found.group())
    match found.lastgroup:
        case "odd":
            char = found.group()[0]
            times = f" ×{count:,}" if count > 1 else ""
            return f'<span class="odd" title="{escape(_name(char))}">U+{ord(char):04X}{times}</span>'
        case "stack":
            return f'<span class="odd" title="{escape(_name(found.group()[0]))}">{count:,} combining marks</span>'
        case "blanks":
            return f'<span class="odd">{count:,} blanks</span>\n'
        case _:
            breaks = found.group().count("\n")
            return f'<span class="odd">{breaks:,} line breaks</span>\n'


def _name(char: str) -> str:
    return unicodedata.name(char, "") or {"Cc": "control character", "Co": "private use"}.get(
        unicodedata.category(char), "not a character"
    )


def spelled(text: str) -> str:
    """The text where no marks can be (a document's title, JSON): odd characters as JSON escapes."""
    return _ESCAPED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass").hex(" ", 2)
    return "\\u" + units.replace(" ", "\\u")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a value: a field of a group, an item of a list."""

    depth: int
    label: SafeString
    value: SafeString
    type: str
    is_block: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A value in rows, or as JSON; `left_out`: so many rows that are not shown."""

    rows: tuple[Row, ...] = ()
    json: SafeString | None = None
    left_out: int = 0


class Sight:
    """What one page shows, and whether it had to shorten anything. `whole`: show all of it.

    `files`: the address below which files that are shown can be fetched; empty: they cannot.
    """

    def __init__(self, *, whole: bool = False, files: str = "") -> None:
        self.whole, self._files = whole, files
        self.is_shortened = False
        self._chars, self._rows = PAGE_CHARS, PAGE_ROWS

    def text(self, text: str) -> SafeString:
        """A text with its odd characters marked; what is left out of it is said."""
        if self.whole:
            if next(islice(_odd(text), MARKS, None), None) is None:
                return marked(text)
            return _told(escape(spelled(text)), "odd characters as \\u escapes")
        limit = min(TEXT_CHARS, max(self._chars, 0))
        kept = text[:limit]
        self._chars -= len(kept) + _MARK_CHARS * sum(1 for _ in _odd(kept))
        if len(kept) == len(text):
            return marked(text)
        self.is_shortened = True
        return _told(marked(kept), f"{len(text) - len(kept):,} more characters")

    def json(self, tree: Any) -> SafeString:
        """A value as JSON text."""
        return self.text(trees.written(tree)) if not self.whole else as_json(tree)

    def value(self, tree: Any, label: str = "value") -> Shown:
        """A value row by row, its types named."""
        if self.whole:
            rows, depth = _extent(tree)
            if rows > WHOLE_ROWS or depth > DEPTH:
                return Shown(json=as_json(tree))
        fields = _children(tree)
        source = self._laid_out(fields, 0) if fields else self._row(label, tree, 0)
        rows_shown = tuple(source)
        return Shown(rows_shown, left_out=0 if self.whole else _extent(tree)[0] - len(rows_shown))

    def _laid_out(self, fields: Iterator[tuple[str, Any]], depth: int) -> Iterator[Row]:
        for label, item in fields:
            if not self.has_room():
                return
            yield from self._row(label, item, depth)

    def has_room(self) -> bool:
        """Takes the room of one more row; without any left, what comes is left out."""
        self._rows -= 1
        if self.whole or self._rows >= 0:
            return True
        self.is_shortened = True
        return False

    def _row(self, label: str, item: Any, depth: int) -> Iterator[Row]:
        below = _children(item)
        if below is None:
            value, kind, is_block = self._leaf(item)
            yield Row(depth, self.text(label), value, kind, is_block)
            return
        yield Row(depth, self.text(label), SafeString(""), _container(item))
        if depth < DEPTH:
            yield from self._laid_out(below, depth + 1)
        else:
            self.is_shortened = True

    def _leaf(self, item: Any) -> tuple[SafeString, str, bool]:
        match item:
            case trees.SECRET:
                return SafeString(f"{trees.SECRET.value} not shown"), "secret", False
            case bool():
                return SafeString("yes" if item else "no"), "yes or no", False
            case None:
                return SafeString("nothing"), "no value", False
            case int() | float():
                return SafeString(repr(item)), "number", False
            case str():
                return self.text(item), "text" if item else "empty text", len(item) > 80 or "\n" in item
            case list():
                return SafeString("none"), "empty list", False
            case _ if trees.is_file(item):
                return self._file(item), "file", False
        return SafeString("none"), "empty group", False

    def _file(self, item: Any) -> SafeString:
        name, kept = self.text(item["name"]), self.text(item["storage_name"])
        if self._files and (file_id := trees.file_id(item)):
            name = mark_safe(f'<a class="go" href="{escape(self._files)}{file_id}/">{name}</a>')  # noqa: S308 - escaped
        told = f"{name} · {item['size']:,} bytes<br><code>sha256 {escape(item['sha256'])}</code>"
        return mark_safe(f"{told}<br><small>kept as {kept}</small>")  # noqa: S308 - each part was escaped


def _children(item: Any) -> Iterator[tuple[str, Any]] | None:
    """What it is made of, each with its label; None for what is shown in one row."""
    if isinstance(item, dict) and item and not trees.is_file(item):
        return iter(item.items())
    if isinstance(item, list) and item:
        return ((str(number), part) for number, part in enumerate(item, 1))
    return None


def _container(item: Any) -> str:
    count = len(item)
    kind, unit = ("list", "item") if isinstance(item, list) else ("group", "field")
    return f"{kind} of {count:,} {unit}{'s' if count != 1 else ''}"


def _extent(tree: Any) -> tuple[int, int]:
    """How many rows it takes, and how deep they go."""
    rows, depth, level = 0, 0, [tree]
    while level:
        below = [part for item in level for _, part in _children(item) or ()]
        rows += len(below)
        if not below:
            break
        depth += 1
        level = below
    return max(rows, 1), depth


def as_json(tree: Any) -> SafeString:
    """All of it, invisible characters as escapes, which JSON reads back as the same characters."""
    deep = _extent(tree)[1] > 2 * DEPTH  # indented, it would grow with the square of its depth
    return mark_safe(escape(spelled(trees.written(tree, indent=None if deep else 2))))  # noqa: S308 - escaped


def _told(html: str, note: str) -> SafeString:
    return mark_safe(f'{html} <span class="odd">… {escape(note)}</span>')  # noqa: S308 - each part was escaped
