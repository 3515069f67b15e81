"""Rows in any status, as the constraints want them, and a picture of everything that is stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from approvals import clock
from approvals.models import Approval, Decision, Effect, Entry, Message, Outbox, Run, Wait, Worker
from approvals.states import RUN_FINAL, WAIT_CLOSED

DIGEST = "d" * 64


def worker() -> Worker:
    now = clock.now()
    return Worker.objects.create(name="w", started_at=now, lease_until=now + timedelta(seconds=15))


def run(status: str = "running", **columns: Any) -> Run:
    now = clock.now()
    made = Run(workflow="odd", version=1, status=status, input="1", seed=clock.new_id(), seq=1)
    made.ready_at = made.created_at = now
    if status == "running":
        made.worker, made.fence = worker(), 1
    if status in RUN_FINAL:
        made.finished_at = now
    for name, value in columns.items():
        setattr(made, name, value)
    made.save(force_insert=True)
    return made


def effect(of: Run, status: str = "intended", **columns: Any) -> Effect:
    made = Effect(run=of, position=1, name="e", kind="test.none", status=status, key=f"{of.pk}-1-1")
    made.request, made.digest = "{}", DIGEST
    if status not in ("intended", "withdrawn"):
        made.sent_at = clock.now() - timedelta(hours=1)
        made.deadline_at = made.sent_at + timedelta(seconds=30)
        made.sends = 1
    if status in ("committed", "verified", "contradicted", "compensated"):
        made.external_id = "x"
    for name, value in columns.items():
        setattr(made, name, value)
    made.save(force_insert=True)
    return made


def wait(of: Run, status: str = "open", kind: str = "signal", **columns: Any) -> Wait:
    now = clock.now()
    made = Wait(run=of, position=1, kind=kind, name="w", status=status, opened_at=now)
    if status in WAIT_CLOSED:
        made.closed_at, made.closed_seq, made.outcome = now, 1, "left" if status == "cancelled" else status
    for name, value in columns.items():
        setattr(made, name, value)
    made.save(force_insert=True)
    return made


def everything() -> dict[str, list[Any]]:
    """Every row of every table that a transition may touch."""
    tables = (Run, Entry, Effect, Wait, Message, Approval, Decision, Outbox)
    return {t.__name__: list(t._default_manager.order_by("pk").values()) for t in tables}
