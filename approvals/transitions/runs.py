"""Events of a run."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from approvals import outbox
from approvals.errors import IllegalTransition
from approvals.journal import Held, Transaction
from approvals.models import Effect, Entry, Outbox, Run, Wait
from approvals.states import (
    EFFECT_DONE,
    EFFECT_UNSETTLED,
    NOT_UNDONE,
    RUN_FINAL,
    EffectStatus,
    RunStatus,
    WaitKind,
    WaitStatus,
)

BLOCKS_COMPLETION = (*EFFECT_UNSETTLED, EffectStatus.INTENDED, EffectStatus.CONTRADICTED)


def asked_to_stop(tx: Transaction) -> bool:
    """Whether somebody asked this run to cancel or to pause; a cancel that is being carried out is asked no more."""
    if tx.run.cancel_requested_at is not None:
        return tx.run.unwinding != Run.Unwinding.BEGUN
    return tx.run.pause_requested_at is not None


def ending(run: Run) -> bool:
    """Whether it is only settled or undone any more: nothing new is done."""
    return run.cancel_requested_at is not None or bool(run.unwinding)


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
    """Closes a wait that its run no longer needs; a child is asked to cancel, and to undo if its parent does."""
    tx.move(wait, "cancel", {"outcome": "left"})
    if wait.kind == WaitKind.CHILD:
        outbox.put(Outbox.Kind.CANCEL_CHILD, wait.pk, run=str(tx.run.pk), undo=bool(tx.run.unwinding))


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
    """To be claimed only to settle what is in doubt and to undo what is owed, before it can end.

    Of such a run no code will run: what its code stopped at is of no interest any more.
    """
    if tx.run.unwinding != Run.Unwinding.BEGUN:
        for case in Wait.objects.filter(_CASES, run=tx.run).exclude(name__in=_STILL_MATTERS):
            leave_wait(tx, case)
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


def fail(tx: Transaction, *, type: str, message: str, code: str, actor: str = "", undo: bool = False) -> None:
    """A domain error, or an operator's word; the first one stays.

    With `undo`, what the run has done is undone first: it is to be claimed for that alone, and fails after it.
    """
    error = json.loads(tx.run.error) if tx.run.error else {"type": type, "message": message, "code": code}
    if undo and tx.run.unwinding != Run.Unwinding.BEGUN and (_has_done(tx) or unsettled(tx)):
        tx.set(error=json.dumps(error))
        tx.append("run.fail_asked", actor=actor, **error)
        begin_to_undo(tx)
        (yield_ if tx.run.status == RunStatus.RUNNING else unwind)(tx)
        return
    _close(tx)
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


def begin_to_undo(tx: Transaction) -> None:
    """From here on only compensations run: what the code waited for and meant to do is closed."""
    tx.set(unwinding=Run.Unwinding.BEGUN)
    _close(tx, Q(position__gte=0))


def end_undone(tx: Transaction) -> None:
    """All that was owed is undone, or an operator let it be: the run ends as it was going to."""
    if tx.run.error:
        fail(tx, **json.loads(tx.run.error))
    else:
        cancel(tx)


def _has_done(tx: Transaction) -> bool:
    return Effect.objects.filter(UNDOABLE, run=tx.run).exists()


def owes(tx: Transaction) -> bool:
    """Whether something is to be undone before the run may end."""
    if tx.run.unwinding == Run.Unwinding.ASKED:
        return _has_done(tx)
    return bool(tx.run.unwinding)


def unsettled(tx: Transaction) -> bool:
    """Whether the outcome of a call is unknown."""
    return Effect.objects.filter(run=tx.run, status__in=EFFECT_UNSETTLED).exists()


UNDOABLE = Q(status__in=(*EFFECT_DONE, EffectStatus.CONTRADICTED), compensates=None)
"""Effects that can be undone: done, and no compensation themselves."""
_STILL_MATTERS = ("in doubt", NOT_UNDONE, "no progress", "version unknown")
"""Cases that concern a run which is only to be undone any more; the others are about its code's next steps."""
_CASES = Q(kind=WaitKind.RECONCILIATION, status=WaitStatus.OPEN)
_UNSETTLED = Effect.objects.filter(status__in=EFFECT_UNSETTLED)
_CAME_OF_ENDING = Q(run__unwinding=Run.Unwinding.BEGUN) | Q(
    run__unwinding=Run.Unwinding.NO, opened_at__gte=F("run__cancel_requested_at")
)
"""Cases that were opened while the run was settling or undoing: closed because it is to end, they would come back."""
_SETTLES = (
    Q(Q(name__in=_STILL_MATTERS) | _CAME_OF_ENDING, kind=WaitKind.RECONCILIATION)
    | Q(Exists(_UNSETTLED.filter(run=OuterRef("run"), position=OuterRef("position"))), kind=WaitKind.TIMER)
    | Q(position__lt=0)
)
_IN_DOUBT = Exists(_UNSETTLED.filter(run=OuterRef("pk")))
_IS_WAITED_FOR = Exists(Wait.objects.filter(_SETTLES, run=OuterRef("pk"), status=WaitStatus.OPEN))
_OWES = Q(unwinding=Run.Unwinding.BEGUN) | Q(
    Exists(Effect.objects.filter(UNDOABLE, run=OuterRef("pk"))), unwinding=Run.Unwinding.ASKED
)
_UNWINDS = (RunStatus.SUSPENDED, RunStatus.PAUSED)


def to_cancel() -> QuerySet[Run]:
    """Runs that `cancel_unheld` would move now."""
    asked = Run.objects.filter(cancel_requested_at__isnull=False, finished_at=None)
    unwinds = Q(~_IS_WAITED_FOR, status__in=_UNWINDS)
    return asked.exclude(status=RunStatus.RUNNING).filter(Q(~_IN_DOUBT) & ~_OWES | unwinds)


def cancel_unheld(tx: Transaction) -> bool:
    """Cancels at once, or has what is in doubt settled and what is owed undone first.

    Not again while that is waited for: a case, a grace timer, whatever a compensation waits for.
    """
    if tx.run.cancel_requested_at is None or tx.run.status in (RunStatus.RUNNING, *RUN_FINAL):
        return False
    if not unsettled(tx) and not owes(tx):
        cancel(tx)
        return True
    if tx.run.status in _UNWINDS and not _is_waited_for(tx):
        unwind(tx)
        return True
    return False


def _is_waited_for(tx: Transaction) -> bool:
    those = _SETTLES
    if tx.run.unwinding == Run.Unwinding.ASKED:  # (asked for in this transaction, perhaps)
        those &= ~Q(kind=WaitKind.RECONCILIATION) | Q(name__in=_STILL_MATTERS)
    return Wait.objects.filter(those, run=tx.run, status=WaitStatus.OPEN).exists()


def _close(tx: Transaction, which: Q = Q()) -> None:  # noqa: B008
    """A run that ends leaves nothing open and withdraws what was never sent; `which`: only these of them."""
    intended = Effect.objects.select_for_update().filter(which, run=tx.run, status=EffectStatus.INTENDED)
    for effect in intended:
        tx.move(effect, "withdraw", {"reason": "the run ended"}, reason="the run ended")
    for wait in Wait.objects.filter(which, run=tx.run, status=WaitStatus.OPEN):
        leave_wait(tx, wait)


def _tell_parent(tx: Transaction) -> None:
    if tx.run.parent_wait:
        outbox.put(Outbox.Kind.CHILD_ENDED, tx.run.pk)


def flag_cancel(tx: Transaction, *, actor: str, reason: str, undo: bool = False) -> None:
    """Asks a run to cancel; honoured at its next boundary. With `undo`, what it has done is undone first.

    A run that fails already, and is undoing what it did, fails: it is asked in vain.
    """
    if tx.run.unwinding == Run.Unwinding.BEGUN:
        return
    undo = undo and not tx.run.unwinding
    if tx.run.cancel_requested_at is not None and not undo:
        return
    if tx.run.cancel_requested_at is None:
        tx.set(cancel_requested_at=tx.now, cancel_by=actor, cancel_reason=reason)
    told: dict[str, Any] = {"compensate": True} if undo else {}
    tx.append("run.cancel_asked", actor=actor, reason=reason, **told)
    if undo:
        tx.set(unwinding=Run.Unwinding.ASKED, turns_lost=0)
        for case in Wait.objects.filter(_CASES, run=tx.run, name="no progress"):
            leave_wait(tx, case)  # its code made none, and does not run any more


def flag_pause(tx: Transaction, *, actor: str, reason: str) -> None:
    """Asks a run to pause; honoured at its next boundary."""
    if tx.run.pause_requested_at is None:
        tx.set(pause_requested_at=tx.now, pause_by=actor, pause_reason=reason)
        tx.append("run.pause_asked", actor=actor, reason=reason)


def honour_stop(tx: Transaction) -> bool:
    """At a boundary of the holder: pauses or cancels as asked; False if nobody asked."""
    if tx.run.cancel_requested_at is not None:
        if unsettled(tx) or tx.run.unwinding == Run.Unwinding.BEGUN:
            return False
        (yield_ if owes(tx) else cancel)(tx)
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
