"""Evidence as a page shows it. Whatever it holds was written by the workflow, or by the agent behind it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.utils.safestring import SafeString

from approvals.queries import trees
from approvals.web.show import Shown, Sight

COMPARED_LINES = 600
"""Of each side; beyond these both are shown as they are, because comparing takes too long."""
CONTEXT_LINES = 2
# A backslash in a name is the beginning of the path to browsers, and a percent sign hides a character.
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


@dataclass(frozen=True, slots=True)
class Line:
    """Of a comparison: `add`, `del`, or nothing for what stays."""

    sign: str
    kind: str
    text: SafeString


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One piece of evidence; what it has beside a kind and a title depends on the kind."""

    kind: str
    title: SafeString
    text: SafeString | None = None
    value: Shown | None = None
    lines: tuple[Line, ...] = ()
    before: SafeString | None = None
    after: SafeString | None = None
    url: str = ""
    host: SafeString | None = None
    passed: bool | None = None


def exhibits(items: Iterable[Mapping[str, Any]], sight: Sight) -> list[Exhibit]:
    """The evidence in its order."""
    return [_exhibit(item, sight) for item in items]


def _exhibit(item: Mapping[str, Any], sight: Sight) -> Exhibit:
    kind = item["type"]
    title = sight.text(str(item.get("title", item.get("label", ""))))
    match kind:
        case "check":
            return Exhibit(kind, title, text=sight.text(item["detail"]), passed=item["passed"])
        case "text":
            return Exhibit(kind, title, text=sight.text(item["body"]))
        case "link":
            return _link(item["url"], title, sight)
        case "object":
            return Exhibit(kind, title, value=sight.value(item["file"], "file"))
        case "diff":
            return _diff(title, item["before"], item["after"], sight)
    return Exhibit("json", title, value=sight.value(item.get("value")))


def _link(url: str, title: SafeString, sight: Sight) -> Exhibit:
    """Only what leads to the web by its own name may be followed."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # UnicodeError too
        return Exhibit("json", title, value=sight.value(url, "address"))
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host) or "@" in parts.netloc:
        return Exhibit("json", title, value=sight.value(url, "address"))
    if not parts.netloc.isascii():
        # Browsers read some names otherwise than Python does (ß): the link leads where the page says.
        url = parts._replace(netloc=host + (f":{port}" if port is not None else "")).geturl()
    return Exhibit("link", title, text=sight.text(url), url=url, host=sight.text(host))


def _diff(title: SafeString, before: Any, after: Any, sight: Sight) -> Exhibit:
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = _by_key(before, after)
    else:
        old, new = _lines_of(before), _lines_of(after)
        if max(len(old), len(new)) > COMPARED_LINES:
            texts = [sight.text("\n".join(lines)) for lines in (old, new)]
            return Exhibit("diff", title, before=texts[0], after=texts[1])
        pairs = _by_line(old, new)
    lines: list[Line] = []
    for sign, text in pairs:
        if not sight.has_room():
            break
        lines.append(Line(sign, {"+": "add", "-": "del"}.get(sign, ""), sight.text(text)))
    return Exhibit("diff", title, lines=tuple(lines))


def _by_key(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in sorted(before.keys() | after.keys()):
        if key in before and key in after and before[key] == after[key]:
            continue
        if key in before:
            yield "-", f"{key}: {_flat(before[key])}"
        if key in after:
            yield "+", f"{key}: {_flat(after[key])}"


def _by_line(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in list(difflib.unified_diff(before, after, lineterm="", n=CONTEXT_LINES))[2:]:
        yield ("…", line) if line.startswith("@@") else (line[:1].strip(), line[1:])


def _flat(value: Any) -> str:
    return value if isinstance(value, str) else trees.written(value)


def _lines_of(value: Any) -> list[str]:
    return _flat(value).split("\n") if value not in (None, "") else []
