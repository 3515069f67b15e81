"""What RQ calls. A job carries a hint or housekeeping, never work that could be lost: the database decides."""

from __future__ import annotations

from approvals import outbox
from approvals.engine import housekeeping as engine_housekeeping


def wake() -> None:
    """Wakes the worker of the process that runs this job."""
    outbox.wake_here()


def housekeeping() -> None:
    """Takes away what nobody needs any more; the sweeping worker asks for it once an hour."""
    engine_housekeeping.tidy()
