"""What authors ask of the context, checked before a position is taken: names, durations, texts that people read."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from approvals.errors import ContextMisuse, LimitExceeded, NotSerializable, PayloadTooLarge, fit
from approvals.limits import limits

NAME_CHARS = 10_000
MOST = 2**53
LONGEST = timedelta(days=36_525)
"""Of any wait: a hundred years. Beyond, a mistake is likelier than a wish, and calendars end at 9999."""
EARLIEST, LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def is_text(value: str) -> bool:
    """Whether every database keeps it: no NUL, no lone surrogate."""
    return "\x00" not in value and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value))


def name_of(call: str, name: Any) -> str:
    """A name as it is stored. Raises ContextMisuse (call, found)."""
    if not isinstance(name, str) or len(name) > NAME_CHARS or not is_text(name):
        told = f"A name is text of at most {NAME_CHARS} characters, without NUL and lone surrogates"
        raise ContextMisuse.of(
            told, call=f"ctx.{call}", found=ascii(name)[:60] if isinstance(name, str) else kind(name)
        )
    return name


def kind(value: Any) -> str:
    """A value's type, where showing the value itself might raise anything."""
    return f"a value of type {type(value).__name__}"


def span(call: str, name: str, value: Any) -> timedelta:
    """So long from now; what is past already is due at once.

    Raises ContextMisuse for what is no timedelta, LimitExceeded (call, name, found, limit) beyond a hundred years.
    """
    if not isinstance(value, timedelta):
        raise ContextMisuse.of(
            "A duration is a datetime.timedelta", call=f"ctx.{call}", name=name, found=kind(value)
        )
    if value > LONGEST:
        told = "No wait is longer than a hundred years; give a shorter one, or none at all"
        raise LimitExceeded.of(told, call=f"ctx.{call}", name=name, found=str(value), limit=str(LONGEST))
    return max(value, timedelta())


def instant(call: str, name: str, value: datetime) -> datetime:
    """A moment in time. Raises ContextMisuse for one without a zone, LimitExceeded outside 1900 to 2200."""
    if value.tzinfo is None or value.utcoffset() is None:
        told = "A moment in time needs a zone: an aware datetime, or a timedelta from now"
        raise ContextMisuse.of(told, call=f"ctx.{call}", name=name, found=repr(value))
    if not EARLIEST <= value <= LATEST:
        told = "A moment in time lies between the years 1900 and 2200"
        raise LimitExceeded.of(told, call=f"ctx.{call}", name=name, found=value.isoformat())
    return value


def shown_text(what: str, value: Any) -> str:
    """A text that people read, as it is stored.

    Raises NotSerializable (what, type, reason) for what is no text or what no database keeps, PayloadTooLarge.
    """
    if not isinstance(value, str):
        raise NotSerializable(what=what, type=type(value).__name__, reason="it is no text")
    if not is_text(value):
        raise NotSerializable(what=what, type="str", reason="it holds a NUL or a lone surrogate")
    if (found := len(value)) > limits().payload_bytes:
        raise PayloadTooLarge(what=what, found=found, limit=limits().payload_bytes)
    return value


def amount(of: str, value: Any) -> float:
    """A number for a progress bar. Raises ContextMisuse (of, found)."""
    if isinstance(value, int):
        return max(-MOST, min(value, MOST))
    if not isinstance(value, float) or not math.isfinite(value):
        raise ContextMisuse.of("Progress is told in numbers", call="ctx.progress", of=of, found=kind(value))
    return value


def note(value: Any) -> str:
    """A text beside a progress bar, which nothing keeps. Raises ContextMisuse."""
    if not isinstance(value, str):
        raise ContextMisuse.of("Progress is told in a text", call="ctx.progress", found=kind(value))
    return fit(value)
