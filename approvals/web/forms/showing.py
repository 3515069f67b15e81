"""The form as templates show it: frozen values, one per field, whatever it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from approvals.web.forms.hints import attributes, help_of, input_type, is_long, said
from approvals.web.forms.shapes import Kind, Shape, whole
from approvals.web.forms.texts import Wrong, options, parsed
from approvals.web.forms.writing import FILE, GIVEN, HOW, JSON, OFF, OFFERED, ON, TEXT, ZONE, Post, write

type Widget = Literal["nothing", "input", "area", "choice", "check", "moment", "file", "group", "rows"]


@dataclass(frozen=True, slots=True)
class Option:
    value: str
    label: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a list; `mark` is posted under the list's name, in order."""

    mark: str
    name: str
    field: Field


@dataclass(frozen=True, slots=True)
class Field:
    """One field; `name` is also the id of what is focused when its problem is followed."""

    widget: Widget
    name: str
    label: str
    help: tuple[str, ...] = ()
    problem: str = ""
    needed: bool = False
    """Marked as required; whether the browser insists is said in the attributes."""
    value: str = ""
    how: str = ""
    """Posted as `name?`: how the text is to be read."""
    zone: str | None = None
    given: bool | None = None
    """Of an optional group: whether its box is ticked; None: it has none."""
    type: str = "text"
    attributes: tuple[tuple[str, str], ...] = ()
    options: tuple[Option, ...] = ()
    children: tuple[Field, ...] = ()
    rows: tuple[Row, ...] = ()
    schema: str = ""
    """Beside a JSON text: what it must fit."""
    focus: bool = False

    def all(self) -> Iterator[Field]:
        """This field and every field in it, as shown."""
        yield self
        for child in self.children:
            yield from child.all()
        for row in self.rows:
            yield from row.field.all()

    @property
    def wrong(self) -> list[tuple[str, Field]]:
        """The fields that have a problem, in order, by what they are called from here: `Address, Street`."""
        found = [("", self)] if self.problem else []
        for below in (*self.children, *(row.field for row in self.rows)):
            for label, field in below.wrong:
                inside = label if below.widget == "rows" else f"{below.label}, {label}"
                found.append((inside if label else below.label, field))
        return found

    @property
    def has_lost(self) -> bool:
        """Whether it asks for what is never shown again: files and secrets."""
        return any(field.widget == "file" or field.type == "password" for field in self.all())

    @property
    def is_multipart(self) -> bool:
        """Whether files are asked for: the form element then needs `enctype`."""
        return any(field.widget == "file" for field in self.all())


@dataclass(frozen=True, slots=True)
class Showing:
    """What all fields of one page have in common."""

    post: Post
    problems: Mapping[str, str]
    focus: str

    def show(self, shape: Shape, *, insists: bool) -> Field:
        """The field of one shape, its defaults where nothing was posted of it.

        `insists`: the browser may refuse to send it empty.
        """
        told = f"{shape.name}{GIVEN}" if shape.kind == "group" and shape.optional else shape.name
        is_told = told in self.post or f"{shape.name}{HOW}" in self.post
        if is_told or shape.kind == "file" or (shape.kind == "group" and not shape.optional):
            return self._shown(shape, insists)
        return replace(self, post={**self.post, **write(shape)})._shown(shape, insists)

    def _shown(self, shape: Shape, insists: bool) -> Field:
        is_json = self._text(shape.name + HOW) == JSON and shape.kind != "secret"
        return _WIDGETS["json" if is_json else shape.kind](self, shape, insists)

    def _text(self, name: str) -> str:
        texts = self.post.get(name, ())
        return texts[-1] if texts else ""

    def _field(self, widget: Widget, shape: Shape, **more: Any) -> Field:
        return Field(
            widget,
            shape.name,
            shape.label,
            problem=self.problems.get(shape.name, ""),
            focus=self.focus == shape.name,
            help=more.pop("help", None) or help_of(shape),
            how=self._text(shape.name + HOW),
            **more,
        )

    def _needed(self, shape: Shape) -> bool:
        how = self._text(shape.name + HOW)
        return shape.required and not shape.nullable and how != TEXT

    def _nothing(self, shape: Shape, insists: bool) -> Field:
        return self._field("nothing", shape)

    def _check(self, shape: Shape, insists: bool) -> Field:
        if shape.optional:
            return self._choice_of(shape, [(ON, "Yes"), (OFF, "No")], insists)
        return self._field("check", shape, given=self._text(shape.name) == ON)

    def _choice(self, shape: Shape, insists: bool) -> Field:
        return self._choice_of(shape, [(text, said(value)) for text, value in options(shape.spec)], insists)

    def _json(self, shape: Shape, insists: bool) -> Field:
        return self._area(shape, insists, is_json=True)

    def _group(self, shape: Shape, insists: bool) -> Field:
        given = self._text(shape.name + GIVEN) == ON if shape.optional else None
        below = Showing(self.post, self.problems, self._first_below(shape))
        children = tuple(
            below.show(child, insists=insists and given is None) for _, child in shape.children()
        )
        return self._field("group", shape, children=children, given=given)

    def _first_below(self, shape: Shape) -> str:
        """A group that is to have the focus gives it to its first field."""
        first = next((child.name for _, child in shape.children()), "")
        return first if self.focus == shape.name else self.focus

    def _rows(self, shape: Shape, insists: bool) -> Field:
        rows: list[Row] = []
        for mark in self.post.get(shape.name, ()):
            if not mark:
                continue
            item = shape.item(mark.removesuffix(OFFERED))
            labelled = f"{shape.label} {len(rows) + 1}"
            offered = mark.endswith(OFFERED) or shape.nullable
            field = self.show(replace(item, label=labelled), insists=insists and not offered)
            rows.append(Row(mark, item.name, field))
        given = self._text(shape.name + GIVEN) == ON if shape.nullable else None
        return self._field("rows", shape, rows=tuple(rows), given=given)

    def _choice_of(self, shape: Shape, choices: list[tuple[str, str]], insists: bool) -> Field:
        posted = self._text(shape.name)
        needed = self._needed(shape)
        shown = [Option(text, label, text == posted) for text, label in choices]
        if not needed or not any(option.chosen for option in shown):
            shown.insert(0, Option("", "Choose …" if needed else "–", not posted))
        checks = attributes(required=needed and insists)
        return self._field("choice", shape, needed=needed, options=tuple(shown), attributes=checks)

    def _file(self, shape: Shape, insists: bool) -> Field:
        how = self._text(shape.name + HOW)
        needed = self._needed(shape) and not how.startswith(FILE)
        held = (f"Now {_name_of(how)}; choose another to replace it.",) if how.startswith(FILE) else ()
        return self._field(
            "file",
            shape,
            needed=needed,
            help=held or help_of(shape),
            attributes=attributes(required=needed and insists),
        )

    def _moment(self, shape: Shape, insists: bool) -> Field:
        needed, text = self._needed(shape), self._text(shape.name)
        picked = not text or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", text)
        checks = attributes(
            required=needed and insists,
            step="1" if picked else None,
            placeholder=None if picked else "2026-11-29 18:30",
        )
        return self._field(
            "moment",
            shape,
            needed=needed,
            value=text,
            type="datetime-local" if picked else "text",
            zone=self._text(shape.name + ZONE) if shape.spec.get("zone") != "none" else None,
            attributes=checks,
        )

    def _area(self, shape: Shape, insists: bool, *, is_json: bool) -> Field:
        needed = self._needed(shape)
        checks = attributes(
            required=needed and insists,
            rows=str(min(max(self._text(shape.name).count("\n") + 2, 3), 16)),
            maxlength=None if is_json else shape.spec.get("maxLength"),
            minlength=None if is_json else shape.spec.get("minLength"),
            spellcheck="false" if is_json else None,
        )
        schema = json.dumps(whole(shape), ensure_ascii=False, indent=2) if is_json and shape.spec else ""
        told_how = ("Written as JSON.",) if is_json else ()
        return self._field(
            "area",
            shape,
            needed=needed,
            value=self._text(shape.name),
            type="json" if is_json else "text",
            schema=schema,
            help=(*help_of(shape), *told_how),
            attributes=checks,
        )

    def _input(self, shape: Shape, insists: bool) -> Field:
        needed, text = self._needed(shape), self._text(shape.name)
        if shape.kind == "text" and is_long(shape, text):
            return self._area(shape, insists, is_json=False)
        kind, checks = input_type(shape, text)
        return self._field(
            "input",
            shape,
            needed=needed,
            value="" if kind == "password" else text,
            type=kind,
            attributes=attributes(required=needed and insists, **checks),
        )


def _name_of(how: str) -> str:
    """Of a file that was kept; what was posted for it may be anything."""
    try:
        return str(parsed(how.removeprefix(FILE))["name"])[:200]
    except (Wrong, TypeError, LookupError):
        return "a file"


_WIDGETS: Mapping[Kind, Callable[[Showing, Shape, bool], Field]] = {
    "nothing": Showing._nothing,
    "check": Showing._check,
    "choice": Showing._choice,
    "file": Showing._file,
    "group": Showing._group,
    "json": Showing._json,
    "moment": Showing._moment,
    "rows": Showing._rows,
    **dict.fromkeys(("text", "line", "duration", "integer", "number", "decimal", "secret"), Showing._input),
}
