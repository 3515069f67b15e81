"""From what was posted to a JSON tree, every problem under the name of its field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.files.uploadedfile import UploadedFile

from approvals.errors import ApprovalsError, InvalidInput
from approvals.web.forms.shapes import ABSENT, Shape
from approvals.web.forms.texts import Wrong, lines, parsed, read
from approvals.web.forms.writing import (
    FILE,
    GIVEN,
    HOW,
    JSON,
    KEPT,
    OFF,
    OFFERED,
    ON,
    ZONE,
    Post,
    blank,
    write,
)

type Place = tuple[str | int, ...]
type Keep = Callable[[UploadedFile[Any]], Mapping[str, Any]]

_MARK = re.compile(r"[0-9]{1,6}\??")
_TOLD_UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class Filled:
    """What a form was filled with: good as it is if there are no problems."""

    tree: Any
    problems: Mapping[str, str]
    """By field name, in plain words."""
    places: Mapping[Place, str]
    """The field of each place in the tree."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What was typed, by field, where it may be quoted."""
    unkept: frozenset[str] = frozenset()
    """The fields of files that came and were not stored."""

    def blame(self, error: InvalidInput) -> dict[str, str]:
        """The problems that a service found in the tree, beside their fields; the rest beside the whole form.

        Of a tree that has problems itself, only what is said of a field: the whole is not there to be judged.
        """
        located = list(error.located) or [(_of_path(error), str(error.values.get("problem") or error))]
        told: dict[str, str] = {}
        for place, message in located:
            at = place
            while at and at not in self.places:
                at = at[:-1]
            name = self.places.get(at, "")
            if self.problems and (not at or name in self.unkept):
                continue
            sentence = _plain(message, self.texts.get(name, "") if len(at) == len(place) else "")
            told[name] = (
                f"{told[name]} {sentence}" if name in told and sentence not in told[name] else sentence
            )
        return told


def _of_path(error: InvalidInput) -> Place:
    """The place that a JSON path (`$.a[0]`) names."""
    path = str(error.values.get("field", "$"))
    parts = re.findall(r"\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]", path)
    return tuple(int(index) if index else key or quoted for key, index, quoted in parts)


def _plain(message: str, typed: str) -> str:
    said = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if said == "Field required":
        return "This is needed."
    for word in ("Input", "String", "Value", "Decimal input", "Data"):
        if said.startswith(f"{word} should"):
            said = f"This{said[len(word) :]}"
    said = said[:1].upper() + said[1:].rstrip(".") + "."
    found = f"“{typed[:60]}{'…' if len(typed) > 60 else ''}” was given. " if typed else ""
    return found + said


def fill(shape: Shape, post: Post, files: Mapping[str, Any], keep: Keep | None) -> Filled:
    """Reads a posted form. Files are kept only where nothing else is wrong."""
    reader = _Reader(post, files)
    tree = reader.read(shape, ())
    reader.refuse_unknown(shape.name)
    unkept = reader.keep_files(keep) if not reader.problems else reader.uploaded
    return Filled(
        None if tree is ABSENT else tree, reader.problems, reader.places, reader.texts, frozenset(unkept)
    )


class _Reader:
    def __init__(self, post: Post, files: Mapping[str, Any]) -> None:
        self.post, self.files = post, files
        self.problems: dict[str, str] = {}
        self.places: dict[Place, str] = {}
        self.texts: dict[str, str] = {}
        self._known: set[str] = set()
        self._uploads: list[tuple[str, UploadedFile[Any], dict[str, Any]]] = []

    def read(self, shape: Shape, place: Place) -> Any:
        """The value of one field, ABSENT if it says nothing or something wrong."""
        self.places[place] = shape.name
        self._known |= {shape.name, shape.name + HOW, shape.name + ZONE, shape.name + GIVEN}
        try:
            if self._how(shape) == JSON and shape.kind != "secret":
                return parsed(self._text(shape.name))
            return self._read(shape, place)
        except Wrong as wrong:
            self.problems[shape.name] = str(wrong)
            return ABSENT

    def _read(self, shape: Shape, place: Place) -> Any:
        match shape.kind:
            case "nothing":
                return None
            case "group":
                return self._group(shape, place)
            case "rows":
                return self._rows(shape, place)
            case "check":
                return self._check(shape)
            case "file":
                return self._file(shape)
        return self._leaf(shape)

    def _text(self, name: str) -> str:
        texts = self.post.get(name, ())
        return texts[-1] if texts else ""

    def _how(self, shape: Shape) -> str:
        return self._text(shape.name + HOW)

    def _leaf(self, shape: Shape) -> Any:
        text = self._text(shape.name)
        if not (text if shape.text or shape.kind == "secret" else text.strip()):
            return blank(shape, self._how(shape))
        if shape.kind != "secret":
            self.texts[shape.name] = lines(text)
        return read(shape, text, self._text(shape.name + ZONE))

    def _check(self, shape: Shape) -> Any:
        text = self._text(shape.name)
        if not text:
            return blank(shape, self._how(shape))
        if text not in (ON, OFF):
            raise Wrong("This is answered with yes or no.")
        return text == ON

    def _is_given(self, shape: Shape) -> bool:
        return self._text(shape.name + GIVEN) == ON

    def _group(self, shape: Shape, place: Place) -> Any:
        left_out = shape.optional and not self._is_given(shape)
        found: dict[str, Any] = {}
        before = dict(self.problems)
        for key, child in shape.children():
            value = self.read(child, (*place, key))
            if value is not ABSENT:
                found[key] = value
        if not left_out:
            return found
        self.problems = before  # what is left out may be wrong
        self._uploads = [upload for upload in self._uploads if not upload[0].startswith(f"{shape.name}.")]
        return blank(shape, self._how(shape))

    def _rows(self, shape: Shape, place: Place) -> Any:
        found: list[Any] = []
        before, uploads = dict(self.problems), list(self._uploads)
        for mark in dict.fromkeys(self.post.get(shape.name, ())):
            if mark and not _MARK.fullmatch(mark):
                raise Wrong("The rows of this list came in an unknown form.")
            item = shape.item(mark.removesuffix(OFFERED)) if mark else None
            if item is not None and not (mark.endswith(OFFERED) and self._is_untouched(item)):
                value = self.read(item, (*place, len(found)))
                found.append(None if value is ABSENT else value)
        if shape.nullable and not self._is_given(shape):
            self.problems, self._uploads = before, uploads
            return blank(shape, self._how(shape))
        if found or self.post.get(shape.name):
            left_out = not found and not shape.nullable and shape.optional and self._how(shape) != KEPT
            return ABSENT if left_out else found
        return blank(shape)

    def _is_untouched(self, item: Shape) -> bool:
        """Whether a row that was only offered came back as it was; if so, its names are used up."""
        fresh = write(item)
        below = (f"{item.name}.", f"{item.name}{HOW}", f"{item.name}{ZONE}", f"{item.name}{GIVEN}")
        if any(name == item.name or name.startswith(below) for name in self.files):
            return False
        mine = {name for name in self.post if name == item.name or name.startswith(below)}
        same = all([lines(text) for text in self.post[name]] == fresh.get(name, [""]) for name in mine)
        if same:
            self._known |= mine
        return same

    def _file(self, shape: Shape) -> Any:
        upload = self.files.get(shape.name)
        if upload is not None:
            kept: dict[str, Any] = {}
            self._uploads.append((shape.name, upload, kept))
            return kept
        how = self._how(shape)
        if how.startswith(FILE):
            return parsed(how.removeprefix(FILE))
        try:
            return blank(shape, how)
        except Wrong:
            raise Wrong("A file is needed.") from None

    def refuse_unknown(self, prefix: str) -> None:
        """Nothing that somebody filled in is dropped in silence: the form may have changed since it was shown."""
        below = tuple(prefix + mark for mark in (".", HOW, ZONE, GIVEN))
        posted = {*self.post, *self.files}
        unknown = sorted(name for name in posted - self._known if name == prefix or name.startswith(below))
        if unknown:
            told = ", ".join(name[:60] for name in unknown[:_TOLD_UNKNOWN])
            more = f" and {len(unknown) - _TOLD_UNKNOWN} more" if len(unknown) > _TOLD_UNKNOWN else ""
            self.problems.setdefault(
                prefix,
                f"This form has no such fields: {told}{more}. It may have changed since it was shown; "
                "check it and send it again.",
            )

    @property
    def uploaded(self) -> set[str]:
        """The fields of the files that came."""
        return {name for name, _, _ in self._uploads}

    def keep_files(self, keep: Keep | None) -> set[str]:
        """Stores the files that came; those that could not be are problems. Returns their fields."""
        refused: set[str] = set()
        for name, upload, kept in self._uploads:
            try:
                if keep is None:
                    raise InvalidInput("Files cannot be sent here.")
                kept.update(keep(upload))
            except ApprovalsError as error:
                self.problems[name] = str(error)
                refused.add(name)
        return refused


def changed(post: Post, prefix: str) -> tuple[dict[str, list[str]], str] | None:
    """The form after a row was added or removed, and the name to go on at; None if neither was asked for."""
    add, remove = ((post.get(word) or [""])[0] for word in ("add", "remove"))
    if add == prefix or add.startswith(f"{prefix}."):
        marks = [mark for mark in post.get(add, ()) if _MARK.fullmatch(mark)]
        new = str(max((int(mark.removesuffix(OFFERED)) for mark in marks), default=-1) + 1)
        return {**post, add: ["", *marks, new]}, f"{add}.{new}"
    rows, _, number = remove.rpartition(".")
    if rows == prefix or rows.startswith(f"{prefix}."):
        marks = [mark for mark in post.get(rows, ()) if mark and mark.removesuffix(OFFERED) != number]
        return {**post, rows: ["", *marks]}, rows
    return None
