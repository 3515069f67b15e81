"""How single values are written, and the refusal of those that cannot be."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic_core import to_jsonable_python

SHOWN_PATH_PARTS = 12


class Refused(Exception):
    """A part of the value has no canonical form; the containers around it add their path."""

    def __init__(self, value: Any, reason: str) -> None:
        super().__init__(reason)
        self.kind = type(value).__name__
        self.reason = reason
        self.parts: list[str] = []

    def path(self) -> str:
        outermost = self.parts[::-1]
        shown = "".join(outermost[:SHOWN_PATH_PARTS])
        return shown + "…" if len(outermost) > SHOWN_PATH_PARTS else shown


def instant_text(value: datetime) -> str:
    if value.utcoffset() is None:
        raise Refused(value, "a datetime without a time zone")
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        raise Refused(value, "a datetime outside the years 1 to 9999 in UTC") from None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise Refused(value, "NaN and infinities have no JSON form")
    return str(value)


def key_text(key: Any) -> str:
    """A key that is no string, as pydantic writes it in JSON."""
    if isinstance(key, Enum):
        return key_text(key.value)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, datetime):
        return instant_text(key)
    if key is None or isinstance(key, bool | int | float | Decimal | date | time | timedelta | UUID):
        if isinstance(key, float | Decimal) and not Decimal(key).is_finite():
            raise Refused(key, "NaN and infinities have no JSON form")
        written: str = next(iter(to_jsonable_python({key: None})))
        return written
    if isinstance(key, bytes):
        return b64encode(key).decode()
    raise Refused(key, "a key of this type has no canonical form")
