"""Time in a cell. It passes as everywhere, and is moved on, for everybody at once, while nothing else can happen.

So a call has half a minute, which no machine is too busy for, and nobody has to wait for it to pass.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

from django.db.models import Exists, Min, Q

from approvals import clock
from approvals.engine import effects, recovery
from approvals.limits import limits
from approvals.models import Effect, Outbox, Run, Wait
from approvals.testing import clock as database_clock
from approvals.workflows import effects as authoring

_SOON_SECONDS = 300.0
"""What is due later than this is not waited for."""


class Moved:
    """How far the clocks of a cell are ahead of this machine's. Every process of the cell reads it from one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _seconds(self) -> float:
        return float(self._path.read_text()) if self._path.exists() else 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self._seconds()

    def monotonic(self) -> float:
        """As `time.monotonic`."""
        return time.monotonic() + self._seconds()

    def on(self, seconds: float) -> None:
        """Moves them. One process at a time does so; the world's first: what must have landed by now has."""
        draft = self._path.with_suffix(".draft")
        draft.write_text(repr(self._seconds() + seconds))
        draft.replace(self._path)
        database_clock.shift(timedelta(seconds=seconds))

    def followed(self) -> None:
        """From here on this process measures its calls by it."""
        for module in (effects, recovery, authoring):
            setattr(module, "time", self)  # noqa: B010


def on_to(moved: Moved, due: datetime | None) -> bool:
    """Until this is due; False if that is not soon."""
    if due is None:
        return False
    seconds = (due - clock.now()).total_seconds()
    if seconds <= _SOON_SECONDS:
        moved.on(max(seconds, 0) + 0.002)
    return seconds <= _SOON_SECONDS


def next_due() -> datetime | None:
    """The next timer, what a dead sender had taken from the outbox, or when an operator is believed who saw nothing."""
    now, grace = clock.now(), timedelta(seconds=limits().effect_grace_seconds)
    timers = Wait.objects.filter(status="open", due_at__gt=now).aggregate(at=Min("due_at"))
    taken = Outbox.objects.exclude(kind=Outbox.Kind.PROBE).filter(due_at__gt=now).aggregate(at=Min("due_at"))
    doubts = Effect.objects.filter(status="in_doubt", deadline_at__gt=now - grace).aggregate(
        at=Min("deadline_at")
    )
    settled = doubts["at"] + grace if doubts["at"] is not None else None
    return min((due for due in (timers["at"], taken["at"], settled) if due is not None), default=None)


def nothing_moves() -> bool:
    """Whether no worker has, or can have, anything to do now. One statement, so of one moment."""
    now = clock.now()
    is_due = Exists(Wait.objects.filter(status="open", due_at__lte=now)) | Exists(
        Outbox.objects.filter(due_at__lte=now)
    )
    return not Run.objects.filter(Q(status__in=("pending", "running")) | is_due).exists()
