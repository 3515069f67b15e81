"""Takes away what nobody needs any more: sessions that are over, rows of workers that are long gone.

Bounded and idempotent; nothing depends on it having run. An outbox row is removed by what works it off, and
kept until that succeeds, so none is ever left over.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from importlib import import_module

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from approvals import clock, outbox
from approvals.models import Run, Worker
from approvals.states import RunStatus

log = logging.getLogger(__name__)

KEPT = timedelta(days=1)
"""How long the row of a worker that is gone tells an operator that it was there."""
EVERY = timedelta(hours=1)
_LOOK_SECONDS = 600.0  # a Redis that is away costs one look, not an hour
_MOST_WORKERS = 100  # each costs a look at the runs, which must not name it


def tidy() -> int:
    """One bounded pass; how many rows of workers it removed."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
    return _forget_workers()


def _forget_workers() -> int:
    """Workers that were stopped, or silent, for a day and hold no run: not even one that they may not keep."""
    long_ago = clock.now() - KEPT
    gone = Worker.objects.filter(Q(stopped_at__lt=long_ago) | Q(lease_until__lt=long_ago))
    holders = Run.objects.filter(status=RunStatus.RUNNING).values("worker")
    with transaction.atomic():
        chosen = gone.exclude(pk__in=holders).order_by("pk").values_list("pk", flat=True)[:_MOST_WORKERS]
        removed, _ = Worker.objects.filter(pk__in=list(chosen)).delete()
    return removed


class Housekeeper:
    """Asked by whoever sweeps, as often as it likes: in RQ's queue where there is one, else here."""

    def __init__(self) -> None:
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._next_here = 0.0

    def look(self) -> None:
        """Sees to it that housekeeping is done about once an hour. Raises nothing: a sweep is worth more."""
        if (now := time.monotonic()) < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        if getattr(settings, "RQ_QUEUES", None):
            outbox.ask_for_housekeeping(EVERY)
        elif now >= self._next_here:
            self._next_here = now + EVERY.total_seconds()
            try:
                tidy()
            except Exception:
                log.exception("housekeeping failed; it is tried again in an hour")
