"""The deployment's limits: one settings block (`APPROVALS_LIMITS`), read once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Each with its unit; settings override by name.

    Whoever meets one is told the value found, the value allowed, and what to do: PayloadTooLarge, LimitExceeded,
    InvalidWorkflow or InvalidInput. A run that meets one stops for an operator, its journal intact.
    """

    payload_bytes: int = 1_000_000
    """Of one value as stored: an input, a step's result, a request, a message, a text or evidence for people.
    No value is nested deeper than 200 levels (`canonical.MAX_DEPTH`), whatever its size."""
    journal_entries: int = 50_000
    """Of one run."""
    run_days: float = 1_000
    """How long a run may go on, from its start: one that would go on later than that asks an operator first, who
    may let it go on for as long again. Waiting costs nothing and is not judged before the run is woken."""
    nesting: int = 20
    """How deep children may have children of their own, so that a workflow that starts itself comes to an end."""
    attempts: int = 100
    """The most that a step or an effect may ask for."""
    turn_seconds: float = 86_400
    """How long one turn may hold a run; a hung thread must not hold it for ever."""
    turns_lost: int = 5
    """Turns lost in a row without a newly completed position, before an operator is asked. From 3 on, a run that was
    lost twice is tried alone first, so that those that merely shared its worker are not asked about."""
    buffer_seconds: float = 1
    """How long a result of an `async` step may wait for its commit."""
    effect_grace_seconds: float = 5
    """After a call's deadline, before a look-up that finds nothing is believed."""
    strand_seconds: float = 60
    """How long no live worker may know a run's version, before an operator is asked."""
    body_bytes: int = 1_000_000
    """Of one request to the web."""
    file_bytes: int = 20_000_000
    """Of one file that somebody sends with a form, or saves from a page."""
    map_items: int = 10_000
    """Of one ctx.map."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, whole = getattr(self, field.name), field.type == "int"
            good = type(value) in ((int,) if whole else (int, float)) and int(whole) <= value < MOST
            if not good:
                needs = f"a whole number from 1 to {MOST}" if whole else f"a number from 0 to {MOST}"
                raise ImproperlyConfigured(f"APPROVALS_LIMITS: {field.name} is {value!r}; it needs {needs}")


@cache
def limits() -> Limits:
    """The limits in force. Raises ImproperlyConfigured."""
    given = getattr(settings, "APPROVALS_LIMITS", {})
    known = [field.name for field in fields(Limits)]
    if unknown := sorted(set(given) - set(known)):
        raise ImproperlyConfigured(
            f"APPROVALS_LIMITS: unknown {', '.join(unknown)}; known: {', '.join(known)}"
        )
    return Limits(**given)
