"""What RQ calls. A job carries a hint, never work that could be lost: the database decides."""

from __future__ import annotations

from approvals import outbox


def wake() -> None:
    """Wakes the worker of the process that runs this job."""
    outbox.wake_here()
