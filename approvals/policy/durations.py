"""Durations as a policy file writes them: 1d12h."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

_UNITS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION: Final = re.compile("".join(rf"(?:([0-9]{{1,9}}){unit})?" for unit in _UNITS))
_MAX_SECONDS: Final = 3650 * 86_400


def duration_of(value: Any) -> timedelta | None:
    """What a policy file means; None for what is no duration of one second to ten years."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    sizes = zip(match.groups(), _UNITS.values(), strict=True) if match else ()
    seconds = sum(int(count) * size for count, size in sizes if count)
    return timedelta(seconds=seconds) if 0 < seconds <= _MAX_SECONDS else None


def duration_text(value: timedelta) -> str:
    """A duration as the policy file writes it."""
    seconds, parts = int(value.total_seconds()), []
    for unit, size in list(_UNITS.items())[1:]:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
