"""Finds every runnable row from the database alone: hints may all be lost.

Each piece of work locks its own run and looks again; one that fails does not keep the others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.models import Q

from approvals import clock, outbox
from approvals.engine import leases, probes
from approvals.engine.cases import open_case
from approvals.errors import LeaseLost
from approvals.limits import limits
from approvals.models import Outbox, Run, Wait, Worker
from approvals.states import RunStatus, WaitKind, WaitStatus
from approvals.transitions import Transaction, locked, runs, waits

log = logging.getLogger(__name__)

BATCH = 200


def sweep(*, patience_seconds: float = 0) -> int:
    """One bounded pass; how many runs it moved. With patience, a lock must have been gone for so long."""
    taken = _take_from_the_dead(patience_seconds)
    return taken + sum(work() for work in (_apply_due, _cancel, _strand, _outbox))


def _each(what: str, ids: Any, work: Callable[[Transaction], Any]) -> int:
    moved = 0
    for run_id in ids:
        try:
            with locked(run_id) as tx:
                moved += bool(work(tx))
        except LeaseLost:  # pragma: no cover - nothing is held here
            continue
        except Exception:
            log.exception("sweep: %s of run %s failed; the others go on", what, run_id)
    return moved


def _take_from_the_dead(patience_seconds: float) -> int:
    moved = 0
    for worker in leases.dead(patience_seconds):
        ids = list(
            Run.objects.filter(status=RunStatus.RUNNING, worker=worker.id).values_list("pk", flat=True)[
                :BATCH
            ]
        )

        def take(tx: Transaction, worker: leases.Dead = worker) -> bool:
            if tx.run.status != RunStatus.RUNNING or tx.run.worker_id != worker.id:
                return False
            runs.lose_lease(
                tx, why=f"worker {worker.name}: {worker.why}", noticed_after=max(worker.silent_seconds, 0)
            )
            return True

        moved += _each("taking over", ids, take)
        if len(ids) < BATCH and not Run.objects.filter(status=RunStatus.RUNNING, worker=worker.id).exists():
            leases.bury(worker.id)
    return moved


def _apply_due() -> int:
    due = (
        Wait.objects.filter(status=WaitStatus.OPEN, due_at__lte=clock.Now())
        .order_by("due_at")
        .values_list("run_id", flat=True)[:BATCH]
    )
    return _each("applying deadlines", dict.fromkeys(due), waits.apply_due)


def _cancel() -> int:
    """Runs to be cancelled that no worker holds."""
    ids = (
        Run.objects.filter(cancel_requested_at__isnull=False, finished_at=None)
        .exclude(status=RunStatus.RUNNING)
        .order_by("cancel_requested_at")
        .values_list("pk", flat=True)[:BATCH]
    )
    return _each("cancelling", list(ids), cancel_unheld)


def cancel_unheld(tx: Transaction) -> bool:
    """Cancels at once, or has what is in doubt settled first; a case or a grace timer of it is waited for."""
    if tx.run.status in (RunStatus.RUNNING, *_FINAL) or tx.run.cancel_requested_at is None:
        return False
    if not runs.unsettled(tx):
        runs.cancel(tx)
        return True
    if tx.run.status in (RunStatus.SUSPENDED, RunStatus.PAUSED) and not _doubt_is_waited_for(tx.run.pk):
        runs.unwind(tx)
        return True
    return False


_FINAL = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


def _doubt_is_waited_for(run_id: UUID) -> bool:
    doubtful = Run.objects.get(pk=run_id).effects.filter(status="in_doubt").values("position")
    open_ = Wait.objects.filter(run=run_id, status=WaitStatus.OPEN, position__in=doubtful)
    return open_.filter(Q(kind=WaitKind.RECONCILIATION) | Q(kind=WaitKind.TIMER)).exists()


def _strand() -> int:
    """Runs whose version no live worker has known for a while."""
    old = clock.now()
    waiting = Run.objects.filter(status=RunStatus.PENDING, ready_at__lte=old).order_by("ready_at")
    known = {
        tuple(pair)
        for versions in Worker.objects.filter(stopped_at=None, lease_until__gt=old).values_list(
            "versions", flat=True
        )
        for pair in json.loads(versions)
    }
    late = [
        r
        for r in waiting.only("pk", "workflow", "version", "ready_at")[:BATCH]
        if (r.workflow, r.version) not in known
        and (old - r.ready_at).total_seconds() >= limits().strand_seconds
    ]

    def strand(tx: Transaction) -> bool:
        if tx.run.status != RunStatus.PENDING:
            return False
        what = {"workflow": tx.run.workflow, "version": tx.run.version}
        open_case(tx, "version unknown", tx.run.position, what)
        return True

    return _each("stranding", [r.pk for r in late], strand)


def _outbox() -> int:
    rows = outbox.take(BATCH)
    for row in rows:
        try:
            _HANDLERS[row.kind](row)
        except Exception:
            log.exception("outbox row %s (%s) failed; it is tried again", row.pk, row.kind)
    return len(rows)


def _child_ended(row: Outbox) -> None:
    """The child's end is a message that closes its parent's wait, in a transaction of the parent's."""
    child = Run.objects.get(pk=row.subject)
    value = {"output": child.output} if child.status == RunStatus.COMPLETED else {"error": child.error}
    if child.parent_run is None or child.parent_wait is None:
        return
    with locked(child.parent_run) as tx:
        waits.apply_due(tx)
        wait = Wait.objects.filter(pk=child.parent_wait, status=WaitStatus.OPEN).first()
        if wait is not None:
            waits.resolve(tx, wait, child.status, value)
        outbox.done(row)


def _cancel_child(row: Outbox) -> None:
    """The parent no longer waits for this child."""
    child = Run.objects.filter(parent_wait=row.subject, finished_at=None).first()
    if child is None:
        outbox.done(row)
        return
    with locked(child.pk) as tx:
        if tx.run.finished_at is None:
            runs.flag_cancel(tx, actor="its parent", reason="its parent no longer waits for it")
            cancel_unheld(tx)
        outbox.done(row)


def _probe(row: Outbox) -> None:
    probes.probe(row.subject)
    outbox.done(row)


_HANDLERS: dict[str, Callable[[Outbox], None]] = {
    Outbox.Kind.CHILD_ENDED: _child_ended,
    Outbox.Kind.CANCEL_CHILD: _cancel_child,
    Outbox.Kind.PROBE: _probe,
}
