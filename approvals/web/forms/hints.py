"""What stands around a field: its help in words, and what browsers may check before they send it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from approvals.web.forms.shapes import ABSENT, Shape
from approvals.web.forms.texts import spoken, told

LONG_LENGTH = 300
_LONG = re.compile(
    r"(^|_)(body|text|description|summary|notes|comments?|prompt|content|message|instructions)$"
)
# The part of Python's patterns that browsers read alike.
_PORTABLE = re.compile(
    r"(?:[\w ,:@/^$.*+?|()!#=_]|\\[.+*?dw/]|\[[A-Za-z0-9_ -]+\]|\{\d+(?:,\d*)?\})+", re.ASCII
)
_TYPES = {"date": "date", "time": "time", "email": "email", "uri": "url"}


def attributes(*, required: bool = False, **named: Any) -> tuple[tuple[str, str], ...]:
    given = [(name, str(value)) for name, value in named.items() if value is not None]
    return (("required", "required"), *given) if required else tuple(given)


def said(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_long(shape: Shape, text: str) -> bool:
    if "\n" in text or len(text) > LONG_LENGTH:
        return True
    longest = shape.spec.get("maxLength")
    if "pattern" in shape.spec:
        return False
    if longest is not None:
        return bool(longest > LONG_LENGTH)
    return bool(_LONG.search(shape.name.rpartition(".")[2].lower()))


def input_type(shape: Shape, text: str) -> tuple[str, dict[str, Any]]:
    """The type of an input, and what else the browser may check."""
    spec = shape.spec
    match shape.kind:
        case "secret":
            return "password", {"autocomplete": "off"}
        case "integer":
            return "number", {"step": "1", "inputmode": "numeric", **_bounds(shape)} if _is_exact(
                text
            ) else {}
        case "number":
            return "number", {"step": "any", "inputmode": "decimal", **_bounds(shape)}
        case "decimal":
            return "text", {"inputmode": "decimal", "autocomplete": "off"}
        case "duration":
            return "text", {"placeholder": "1h 30m", "autocomplete": "off"}
        case "line":
            return _line_type(spec, text)
    pattern = spec.get("pattern")
    lengths = {"maxlength": spec.get("maxLength"), "minlength": spec.get("minLength")}
    if isinstance(pattern, str) and _PORTABLE.fullmatch(pattern) and "(?" not in pattern:
        lengths["pattern"] = f".*(?:{pattern}).*"
    return "text", lengths


def _is_exact(text: str) -> bool:
    """Whether a number field shows it as it is; longer ones browsers would round when they step."""
    return len(text) <= 15


def _line_type(spec: Mapping[str, Any], text: str) -> tuple[str, dict[str, Any]]:
    kind = _TYPES.get(spec.get("format", ""), "text")
    if kind == "time" and text and not re.fullmatch(r"\d\d:\d\d(:\d\d)?", text):
        kind = "text"
    if kind == "date" and text and not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        kind = "text"
    if kind == "time":
        return kind, {"step": "1"}
    return kind, {"maxlength": spec.get("maxLength")} if kind in ("text", "url", "email") else {}


def _bounds(shape: Shape) -> dict[str, Any]:
    spec = shape.spec
    low, high = spec.get("minimum"), spec.get("maximum")
    if shape.kind == "integer":
        above, below = spec.get("exclusiveMinimum"), spec.get("exclusiveMaximum")
        low = above + 1 if low is None and isinstance(above, int) else low
        high = below - 1 if high is None and isinstance(below, int) else high
    return {"min": low, "max": high}


_TOLD = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("pattern", "must match {}"),
    ("minItems", "at least {} rows"),
    ("maxItems", "at most {} rows"),
)


def help_of(shape: Shape) -> tuple[str, ...]:
    """The author's description, what is allowed, and what is taken if nothing is said."""
    spec = shape.spec
    said = [_sentence(str(spec["description"]))] if spec.get("description") and shape.kind != "file" else []
    around = [
        spec,
        *(part for part in spec.get("anyOf", ()) if shape.kind == "decimal" and isinstance(part, Mapping)),
    ]
    limits = [
        words.format(f"{part[word]:g}" if isinstance(part[word], float) else part[word])
        for part in around
        for word, words in _TOLD
        if word in part
        and (word, part[word]) != ("minLength", 1)
        and not (word == "pattern" and (said or shape.kind == "decimal"))  # the author's words say it better
    ]
    if spec.get("uniqueItems"):
        limits.append("no two alike")
    if limits and shape.kind != "json":
        together = "; ".join(limits)
        said.append(f"{together[:1].upper()}{together[1:]}.")
    match shape.kind:
        case "integer":
            said += [] if limits else ["A whole number."]
        case "duration":
            said.append("For example 90s, 1h 30m or 2d.")
        case "moment" if spec.get("zone") == "none":
            said.append("Local time, without a zone.")
        case "secret":
            said.append("Kept encrypted, and never shown again.")
    if (default := _default(shape)) and not shape.text:
        said.append(f"Left empty: {default}.")
    return tuple(said)


def _sentence(text: str) -> str:
    """With an end, so that what follows does not run into it."""
    return text if text.endswith((".", "!", "?", "…", ":")) else f"{text}."


def _default(shape: Shape) -> str:
    value = shape.default
    kinds = ("integer", "number", "decimal", "duration", "line", "moment", "json")
    if value is ABSENT or value is None or shape.nullable or shape.kind not in kinds:
        return ""
    return (
        spoken(value)
        if shape.kind == "duration" and isinstance(value, str)
        else " ".join(told(value).split())
    )
