"""The deployment's limits: one settings block (`APPROVALS_LIMITS`), read once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from django.conf import settings


@dataclass(frozen=True, slots=True)
class Limits:
    """Each with its unit; settings override by name."""

    payload_bytes: int = 1_000_000
    """Of one value as stored: an input, a step's result, a request, a message."""
    journal_entries: int = 50_000
    """Of one run."""
    attempts: int = 100
    """The most that a step or an effect may ask for."""
    turn_seconds: float = 86_400
    """How long one turn may hold a run; a hung thread must not hold it for ever."""
    turns_lost: int = 5
    """Turns lost in a row without a newly completed position, before an operator is asked."""
    buffer_seconds: float = 1
    """How long a result of an `async` step may wait for its commit."""
    effect_grace_seconds: float = 5
    """After a call's deadline, before a look-up that finds nothing is believed."""
    strand_seconds: float = 60
    """How long no live worker may know a run's version, before an operator is asked."""
    body_bytes: int = 1_000_000
    """Of one request to the web."""
    file_bytes: int = 20_000_000
    """Of one file that somebody sends with a form."""
    map_items: int = 10_000
    """Of one ctx.map."""


@cache
def limits() -> Limits:
    """The limits in force."""
    return Limits(**getattr(settings, "APPROVALS_LIMITS", {}))
