"""What RQ calls. A job carries a hint, never work that could be lost: the database decides."""

from __future__ import annotations

from rq import get_current_job

from approvals import outbox


def wake() -> None:
    """Wakes the worker of the process that runs this job."""
    job = get_current_job()
    if job is not None:  # first, so that a hint given from now on gets a job of its own
        job.connection.delete(outbox.WAKE_KEY)
    outbox.wake_here()
