"""Events of a run."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals import outbox
from approvals.errors import IllegalTransition
from approvals.journal import Held, Transaction
from approvals.models import Effect, Entry, Outbox, Run, Wait
from approvals.states import EFFECT_UNSETTLED, RUN_FINAL, EffectStatus, RunStatus, WaitKind, WaitStatus

BLOCKS_COMPLETION = (*EFFECT_UNSETTLED, EffectStatus.INTENDED, EffectStatus.CONTRADICTED)


def asked_to_stop(tx: Transaction) -> bool:
    """Whether somebody asked this run to cancel or to pause."""
    return tx.run.cancel_requested_at is not None or tx.run.pause_requested_at is not None


def suspend(
    tx: Transaction,
    parked: Collection[tuple[UUID, int]],
    *,
    all_of: bool = False,
    in_doubt: bool = False,
) -> bool:
    """Parks the run on waits (id, Wait.KEEP or Wait.CANCEL); False if the condition is met already.

    Then, or when the run was asked to stop, it yields instead; not while what is `in_doubt` needs its time.
    """
    parking = modes(parked, all_of=all_of)
    still_open = _still_open(tx, parking)
    met = not still_open if all_of else len(still_open) < len(parking)
    if met or (asked_to_stop(tx) and not in_doubt):
        _unpark(tx)
        yield_(tx)
        return False
    for mode in sorted(set(parking.values())):
        if those := [i for i, m in parking.items() if m == mode and still_open.get(i, m) != m]:
            Wait.objects.filter(pk__in=those).update(parked=mode)
    tx.move_run("suspend", {"parked_left": len(still_open) if all_of else 1})
    return True


def modes(parked: Collection[tuple[UUID, int]], *, all_of: bool) -> dict[UUID, int]:
    """How each of these waits is parked on."""
    given = dict(parked)
    return dict.fromkeys(given, Wait.TOGETHER) if all_of or len(given) == 1 else given


def met_on_arrival(tx: Transaction, parking: Mapping[UUID, int], *, all_of: bool) -> bool:
    """Whether messages that were there when this transaction opened these waits are all that is waited for."""
    closed = [i for i in parking if i in tx.opened and tx.opened[i].status != WaitStatus.OPEN]
    met = len(closed) == len(parking) if all_of else bool(closed)
    if met:
        _unpark(tx)
    return met


def _unpark(tx: Transaction) -> None:
    """The run does not suspend on what was opened for that."""
    for wait in tx.opened.values():
        if wait.status == WaitStatus.OPEN and wait.parked != Wait.NOT_PARKED:
            wait.parked = Wait.NOT_PARKED
            Wait.objects.filter(pk=wait.pk).update(parked=Wait.NOT_PARKED)


def _still_open(tx: Transaction, ids: Mapping[UUID, int]) -> dict[UUID, int]:
    """The open ones, as they are parked now; those that this transaction opened need no second look."""
    known = {i: w for i, w in tx.opened.items() if i in ids}
    found = {i: w.parked for i, w in known.items() if w.status == WaitStatus.OPEN}
    if unknown := [i for i in ids if i not in known]:
        found.update(Wait.objects.filter(pk__in=unknown, status=WaitStatus.OPEN).values_list("pk", "parked"))
    return found


def yield_(tx: Transaction) -> None:
    """Gives the run back at a boundary; nothing is dispatched."""
    tx.move_run("yield", {"ready_at": tx.now, "verify_due": False})
    tx.hint()


def lose_lease(tx: Transaction, *, why: str, noticed_after: float | None = None) -> None:
    """Takes the run from a worker that is gone; what it had dispatched is in doubt from here on."""
    _doubt_what_was_sent(tx, why)
    tx.move_run(
        "lose_lease",
        {"ready_at": tx.now, "turns_lost": tx.run.turns_lost + 1, "verify_due": True},
        why=why,
        noticed_after_seconds=noticed_after,
    )
    tx.hint()


def _doubt_what_was_sent(tx: Transaction, why: str) -> None:
    """No run that is not running may have a call under way (I4)."""
    for effect in Effect.objects.select_for_update().filter(run=tx.run, status=EffectStatus.DISPATCHED):
        tx.move(effect, "doubt", {"reason": why}, reason=why, lost=True)


def wake(tx: Transaction, *, losers: bool) -> None:
    """The parked condition is met: losers, if there can be any, are closed here, with the winner, or never."""
    parked = Wait.objects.filter(run=tx.run, status=WaitStatus.OPEN).exclude(parked=Wait.NOT_PARKED)
    for loser in parked if losers else ():
        if loser.parked == Wait.CANCEL:
            leave_wait(tx, loser)
        else:
            Wait.objects.filter(pk=loser.pk).update(parked=Wait.NOT_PARKED)
    tx.move_run("wake", {"ready_at": tx.now, "parked_left": 0, "verify_due": True})
    tx.hint()


def leave_wait(tx: Transaction, wait: Wait) -> None:
    """Closes a wait that its run no longer needs; a child is asked to cancel."""
    tx.move(wait, "cancel", {"outcome": "left"})
    if wait.kind == WaitKind.CHILD:
        outbox.put(Outbox.Kind.CANCEL_CHILD, wait.pk, run=str(tx.run.pk))


def stop(tx: Transaction, wait: Wait) -> None:
    """Stops a running run for an operator at a new reconciliation wait."""
    _doubt_what_was_sent(tx, f"the run stopped: {wait.name}")
    tx.move(wait, "open", {"parked": Wait.KEEP}, wait=wait.kind, ordinal=wait.ordinal)
    tx.move_run("stop", {"parked_left": 1})


def strand(tx: Transaction, wait: Wait) -> None:
    """No live worker knows this run's version."""
    tx.move(wait, "open", {"parked": Wait.KEEP}, wait=wait.kind, ordinal=wait.ordinal)
    tx.move_run("strand", {"parked_left": 1})


def pause(tx: Transaction, *, actor: str, reason: str) -> None:
    """An operator holds the run; it keeps its open waits."""
    tx.move_run("pause", {"pause_requested_at": None}, actor=actor, reason=reason)


def resume(tx: Transaction, *, actor: str) -> None:
    """An operator lets a paused run go on. What it was parked on is found again by replay."""
    Wait.objects.filter(run=tx.run).exclude(parked=Wait.NOT_PARKED).update(parked=Wait.NOT_PARKED)
    tx.move_run("resume", {"ready_at": tx.now, "parked_left": 0, "verify_due": True}, actor=actor)
    tx.hint()


def unwind(tx: Transaction) -> None:
    """To be claimed only to settle what is in doubt, before it can be cancelled."""
    Wait.objects.filter(run=tx.run).exclude(parked=Wait.NOT_PARKED).update(parked=Wait.NOT_PARKED)
    tx.move_run("unwind", {"ready_at": tx.now})
    tx.hint()


def complete(tx: Transaction, *, output: str) -> None:
    """The function returned. Raises IllegalTransition if an effect is not settled."""
    if Effect.objects.filter(run=tx.run, status__in=BLOCKS_COMPLETION).exists():
        raise IllegalTransition("A run with unsettled effects cannot complete", run=tx.run.pk)
    _close(tx)
    tx.move_run("complete", {"finished_at": tx.now, "output": output})
    _tell_parent(tx)


def fail(tx: Transaction, *, type: str, message: str, code: str, actor: str = "") -> None:
    """A domain error, or an operator's word."""
    _close(tx)
    error = {"type": type, "message": message, "code": code}
    tx.move_run(
        "fail", {"finished_at": tx.now, "error": json.dumps(error), "parked_left": 0}, actor=actor, **error
    )
    _tell_parent(tx)


def cancel(tx: Transaction) -> None:
    """Ends the run as asked. Raises IllegalTransition while an effect is in doubt."""
    if unsettled(tx):
        raise IllegalTransition(
            "Something is in doubt; it is settled before the run is cancelled", run=tx.run.pk
        )
    _close(tx)
    changes = {"finished_at": tx.now, "parked_left": 0}
    tx.move_run("cancel", changes, actor=tx.run.cancel_by, reason=tx.run.cancel_reason)
    _tell_parent(tx)


def unsettled(tx: Transaction) -> bool:
    """Whether the outcome of a call is unknown."""
    return Effect.objects.filter(run=tx.run, status__in=EFFECT_UNSETTLED).exists()


_UNSETTLED = Effect.objects.filter(status__in=EFFECT_UNSETTLED)
_SETTLES_DOUBT = Q(kind=WaitKind.RECONCILIATION) | Q(
    Exists(_UNSETTLED.filter(run=OuterRef("run"), position=OuterRef("position"))), kind=WaitKind.TIMER
)
_IN_DOUBT = Exists(_UNSETTLED.filter(run=OuterRef("pk")))
_DOUBT_IS_WAITED_FOR = Exists(Wait.objects.filter(_SETTLES_DOUBT, run=OuterRef("pk"), status=WaitStatus.OPEN))
_UNWINDS = (RunStatus.SUSPENDED, RunStatus.PAUSED)


def to_cancel() -> QuerySet[Run]:
    """Runs that `cancel_unheld` would move now."""
    asked = Run.objects.filter(cancel_requested_at__isnull=False, finished_at=None)
    unwinds = Q(~_DOUBT_IS_WAITED_FOR, status__in=_UNWINDS)
    return asked.exclude(status=RunStatus.RUNNING).filter(Q(~_IN_DOUBT) | unwinds)


def cancel_unheld(tx: Transaction) -> bool:
    """Cancels at once, or has what is in doubt settled first; any case, or a grace timer of it, is waited for."""
    if tx.run.cancel_requested_at is None or tx.run.status in (RunStatus.RUNNING, *RUN_FINAL):
        return False
    if not unsettled(tx):
        cancel(tx)
        return True
    if tx.run.status in _UNWINDS and not Run.objects.filter(_DOUBT_IS_WAITED_FOR, pk=tx.run.pk).exists():
        unwind(tx)
        return True
    return False


def _close(tx: Transaction) -> None:
    """A run that ends leaves nothing open and withdraws what was never sent."""
    for effect in Effect.objects.select_for_update().filter(run=tx.run, status=EffectStatus.INTENDED):
        tx.move(effect, "withdraw", {"reason": "the run ended"}, reason="the run ended")
    for wait in Wait.objects.filter(run=tx.run, status=WaitStatus.OPEN):
        leave_wait(tx, wait)


def _tell_parent(tx: Transaction) -> None:
    if tx.run.parent_wait:
        outbox.put(Outbox.Kind.CHILD_ENDED, tx.run.pk)


def flag_cancel(tx: Transaction, *, actor: str, reason: str) -> None:
    """Asks a run to cancel; honoured at its next boundary."""
    if tx.run.cancel_requested_at is None:
        tx.set(cancel_requested_at=tx.now, cancel_by=actor, cancel_reason=reason)
        tx.append("run.cancel_asked", actor=actor, reason=reason)


def flag_pause(tx: Transaction, *, actor: str, reason: str) -> None:
    """Asks a run to pause; honoured at its next boundary."""
    if tx.run.pause_requested_at is None:
        tx.set(pause_requested_at=tx.now, pause_by=actor, pause_reason=reason)
        tx.append("run.pause_asked", actor=actor, reason=reason)


def honour_stop(tx: Transaction) -> bool:
    """At a boundary of the holder: pauses or cancels as asked; False if nobody asked."""
    if tx.run.cancel_requested_at is not None:
        if unsettled(tx):
            return False
        cancel(tx)
        return True
    if tx.run.pause_requested_at is not None:
        pause(tx, actor=tx.run.pause_by, reason=tx.run.pause_reason)
        return True
    return False


def in_reconciliation(tx: Transaction) -> bool:
    """Whether an operator's case is open."""
    return Wait.objects.filter(run=tx.run, status=WaitStatus.OPEN, kind=WaitKind.RECONCILIATION).exists()


def warn(tx: Transaction, texts: Collection[str]) -> None:
    """Notes what replay found odd and not wrong, each once per run."""
    known = set(Entry.objects.filter(run=tx.run, kind="warning").values_list("name", flat=True))
    for text in dict.fromkeys(texts):
        if text not in known:
            tx.append("warning", name=text)


def show_progress(held: Held, progress: str) -> None:
    """How far the holder says that it is; no entry."""
    mine = Run.objects.filter(pk=held.run_id, worker=held.worker_id, fence=held.fence)
    if mine.update(progress=progress):
        outbox.changed(held.run_id, lists=False)
