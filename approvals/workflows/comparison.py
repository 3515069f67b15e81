"""Whether a value came back from storage as it went in: the same value, of the same type, all the way down."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

SHOWN_PATH_PARTS = 12
CACHED_TYPES = 4096


class Changed(Exception):
    """A part of the value is not the same; `path`, `kind` (its type as it went in) and `reason` say which and how."""

    def __init__(self, before: Any, reason: str) -> None:
        super().__init__(reason)
        self.kind = type(before).__name__
        self.reason = reason
        self.parts: list[str] = []

    @property
    def path(self) -> str:
        outermost = self.parts[::-1]
        return (
            "$" + "".join(outermost[:SHOWN_PATH_PARTS]) + ("…" if len(outermost) > SHOWN_PATH_PARTS else "")
        )


def ensure_same(before: Any, after: Any) -> None:
    """Nothing, if `after` is `before` in value and type; raises `Changed` otherwise.

    Alike count: an instant in another zone, a float for an integer of the same value, a plain string or
    number for a subclass of it that carries nothing more, a generic model's parametrised class. A datetime
    without a zone is never accepted.
    """
    kind = type(before)
    if type(after) is not kind and not _alike(before, after):
        raise Changed(before, f"came back as {type(after).__name__}")
    compare = _COMPARE.get(kind)
    if compare is None:
        compare = _comparer_of(kind)
        if len(_COMPARE) < CACHED_TYPES:
            _COMPARE[kind] = compare
    compare(before, after)


def _alike(before: Any, after: Any) -> bool:
    kind = type(after)
    if isinstance(before, Enum | bool):
        return False
    if kind in (str, int, float, bytes):
        promoted = kind is float and isinstance(before, int)
        return promoted or (isinstance(before, kind) and not getattr(before, "__dict__", None))
    if isinstance(before, BaseModel) and isinstance(after, BaseModel):
        origin = kind.__pydantic_generic_metadata__["origin"]
        return origin is not None and origin is type(before)
    return False


def _equal(before: Any, after: Any) -> None:
    if not before == after:
        raise Changed(before, "came back with another value")


def _decimal(before: Decimal, after: Decimal) -> None:
    if before.as_tuple() != after.as_tuple() or not before.is_finite():
        raise Changed(before, "came back with another value")


def _instant(before: datetime, after: datetime) -> None:
    if before.utcoffset() is None or after.utcoffset() is None:
        raise Changed(before, "a datetime without a time zone")
    # Compared in UTC: Python never calls instants in a repeated hour equal across zones (PEP 495).
    try:
        same = before.astimezone(UTC) == after.astimezone(UTC)
    except OverflowError:
        raise Changed(before, "a datetime outside the years 1 to 9999 in UTC") from None
    if not same:
        raise Changed(before, "came back as another instant")


def _sequence(before: Any, after: Any) -> None:
    if len(before) != len(after):
        raise Changed(before, f"came back with {len(after)} items instead of {len(before)}")
    index = 0
    try:
        for index, (left, right) in enumerate(zip(before, after, strict=True)):  # noqa: B007 - named on failure
            ensure_same(left, right)
    except Changed as changed:
        changed.parts.append(f"[{index}]")
        raise


def _unordered(before: Any, after: Any) -> None:
    _equal(before, after)
    found = {item: item for item in after}
    for item in before:
        ensure_same(item, found[item])


def _mapping(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
    if len(before) != len(after):
        raise Changed(before, f"came back with {len(after)} keys instead of {len(before)}")
    own_keys: dict[Any, Any] | None = None
    key: Any = None
    try:
        for key, left in before.items():
            if key not in after:
                raise Changed(key, "a key that did not come back as it was")
            if type(key) is not str:
                own_keys = own_keys or {own: own for own in after}
                ensure_same(key, own_keys[key])
            ensure_same(left, after[key])
    except Changed as changed:
        changed.parts.append(f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!a:.40}]")
        raise


def _model(before: BaseModel, after: BaseModel) -> None:
    names = type(before).__pydantic_fields__
    left, right = before.__dict__, after.__dict__
    _mapping({name: left.get(name) for name in names}, {name: right.get(name) for name in names})
    if before.__pydantic_extra__ or after.__pydantic_extra__:
        _mapping(before.__pydantic_extra__ or {}, after.__pydantic_extra__ or {})
    if before.__pydantic_private__ != after.__pydantic_private__:
        raise Changed(before, "its private attributes did not come back")


def _record(before: Any, after: Any) -> None:
    names = [field.name for field in fields(before)]
    _mapping({name: getattr(before, name) for name in names}, {name: getattr(after, name) for name in names})


type _Comparer = Callable[[Any, Any], None]

_TYPES: tuple[tuple[type | tuple[type, ...], _Comparer], ...] = (
    (Enum, _equal),
    (BaseModel, _model),
    ((str, bytes), _equal),
    (Decimal, _decimal),
    (datetime, _instant),
    ((list, tuple, deque), _sequence),
    ((set, frozenset), _unordered),
    (Mapping, _mapping),
)


def _comparer_of(kind: type[Any]) -> _Comparer:
    for types, compare in _TYPES:
        if issubclass(kind, types):
            return compare
    return _record if is_dataclass(kind) else _equal


_COMPARE: dict[type[Any], _Comparer] = {
    kind: _comparer_of(kind)
    for kind in (type(None), bool, int, float, str, list, tuple, dict, set, frozenset, Decimal, datetime)
}
