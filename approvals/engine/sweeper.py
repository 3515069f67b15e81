"""Finds every runnable row from the database alone: hints may all be lost.

Each piece of work locks its own run and looks again; one that fails does not keep the others. No author
code runs here: whoever sweeps keeps all others from sweeping.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, cast
from uuid import UUID

from django.db.models import Q, QuerySet

from approvals import clock, outbox
from approvals.engine import leases
from approvals.engine.cases import open_case
from approvals.limits import limits
from approvals.models import Outbox, Run, Wait, Worker, statements
from approvals.states import RunStatus, WaitKind, WaitStatus
from approvals.transitions import Transaction, locked, runs, waits

log = logging.getLogger(__name__)

BATCH = 200
VERSION_UNKNOWN, KNOWN_AGAIN = "version unknown", "known again"
_LONGEST_REST_SECONDS = 60.0
_failing: dict[tuple[str, UUID], tuple[int, float]] = {}
"""What failed here for which run: how often in a row, and until when others go before it."""


def sweep(*, patience_seconds: float = 0) -> int:
    """One bounded pass; how many runs it moved. With patience, a lock must have been gone for so long."""
    taken = _take_from_the_dead(patience_seconds)
    works = (_apply_due, _cancel, _strand, _heal, _outbox)
    return taken + sum(work() for work, is_there in zip(works, _what_there_is(), strict=True) if is_there)


def _what_there_is() -> statements.Row:
    """For each kind of work, whether there may be any. Mostly there is none: one statement then, instead of nine."""
    now = clock.now()
    late = now - timedelta(seconds=limits().strand_seconds)
    return statements.run(_THERE_IS, [now, late, VERSION_UNKNOWN, now])[0]


# Each as wide as the work's own question, or wider; each by the same index.
_THERE_IS = """
SELECT
  EXISTS (SELECT 1 FROM approvals_wait WHERE status = 'open' AND due_at <= %s),
  EXISTS (SELECT 1 FROM approvals_run WHERE cancel_requested_at IS NOT NULL AND finished_at IS NULL
    AND status <> 'running'),
  EXISTS (SELECT 1 FROM approvals_run WHERE status = 'pending' AND ready_at <= %s),
  EXISTS (SELECT 1 FROM approvals_wait WHERE status = 'open' AND kind = 'reconciliation'
    AND kind IN ('approval', 'reconciliation') AND name = %s),
  EXISTS (SELECT 1 FROM approvals_outbox WHERE due_at <= %s)
"""


def _each(what: str, rows: QuerySet[Any], work: Callable[[Transaction], Any], *, of: str = "pk") -> int:
    """Works on a batch of runs, which `rows` names in column `of`; how many moved."""
    moved, now = 0, time.monotonic()
    resting = [run_id for (name, run_id), (_, until) in _failing.items() if name == what and until > now]
    if resting:
        rows = rows.exclude(**{f"{of}__in": resting})
    for run_id in dict.fromkeys(rows.values_list(of, flat=True)[:BATCH]):
        try:
            with locked(run_id) as tx:
                moved += bool(work(tx))
            _failing.pop((what, run_id), None)
        except Exception:
            log.exception("sweep: %s of run %s failed; the others go on", what, run_id)
            _let_rest(what, run_id)
    return moved


def _let_rest(what: str, run_id: UUID) -> None:
    """It is tried again in the next pass, and then less and less often."""
    now = time.monotonic()
    for key in [k for k, (_, until) in _failing.items() if until < now - 2 * _LONGEST_REST_SECONDS]:
        del _failing[key]
    times = _failing.get((what, run_id), (0, 0.0))[0] + 1
    _failing[what, run_id] = times, now + min(2.0 ** min(times - 1, 10) - 1, _LONGEST_REST_SECONDS)


def _take_from_the_dead(patience_seconds: float) -> int:
    moved = 0
    for worker in leases.dead(patience_seconds):

        def take(tx: Transaction, worker: leases.Dead = worker) -> bool:
            if (
                tx.run.status != RunStatus.RUNNING
                or tx.run.worker_id != worker.id
                or leases.has_spoken(worker)
            ):
                return False
            runs.lose_lease(
                tx, why=f"worker {worker.name}: {worker.why}", noticed_after=max(worker.silent_seconds, 0)
            )
            return True

        held = Run.objects.filter(status=RunStatus.RUNNING, worker=worker.id)
        moved += _each("taking over", held, take)
        if not held.exists():
            leases.bury(worker)
    return moved


def _apply_due() -> int:
    # `now` is a parameter: an expression that changes while the statement runs could use no index.
    due = Wait.objects.filter(status=WaitStatus.OPEN, due_at__lte=clock.now()).order_by("due_at")
    return _each("applying deadlines", due, waits.apply_due, of="run_id")


def _cancel() -> int:
    """Runs to be cancelled that no worker holds."""
    return _each("cancelling", runs.to_cancel().order_by("cancel_requested_at"), _cancel_one)


def _cancel_one(tx: Transaction) -> bool:
    waits.apply_due(tx)
    return runs.cancel_unheld(tx)


def _strand() -> int:
    """Runs whose version no live worker has known for a while."""
    now = clock.now()
    since = now - timedelta(seconds=limits().strand_seconds)
    if not _known(
        now
    ):  # not even by whoever sweeps: all were held up together, and nobody has renewed its lease yet
        return 0
    late = Run.objects.filter(status=RunStatus.PENDING, ready_at__lte=since)
    if known := _known(since):  # a worker that starts again takes less time than that
        late = late.exclude(reduce(or_, (Q(workflow=name, version=version) for name, version in known)))
    return _each("stranding", late.order_by("ready_at"), _strand_one)


def _known(since: datetime) -> set[tuple[str, int]]:
    """Every (workflow, version) that a worker can continue that lives, or lived at some time after that."""
    workers = Worker.objects.filter(Q(stopped_at=None) | Q(stopped_at__gt=since), lease_until__gt=since)
    versions = set(workers.values_list("versions", flat=True))
    return {(name, version) for each in versions for name, version in json.loads(each)}


def _strand_one(tx: Transaction) -> bool:
    moved_since = tx.run.ready_at > tx.now - timedelta(seconds=limits().strand_seconds)
    if tx.run.status != RunStatus.PENDING or moved_since:
        return False
    what = {"workflow": tx.run.workflow, "version": tx.run.version}
    open_case(tx, VERSION_UNKNOWN, tx.run.position, what)
    return True


def _heal() -> int:
    """Runs that stand only because no live worker knew their version, where one does again."""
    stranded = _stranded()
    if not stranded.exists() or not (known := _known(clock.now())):
        return 0
    again = reduce(or_, (Q(run__workflow=name, run__version=version) for name, version in known))
    return _each("waking", stranded.filter(again).order_by("id"), _heal_one, of="run_id")


def _stranded() -> QuerySet[Wait]:
    return Wait.objects.filter(status=WaitStatus.OPEN, kind=WaitKind.RECONCILIATION, name=VERSION_UNKNOWN)


def _heal_one(tx: Transaction) -> bool:
    case = _stranded().filter(run=tx.run).first()
    if case is None or (tx.run.workflow, tx.run.version) not in _known(tx.now):
        return False
    told = {"resolution": KNOWN_AGAIN, "note": "a live worker knows this version again", "by": "the sweeper"}
    waits.resolve(tx, case, KNOWN_AGAIN, told)
    return True


def _outbox() -> int:
    rows = outbox.take(list(_HANDLERS), BATCH)
    outbox.work_off(rows, _HANDLERS)
    return len(rows)


def _child_ended(row: Outbox) -> None:
    """The child's end is a message that closes its parent's wait, in a transaction of the parent's."""
    child = Run.objects.get(pk=row.subject)
    value = {"output": child.output} if child.status == RunStatus.COMPLETED else {"error": child.error}
    parent, wait_id = cast("tuple[UUID, UUID]", (child.parent_run, child.parent_wait))
    with locked(parent) as tx:
        waits.apply_due(tx)
        waits.resolve(tx, Wait.objects.get(pk=wait_id), child.status, value)  # unless it is closed already
        outbox.done(row)


def _cancel_child(row: Outbox) -> None:
    """The parent no longer waits for this child."""
    child = Run.objects.filter(parent_wait=row.subject, finished_at=None).first()
    if child is None:
        outbox.done(row)
        return
    with locked(child.pk) as tx:
        if tx.run.finished_at is None:
            reason, undo = "its parent no longer waits for it", bool(json.loads(row.data).get("undo"))
            runs.flag_cancel(tx, actor="its parent", reason=reason, undo=undo)
            _cancel_one(tx)
        outbox.done(row)


_HANDLERS: dict[str, Callable[[Outbox], None]] = {
    Outbox.Kind.CHILD_ENDED: _child_ended,
    Outbox.Kind.CANCEL_CHILD: _cancel_child,
}
