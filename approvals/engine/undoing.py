"""Compensation: undoing what a run has done, newest first, once each (CASES 29).

Each undoing is a full effect, at minus the position of what it undoes: of the kind `KIND.compensate`, with its
own intent, key, receipt and doubt. That position is taken once, and never by workflow code.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from approvals.engine import effects
from approvals.engine.calls import author_of, call_of, undoing
from approvals.engine.history import end_of
from approvals.errors import DomainError, Stopped
from approvals.models import Effect, Run, Wait
from approvals.states import NOT_UNDONE, EffectStatus, WaitKind
from approvals.transitions import runs
from approvals.transitions import steps as step_events

if TYPE_CHECKING:
    from approvals.engine.turn import Turn

_OVER = frozenset({EffectStatus.WITHDRAWN, EffectStatus.REFUSED})


def compensate(turn: Turn, reason: str) -> None:
    """`ctx.compensate`: its beginning and its end are recorded; between them, what it undoes."""
    entries = turn.at("compensate", "")
    if end_of(entries):
        return
    if turn.replaying:
        turn.end_of_journal()
    if not entries:
        note = step_events.note("compensate.begin", turn.position, "", json.dumps({"reason": reason}))
        with turn.boundary() as tx:
            turn.note(tx, note)
    for row in _to_undo(turn):
        _undo(turn, row)
    with turn.boundary() as tx:
        turn.note(tx, step_events.complete("compensate", turn.position, "", "", "null"))


def unwind(turn: Turn) -> NoReturn:
    """All of a turn whose run only undoes what it did, and then ends. Doubt about its effects is settled."""
    if turn.run.cancel_requested_at is None and turn.run.pause_requested_at is not None:
        turn.stop_asked = True
    if turn.run.unwinding != Run.Unwinding.BEGUN:
        with turn.boundary(honour=False) as tx:
            runs.begin_to_undo(tx)
    for n, row in enumerate(_to_undo(turn)):
        if n and turn.stop_asked:  # at least one a turn: to be stopped is no reason to come to nothing
            turn.give_back()
        _undo(turn, row)
    turn.reach("before_complete")
    with turn.boundary() as tx:
        runs.end_undone(tx)
    turn.leave(Stopped())


def _to_undo(turn: Turn) -> list[Effect]:
    """What it did and has not undone, newest first."""
    return list(Effect.objects.filter(runs.UNDOABLE, run=turn.run_id).order_by("-position"))


def _undo(turn: Turn, of: Effect) -> None:
    """Returns when it is undone, or an operator let it be; leaves the turn while neither is so."""
    if _is_let_be(turn, of):
        return
    row = Effect.objects.select_related("compensates").filter(compensates=of).first()
    if row is None or row.status == EffectStatus.INTENDED:
        author = author_of(of)
        if author is None or not author.offers("compensate"):
            why = "has no compensate()" if author else "has no code"
            _ask(turn, of, f"its kind {of.kind!r} {why}")
        row = row or _intended(turn, of)
    _advance(turn, row)
    row.refresh_from_db()
    if row.status in _OVER:
        _ask(turn, of, row.reason, compensation=str(row.pk), ended=row.status)


def _intended(turn: Turn, of: Effect) -> Effect:
    """The compensation of an effect: intended, and performed at once where no policy asks people first."""
    call = undoing(call_of(turn, of), of)
    seen = effects.see(call, call.request(of))
    row = Effect(
        run_id=turn.run_id,
        position=-of.position,
        name=call.name,
        kind=call.author.kind,
        target=seen.target,
        request=seen.text,
        digest=seen.digest,
        risk=call.author.risk,
        reversible=call.author.reversible,
        compensates=of,
    )
    with suppress(DomainError):  # what became of it is in its row
        effects.intend(call, row, seen)
    return row


def _advance(turn: Turn, row: Effect) -> None:
    """Moves a compensation on from wherever it stands."""
    from approvals.engine import recovery

    with suppress(DomainError):
        if row.status == EffectStatus.IN_DOUBT:
            recovery.settle(turn, row)
        while row.status == EffectStatus.INTENDED:
            effects.advance(call_of(turn, row), row)


def _ask(turn: Turn, of: Effect, reason: str, **more: str) -> NoReturn:
    turn.stop(NOT_UNDONE, position=-of.position, effect=str(of.pk), reason=reason, **more)


def _is_let_be(turn: Turn, of: Effect) -> bool:
    """Whether an operator said that this effect stays as it is."""
    cases = Wait.objects.filter(run=turn.run_id, position=-of.position, kind=WaitKind.RECONCILIATION)
    return cases.filter(name=NOT_UNDONE, outcome="accept").exists()
