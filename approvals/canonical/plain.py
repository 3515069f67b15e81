"""The plain form of a value: dicts, lists, strings and numbers, as the table of this package lists them."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import rfc8785
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError, to_jsonable_python

from approvals.canonical.leaves import Refused, decimal_text, instant_text, key_text

MAX_DEPTH = 200
SAFE_INTEGER = 2**53 - 1
CACHED_TYPES = 4096

# Identical to RFC 8785 for a `Plain` tree that did not set `irregular`.
_encode_regular = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, sort_keys=True, separators=(",", ":")
).encode


type _Handler = Callable[["Plain", Any, int], Any]


class Plain:
    """Turns values into plain dicts, lists, strings and numbers, and these into bytes.

    `irregular` is set when the standard library's encoder would not write what RFC 8785 asks for: a
    number in exponent notation, or a key outside the basic plane (UTF-16 sorts it differently).
    """

    __slots__ = ("irregular",)

    def __init__(self) -> None:
        self.irregular = False

    def plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        handler = _HANDLERS.get(kind)
        if handler is None:
            handler = _handler_of(kind)
            if len(_HANDLERS) < CACHED_TYPES:
                _HANDLERS[kind] = handler
        return handler(self, value, depth)

    def encode(self, plain: Any) -> bytes:
        if self.irregular:
            return rfc8785.dumps(plain)
        return _encode_regular(plain).encode()

    def text(self, value: str, depth: int) -> str:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Refused(value, "text with a lone surrogate") from None
        return value

    def integer(self, value: int, depth: int) -> Any:
        if -SAFE_INTEGER <= value <= SAFE_INTEGER:
            return int(value)
        try:
            return {"$int": int.__repr__(value)}
        except ValueError:  # more digits than Python will write: sys.set_int_max_str_digits
            raise Refused(value, "an integer of too many digits") from None

    def number(self, value: float, depth: int) -> Any:
        if value != value or value in (float("inf"), float("-inf")):
            raise Refused(value, "NaN and infinities have no JSON form")
        value = float(value)
        if value.is_integer() and abs(value) <= SAFE_INTEGER:
            return int(value)
        if value.is_integer() or "e" in repr(value):
            self.irregular = True
        return value

    def array(self, value: Any, depth: int) -> list[Any]:
        if depth >= MAX_DEPTH:
            raise Refused(value, f"nested deeper than {MAX_DEPTH}")
        out: list[Any] = []
        try:
            for item in value:
                out.append(self.plain(item, depth + 1))
        except Refused as refused:
            refused.parts.append(f"[{len(out)}]")
            raise
        return out

    def unordered(self, value: AbstractSet[Any], depth: int) -> list[Any]:
        return sorted(self.array(value, depth), key=self.encode)

    def object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        if depth >= MAX_DEPTH:
            raise Refused(value, f"nested deeper than {MAX_DEPTH}")
        out: dict[str, Any] = {}
        key: Any = None
        try:
            for key, item in value.items():
                written = self.key(key)
                if written in out:
                    raise Refused(key, "two keys of one object are written alike")
                out[written] = self.plain(item, depth + 1)
        except Refused as refused:
            refused.parts.append(
                f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!a:.40}]"
            )
            raise
        return out

    def key(self, key: Any) -> str:
        text = key if type(key) is str else key_text(key)
        if not text.isascii():
            self.text(text, 0)
            self.irregular = self.irregular or max(text) > "\uffff"
        return "$" + text if text.startswith("$") else text

    def model(self, value: BaseModel, depth: int) -> Any:
        try:
            dumped = value.model_dump(
                round_trip=True, by_alias=False, warnings="none", polymorphic_serialization=True
            )
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise Refused(value, f"pydantic cannot write it ({type(error).__name__})") from None
        return self.plain(dumped, depth)

    def record(self, value: Any, depth: int) -> dict[str, Any]:
        return self.object({field.name: getattr(value, field.name) for field in fields(value)}, depth)

    def secret(self, value: Any, depth: int) -> dict[str, str]:
        inner = value.get_secret_value()
        if isinstance(inner, str):
            inner = self.text(inner, depth).encode()
        elif not isinstance(inner, bytes):
            inner = Plain.encode(self, self.plain(inner, depth))
        return {"$secret_sha256": hashlib.sha256(inner).hexdigest()}

    def other(self, value: Any, depth: int) -> dict[str, str]:
        try:
            written = str(value) if isinstance(value, PurePath) else to_jsonable_python(value)
        except (PydanticSerializationError, ValueError, RecursionError):
            written = None
        if not isinstance(written, str) or isinstance(value, type) or callable(value):
            raise Refused(value, "this type has no canonical form")
        return {"$text": self.text(written, depth)}


def _tagged(tag: str, write: Callable[[Any], str]) -> _Handler:
    return lambda writer, value, depth: {tag: write(value)}


_TYPES: tuple[tuple[tuple[type, ...], _Handler], ...] = (
    # The first entry whose types hold decides; Enum precedes the types it may be mixed with.
    ((Enum,), lambda writer, value, depth: writer.plain(value.value, depth)),
    ((BaseModel,), Plain.model),
    ((bool, type(None)), lambda writer, value, depth: value),
    ((str,), lambda writer, value, depth: writer.text(str.__str__(value), depth)),
    ((int,), Plain.integer),
    ((float,), Plain.number),
    ((Mapping,), Plain.object),
    ((list, tuple, deque), Plain.array),
    ((AbstractSet,), Plain.unordered),
    ((bytes, bytearray), _tagged("$bytes", lambda value: b64encode(value).decode())),
    ((Decimal,), _tagged("$decimal", decimal_text)),
    ((datetime,), _tagged("$instant", instant_text)),
    ((date,), _tagged("$date", date.isoformat)),
    ((time,), _tagged("$time", time.isoformat)),
    ((timedelta,), _tagged("$microseconds", lambda value: str(value // timedelta(microseconds=1)))),
    ((UUID,), _tagged("$uuid", str)),
    ((SecretStr, SecretBytes, Secret), Plain.secret),
)


def _handler_of(kind: type[Any]) -> _Handler:
    for types, handler in _TYPES:
        if issubclass(kind, types):
            return handler
    return Plain.record if is_dataclass(kind) else Plain.other


_HANDLERS: dict[type[Any], _Handler] = {
    kind: _handler_of(kind)
    for kind in (
        type(None),
        bool,
        int,
        float,
        list,
        tuple,
        dict,
        set,
        frozenset,
        bytes,
        Decimal,
        datetime,
        date,
        UUID,
    )
} | {str: Plain.text}
