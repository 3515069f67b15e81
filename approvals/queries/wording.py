"""How instants, durations, ids and statuses are said, alike on every page and in the admin."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.timezone import localtime

TONES: Mapping[str, str] = {
    **dict.fromkeys(
        ("completed", "verified", "committed", "approved", "resolved", "consumed", "alive"), "good"
    ),
    **dict.fromkeys(
        ("suspended", "paused", "open", "intended", "dispatched", "medium", "changes_requested", "buffered"),
        "warn",
    ),
    **dict.fromkeys(
        ("failed", "in_doubt", "contradicted", "rejected", "expired", "refused", "high", "gone", "late"),
        "bad",
    ),
    **dict.fromkeys(("pending", "running"), "busy"),
}
"""Whether a status is good news; one that is not here is neither."""

_UNITS = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def absolute(at: datetime) -> str:
    """29 Nov 2026, 18:51:07 UTC."""
    local = localtime(at)
    return f"{local.day} {local:%b %Y, %H:%M:%S %Z}"


def relative(at: datetime, now: datetime) -> str:
    """`just now`, `12 minutes ago`, `in 48 minutes`; live.js says it in the same words."""
    seconds = (now - at).total_seconds()
    if -1 < seconds < 5:
        return "just now"
    return f"{amount(seconds)} ago" if seconds > 0 else f"in {amount(-seconds)}"


def amount(seconds: float) -> str:
    """A duration in its largest unit that gives at least two, else one: `90 seconds`, `3 hours`, `1 day`."""
    for size, unit in _UNITS:
        if seconds >= 2 * size or (unit == "second"):
            count = max(int(seconds // size), 1)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    raise AssertionError("seconds end the list")


def short(identifier: Any) -> str:
    """The end of an id, which is what differs between two that were made at about the same time."""
    return f"…{str(identifier)[-8:]}"
