"""What a browser would post for given values: the form as texts by name, from which it is shown and read.

Beside a field's own name: `name?` says how its text is to be read (below), `name@` is the zone of a moment,
`name!` whether an optional group is given at all, and a list posts the numbers of its rows under its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from approvals.web.forms.shapes import ABSENT, Shape
from approvals.web.forms.texts import Wrong, told, written

type Post = Mapping[str, list[str]]

HOW, ZONE, GIVEN = "?", "@", "!"
NULL, TEXT, JSON, KEPT, FILE = "null", "text", "json", "kept", "file:"
"""How to read: blank is null; blank is an empty text; the text is JSON; an empty list is one; no new file: this."""
OFFERED = "?"
"""After a row's number: it was only offered, and is dropped if nobody touched it."""
ON, OFF = "on", "off"
MOST_ROWS = 40
"""Longer lists are written as JSON: browsers may post only so many fields."""
MOST_OFFERED = 5


def write(shape: Shape, value: Any = ABSENT) -> dict[str, list[str]]:
    """The texts of a form that shows this value, or its defaults."""
    post: dict[str, list[str]] = {}
    _write(shape, value, post)
    return post


def blank(shape: Shape, how: str = "") -> Any:
    """What an empty field stands for; ABSENT: nothing is said. Raises Wrong where something is needed."""
    if how == TEXT and shape.text:
        return ""
    if how == NULL and shape.nullable:
        return None
    has_default = shape.default is not ABSENT
    if shape.nullable and (shape.required or has_default):
        return None
    if shape.required:
        raise Wrong("This is needed.")
    return "" if shape.text and has_default else ABSENT


def _write(shape: Shape, value: Any, post: dict[str, list[str]]) -> None:
    value = shape.default if value is ABSENT else value
    match shape.kind:
        case "nothing":
            return
        case "group":
            _write_group(shape, value, post)
        case "rows":
            _write_rows(shape, value, post)
        case "check":
            _write_check(shape, value, post)
        case "secret":
            post[shape.name] = [""]
        case "file":
            if isinstance(value, Mapping):
                post[shape.name + HOW] = [FILE + json.dumps(value)]
        case _:
            _write_text(shape, value, post)


def _write_as_json(shape: Shape, value: Any, post: dict[str, list[str]]) -> None:
    post[shape.name], post[shape.name + HOW] = [told(value)], [JSON]


def _write_given(shape: Shape, value: Any, post: dict[str, list[str]]) -> None:
    post[shape.name + GIVEN] = [OFF] if value is ABSENT or value is None else [OFF, ON]
    if value is None and not _is_blank(shape, None):
        post[shape.name + HOW] = [NULL]


def _is_blank(shape: Shape, value: Any) -> bool:
    """Whether an empty field stands for this anyway."""
    try:
        return blank(shape) is value or blank(shape) == value
    except Wrong:
        return False


def _write_group(shape: Shape, value: Any, post: dict[str, list[str]]) -> None:
    children = dict(shape.children())
    empty = value is ABSENT or (value is None and shape.nullable)
    if not empty and not (isinstance(value, Mapping) and {*value} <= {*children}):
        _write_as_json(shape, value, post)
        return
    if shape.optional:
        _write_given(shape, value, post)
    for key, child in children.items():
        _write(child, ABSENT if empty else value.get(key, ABSENT), post)


def _write_rows(shape: Shape, value: Any, post: dict[str, list[str]]) -> None:
    empty = value is ABSENT or (value is None and shape.nullable)
    if not empty and not (isinstance(value, list) and len(value) <= MOST_ROWS):
        _write_as_json(shape, value, post)
        return
    if shape.nullable:
        _write_given(shape, value, post)
    rows: list[Any] = [] if empty else value
    if not empty and shape.optional and not shape.nullable:
        post[shape.name + HOW] = [KEPT]
    marks = [str(index) for index in range(len(rows))]
    if not rows and not shape.recurses():
        least = shape.spec.get("minItems", 1)
        rows = [ABSENT] * min(max(least, 1), MOST_OFFERED)
        marks = [f"{index}{OFFERED}" for index in range(len(rows))]
    post[shape.name] = ["", *marks]
    for mark, row in zip(marks, rows, strict=True):
        _write(shape.item(mark.removesuffix(OFFERED)), row, post)


def _write_check(shape: Shape, value: Any, post: dict[str, list[str]]) -> None:
    if isinstance(value, bool):
        chosen = ON if value else OFF
        post[shape.name] = [chosen] if shape.optional or not value else [OFF, ON]
    elif value is ABSENT or (value is None and shape.nullable):
        post[shape.name] = [""] if shape.optional else [OFF]
        if value is None and not _is_blank(shape, None):
            post[shape.name + HOW] = [NULL]
    else:
        _write_as_json(shape, value, post)


def _write_text(shape: Shape, value: Any, post: dict[str, list[str]]) -> None:
    if shape.kind == "moment" and shape.spec.get("zone") != "none":
        post[shape.name + ZONE] = ["UTC"]
    if value is ABSENT and shape.required and not shape.nullable and "const" in shape.spec:
        value = shape.spec["const"]
    if value is ABSENT:
        post[shape.name] = [""]
    elif value == "" and shape.text:
        post[shape.name] = [""]
        if not _is_blank(shape, ""):
            post[shape.name + HOW] = [TEXT]
    elif value is None and shape.nullable:
        post[shape.name] = [""]
        if not _is_blank(shape, None):
            post[shape.name + HOW] = [NULL]
    elif (texts := written(shape, value)) is None:
        post.pop(shape.name + ZONE, None)
        _write_as_json(shape, value, post)
    else:
        post[shape.name] = [texts[0]]
        if shape.name + ZONE in post:
            post[shape.name + ZONE] = [texts[1]]
