"""What a reviewer is shown beside an action, and its JSON form.

Evidence is stored when a question is opened and only ever shown: it is no part of a digest. Values in
it may be anything; what JSON cannot hold is shown as text, and secrets are masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import to_jsonable_python

from approvals.errors import RAISED_BY_AUTHORS, NotSerializable, words_of

LINK_SCHEMES = ("http", "https")
WRITTEN_BITS = 10_000  # what Python still writes in decimal: sys.set_int_max_str_digits


class FileRef(BaseModel):
    """Names one stored file and the bytes it must hold; `StoredFile` adds storing and reading."""

    model_config = ConfigDict(frozen=True)

    name: str
    storage_name: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")  # in the dialect that JSON schemas of it can be checked in
    size: int = Field(ge=0)

    @field_validator("storage_name")
    @classmethod
    def _inside_the_storage(cls, value: str) -> str:
        if not value or value.startswith("/") or "\\" in value or "\0" in value or ".." in value.split("/"):
            raise ValueError("not a name inside the storage")
        return value


@dataclass(frozen=True)
class Evidence:
    """One thing for a reviewer to look at; `type` names its kind in JSON."""

    type: ClassVar[str] = ""


@dataclass(frozen=True)
class Check(Evidence):
    """Something that was tested: passed, failed, or (None) not tested."""

    type: ClassVar[str] = "check"
    label: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Diff(Evidence):
    """Two states of one thing."""

    type: ClassVar[str] = "diff"
    title: str
    before: object
    after: object


@dataclass(frozen=True)
class Text(Evidence):
    """Prose."""

    type: ClassVar[str] = "text"
    title: str
    body: str


@dataclass(frozen=True)
class Link(Evidence):
    """An address to open: absolute, http or https, and without a log-in in it; else `ValueError`."""

    type: ClassVar[str] = "link"
    title: str
    url: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if not self.url.isprintable() or " " in self.url or "\\" in self.url:
            raise ValueError("Link: the address holds a blank, a backslash or a control character")
        if parts.scheme not in LINK_SCHEMES or not parts.hostname:
            raise ValueError("Link: an absolute http or https address is needed")
        if "@" in parts.netloc:
            raise ValueError("Link: the address carries a log-in")


@dataclass(frozen=True)
class Json(Evidence):
    """Any value, shown as JSON."""

    type: ClassVar[str] = "json"
    title: str
    value: object


@dataclass(frozen=True)
class Object(Evidence):
    """A stored file."""

    type: ClassVar[str] = "object"
    title: str
    file: FileRef


_KINDS: dict[str, type[Evidence]] = {kind.type: kind for kind in (Check, Diff, Text, Link, Json, Object)}


def evidence_to_json(evidence: Iterable[Evidence]) -> list[dict[str, Any]]:
    """Plain JSON values, each with its `type`.

    Raises `TypeError` for what is no evidence and `NotSerializable` for what cannot be shown (a circular
    or very deep value).
    """
    return [_to_json(item) for item in evidence]


def evidence_from_json(stored: Iterable[Mapping[str, Any]]) -> list[Evidence]:
    """What `evidence_to_json` wrote; a kind that this version does not know, or that does not fit, as `Json`."""
    return [_from_json(item) for item in stored]


def _to_json(item: Evidence) -> dict[str, Any]:
    if not isinstance(item, tuple(_KINDS.values())):
        kinds = ", ".join(kind.__name__ for kind in _KINDS.values())
        raise TypeError(f"evidence must be one of {kinds}, not {type(item).__name__}")
    values = {"type": item.type, **{name: getattr(item, name) for name in item.__dataclass_fields__}}
    try:
        plain = to_jsonable_python(values, bytes_mode="base64", serialize_unknown=True, by_alias=False)
    except RAISED_BY_AUTHORS as error:  # what is shown may be of any class, and say of itself what it likes
        title = str(getattr(item, "title", getattr(item, "label", "")))[:60]
        raise NotSerializable(what=f"evidence {title!r}", type=item.type, reason=words_of(error)) from None
    shown: dict[str, Any] = _visible(plain)
    return shown


def _from_json(stored: Mapping[str, Any]) -> Evidence:
    values = {name: value for name, value in stored.items() if name != "type"}
    kind = _KINDS.get(str(stored.get("type")))
    if kind is None:
        return Json(str(stored.get("type")), values)
    try:
        return Object(values["title"], FileRef(**values["file"])) if kind is Object else kind(**values)
    except (TypeError, ValueError, KeyError):
        return Json(str(values.get("title", kind.type)), values)


def _visible(value: Any) -> Any:
    """The same value without what JSON, a database or a page cannot hold: NaN, infinities, lone surrogates."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > WRITTEN_BITS:
        return "(a number of too many digits)"
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_visible(key): _visible(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_visible(item) for item in value]
    return value
