"""The effect protocol: intend, ask, dispatch, perform, receipt; and what replay answers.

Doubt about a call is settled by `recovery`, with the same functions, before anything else happens.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import Error as DatabaseError
from django.db import connection

from approvals import canonical, facts, policy
from approvals.engine import asking, receipts
from approvals.engine.calls import Call, same_request, settled, stored
from approvals.engine.cases import open_case
from approvals.errors import (
    RAISED_BY_AUTHORS,
    ApprovalConsumed,
    ArgumentsChanged,
    ContextMisuse,
    EffectRefused,
    NotSent,
    PolicyDenied,
    Refused,
    StepFailed,
    words_of,
)
from approvals.models import Approval, Effect, Wait
from approvals.states import NOT_UNDONE, EffectStatus, WaitKind, WaitStatus
from approvals.transitions import Transaction, guard, runs
from approvals.transitions import effects as events
from approvals.transitions import waits as wait_events
from approvals.types import Decision, Receipt
from approvals.workflows import effects as authoring

if TYPE_CHECKING:
    from approvals.engine.turn import Turn


def effect(
    turn: Turn,
    name: str,
    effect: Any,
    request: Any,
    *,
    approved_by: Decision[Any, Any] | None,
    supersedes: Receipt[Any] | None,
    **ask: Any,
) -> Receipt[Any]:
    """The receipt of this effect, performed at most once per generation."""
    author = authoring.instance(effect)
    call = Call(turn, name, author, asking.action_codec(author, request), ask)
    # The author's own code runs before a position is taken and before any lock: it may do as it likes.
    if approved_by is not None:
        approved_by.require()
    seen = see(call, request)
    entries = turn.at("effect", name)
    if supersedes is not None:
        call.supersedes = _position_of(turn, supersedes)
    position = turn.position
    if entries:
        row = Effect.objects.get(run=turn.run_id, position=position)
        same_request(call, entries[0], row, seen.digest)
        if (done := settled(call, row, entries)) is not None:
            return done
    else:
        row = Effect(
            run_id=turn.run_id,
            position=position,
            name=name,
            kind=author.kind,
            target=seen.target,
            request=seen.text,
            digest=seen.digest,
            risk=author.risk,
            reversible=author.reversible,
        )
        return intend(call, row, seen, approved_by)
    return advance(call, row)


@dataclass(frozen=True, slots=True)
class Seen:
    """What today's code makes of a request."""

    text: str
    target: str
    digest: str
    sentence: str


def see(call: Call, request: Any) -> Seen:
    """Runs the author's code on a request: validators, target and sentence."""
    text, request = call.codec.roundtrip(request, what=f"the request of {call.name!r}")
    target, sentence = asking.said(call.author, call.name, request)
    digest = canonical.action_digest(call.author.kind, target, request)
    return Seen(text, target, digest, sentence)


def _position_of(turn: Turn, earlier: Receipt[Any]) -> int:
    """Where a receipt of this run was given; its key says so, whatever generation the effect is in now."""
    run, _, place = earlier.key.rpartition("-")[0].rpartition("-")
    if run != str(turn.run_id) or not place.isdigit():
        raise ContextMisuse("`supersedes` needs a receipt of this run", found=earlier.external_id)
    return int(place)


# --- intending and asking --------------------------------------------------------------------------


def intend(
    call: Call, row: Effect, seen: Seen, approved_by: Decision[Any, Any] | None = None
) -> Receipt[Any]:
    """The intent, and in its transaction either the questions that policies pose or the dispatch."""
    move = _Move(time.monotonic())
    with call.turn.boundary() as tx:
        given = _given(tx, row, approved_by) if approved_by is not None else None
        slugs = [s for s in (call.ask.get("policy"), call.author.policy) if s]
        if given is not None:
            slugs.append(given.policy.slug)
        versions = facts.required(slugs, row.kind)
        # What was approved before stays under the policy that it was approved by, too (CASES 28).
        pins = [given.policy if given is not None and v.slug == given.policy.slug else v for v in versions]
        events.intend(tx, row, pins)
        if given is not None:
            Approval.objects.filter(pk=given.pk).update(effect=row)
        verdicts = facts.verdicts(versions, facts.of_effect(tx.run, row))
        move.denied = next((v.reason for _, v in verdicts if v.kind == "denied"), "")
        unasked = [
            (v, r) for v, r in verdicts if r.kind == "ask" and (given is None or v.slug != given.policy.slug)
        ]
        if move.denied:
            events.withdraw(tx, row, f"denied: {move.denied}")
        elif unasked:
            waits = [_pose(tx, call, row, seen, v, r, n) for n, (v, r) in enumerate(unasked)]
            move.suspended = call.turn.park_in(tx, [(w.pk, Wait.CANCEL) for w in waits], all_of=True)
        else:
            _dispatch(tx, call, row, seen, move)
    return _after(call, row, move)


def _given(tx: Transaction, row: Effect, decision: Decision[Any, Any]) -> Approval:
    """The approval behind `approved_by`, if it authorises exactly this."""
    approval = Approval.objects.select_related("policy", "wait").filter(pk=decision.wait_id).first()
    if approval is None or approval.wait.run_id != tx.run.pk:
        raise ArgumentsChanged(
            "This decision was taken in another run; it approves nothing here", effect=row.name
        )
    if not approval.kind:
        told = "This decision answers a question to people (asked without effect=); it authorises no effect"
        raise ArgumentsChanged(told, effect=row.name)
    if approval.consumed_by_id is not None or approval.effect_id is not None or approval.invalidated:
        raise ApprovalConsumed(approval=approval.title, effect=row.name)
    if approval.digest != row.digest:
        raise ArgumentsChanged(effect=row.name, approved=approval.digest, found=row.digest)
    return approval


def _pose(
    tx: Transaction,
    call: Call,
    row: Effect,
    seen: Seen,
    version: Any,
    verdict: policy.Verdict,
    ordinal: int,
) -> Wait:
    approval = asking.approval_of(
        call.author, row.name, row.kind, row.target, row.request, row.digest, seen.sentence, call.ask
    )
    approval.effect = row
    wait = Wait(
        position=row.position, kind=WaitKind.APPROVAL, ordinal=ordinal, name=row.name, parked=Wait.CANCEL
    )
    code = call.turn.workflow.version
    asking.pose(
        tx, wait, approval, version, facts.read(version), verdict, workflow_version=code, digest=row.digest
    )
    return wait


# --- performing ------------------------------------------------------------------------------------


@dataclass
class _Move:
    """What a boundary of an effect came to; neither denied nor left: it is dispatched."""

    started: float
    denied: str = ""
    suspended: bool | None = None


def advance(call: Call, row: Effect) -> Receipt[Any]:
    """Moves an intended effect on: parks on what is open, dispatches and performs, or asks again."""
    if call.turn.replaying:
        call.turn.end_of_journal()
    before, seen = row.digest, see(call, call.request(row))
    move = _Move(time.monotonic())
    with call.turn.boundary() as tx:
        row.refresh_from_db()
        if row.status != EffectStatus.INTENDED or row.digest != before:
            runs.yield_(tx)  # somebody decided meanwhile: the next turn answers from the journal
            move.suspended = False
        elif still_open := _open_waits(row):
            move.suspended = call.turn.park_in(tx, [(w.pk, Wait.CANCEL) for w in still_open], all_of=True)
        else:
            if seen.digest != row.digest:  # today's code reads it as something else than was approved
                events.revise(tx, row, target=seen.target, request=seen.text, digest=seen.digest)
            _dispatch(tx, call, row, seen, move)
    return _after(call, row, move)


def _dispatch(tx: Transaction, call: Call, row: Effect, seen: Seen, move: _Move) -> None:
    if runs.asked_to_stop(tx):
        runs.yield_(tx)
        move.suspended = False
        return
    code = call.turn.workflow.version
    checked = events.dispatch(tx, row, deadline=call.author.deadline, workflow_version=code)
    if checked.denied:
        events.withdraw(tx, row, f"denied: {checked.reason}")
        move.denied = checked.reason
    elif not checked.ok:
        move.suspended = _ask_again(tx, call, row, seen, checked.reason)
    elif call.supersedes is not None:
        events.supersede(tx, call.supersedes)


def _after(call: Call, row: Effect, move: _Move) -> Receipt[Any]:
    if move.denied:
        raise PolicyDenied(move.denied, effect=row.kind, name=row.name)
    if move.suspended is not None:
        call.turn.left(move.suspended)
    return perform(call, row, move.started)


def _open_waits(row: Effect) -> list[Wait]:
    kinds = (WaitKind.APPROVAL, WaitKind.TIMER)
    return list(
        Wait.objects.filter(run=row.run_id, position=row.position, kind__in=kinds, status=WaitStatus.OPEN)
    )


def _ask_again(tx: Transaction, call: Call, row: Effect, seen: Seen, reason: str) -> bool:
    """A check at dispatch refused what was approved: void it and open a fresh approval, in one transaction.

    Asked by the policies as they are now; one that has become automatic meanwhile asks as it did before:
    a looser policy undoes no question that people were asked already (CASES 28).
    """
    for wait in guard.approvals_to_invalidate(row):
        wait_events.invalidate(tx, wait, wait.approval, reason)
    ask = {**call.ask, "summary": f"Asked again: {reason} {call.ask.get('summary') or ''}".strip()}
    again = dataclasses.replace(call, ask=ask)
    asked = guard.to_ask_again(tx, row)
    first = Wait.objects.filter(run=tx.run, position=row.position, kind=WaitKind.APPROVAL).count()
    waits = [_pose(tx, again, row, seen, v, r, first + n) for n, (v, r) in enumerate(asked)]
    if not waits:
        runs.yield_(tx)  # every policy decides by itself now: the next turn dispatches
        return False
    return call.turn.park_in(tx, [(w.pk, Wait.CANCEL) for w in waits], all_of=True)


def perform(call: Call, row: Effect, started: float) -> Receipt[Any]:
    """Calls the peer for a dispatched effect, and records what it said."""
    turn = call.turn
    turn.reach("intent_committed")
    request = call.request(row)
    ends = started + call.author.deadline.total_seconds()
    token = authoring.call_ends.set(ends)
    try:
        turn.reach("performing")
        # A process can be held up between the commit and here: past its deadline, or when another worker has
        # the run, nothing may be sent.
        if time.monotonic() >= ends or not _may_still_be_sent(call, row):
            raise NotSent("the deadline of the call had passed before it was sent")
        with turn.inside(f"the effect {call.name!r}"):
            receipt = call.author.perform(request, row.key)
        turn.reach("performed")
        if not isinstance(receipt, Receipt):
            raise TypeError(f"perform() returned {type(receipt).__name__}, needed a Receipt")
        data = stored(receipt)
    except Refused as error:
        return _refused(call, row, _reason(error))
    except NotSent as error:
        return _not_sent(call, row, _reason(error))
    except RAISED_BY_AUTHORS as error:
        return _doubted(call, row, f"{type(error).__name__}: {words_of(error)}"[:1000])
    finally:
        authoring.call_ends.reset(token)
    receipts.store(call, row, data)
    turn.reach("receipt_committed")
    return call.receipt(row, data, row.key)


def _may_still_be_sent(call: Call, row: Effect) -> bool:
    """Raises NotSent where the database gives no answer: that nothing went out is certain, and no doubt."""
    try:
        return events.may_still_be_sent(row, call.turn.held)
    except DatabaseError as error:
        connection.close()  # whatever is wrong with it: what must be told now needs a sound one
        raise NotSent(f"the database did not say whether it may be sent: {words_of(error)}") from error


def _reason(error: Refused | NotSent) -> str:
    return words_of(error)[:1000] if error.reason else "no reason given"


def perform_again(call: Call, row: Effect, started: float) -> None:
    """Performs a redispatched effect; what it raises is found by replay in the journal."""
    try:
        perform(call, row, started)
    except (EffectRefused, StepFailed):
        return


def _refused(call: Call, row: Effect, reason: str) -> Receipt[Any]:
    with call.turn.boundary(honour=False) as tx:
        tx.position = max(tx.position, row.position)
        if row.compensates_id is None:
            events.refuse(tx, row, reason)
        else:
            events.decline(tx, row, f"the peer refused: {reason}")
            _not_undone(tx, row)
    if row.status == EffectStatus.IN_DOUBT:
        return _settle(call, row)
    if row.compensates_id is not None:
        call.turn.stopped(NOT_UNDONE)
    raise EffectRefused(f"{call.name!r} was refused: {reason}", reason=reason)


def _not_sent(call: Call, row: Effect, reason: str) -> Receipt[Any]:
    """Nothing went out: a timer for the next attempt, or the end of it."""
    turn, retry = call.turn, call.author.retry
    suspended = None
    with turn.boundary(honour=False) as tx:
        events.not_sent(tx, row, reason)
        is_over = row.status == EffectStatus.INTENDED and row.attempts >= retry.attempts
        if is_over and row.compensates_id is not None:
            _not_undone(tx, row)
        elif is_over:
            events.withdraw(tx, row, f"not sent: {reason}")
        elif row.status == EffectStatus.INTENDED:
            suspended = park_on_timer(
                tx, call.turn, row, call.name, retry.delay(row.attempts).total_seconds()
            )
    if row.status == EffectStatus.IN_DOUBT:
        return _settle(call, row)
    if suspended is not None:
        turn.left(suspended)
    if row.compensates_id is not None:
        turn.stopped(NOT_UNDONE)
    raise StepFailed(
        f"{call.name!r} could not be sent: {reason}", step=call.name, type="NotSent", message=reason
    )


def _not_undone(tx: Transaction, row: Effect) -> None:
    """A compensation failed: an operator has it tried again, or lets things be. It stays intended till then."""
    if row.status == EffectStatus.INTENDED:
        case = {"effect": str(row.compensates_id), "compensation": str(row.pk), "reason": row.reason}
        open_case(tx, NOT_UNDONE, row.position, case)


def park_on_timer(tx: Transaction, turn: Turn, row: Effect, name: str, seconds: float) -> bool:
    """Suspends on a timer at the effect's position, in the transaction of a boundary; one still open counts."""
    timers = Wait.objects.filter(run=tx.run, position=row.position, kind=WaitKind.TIMER)
    wait = timers.filter(status=WaitStatus.OPEN).first()
    if wait is None:
        ordinal = timers.count()
        wait = Wait(position=row.position, kind=WaitKind.TIMER, ordinal=ordinal, name=name, parked=Wait.KEEP)
        wait.due_at = tx.now + timedelta(seconds=seconds)
        wait_events.open_(tx, wait, call="effect")
    return turn.park_in(tx, [(wait.pk, Wait.KEEP)], in_doubt=row.status == EffectStatus.IN_DOUBT)


def _doubted(call: Call, row: Effect, reason: str) -> Receipt[Any]:
    with call.turn.boundary(honour=False) as tx:
        events.doubt(tx, row, reason)
    return _settle(call, row)


def _settle(call: Call, row: Effect) -> Receipt[Any]:
    """Doubt is settled in this same turn, by the same rules as after a crash."""
    from approvals.engine import recovery

    recovery.settle(call.turn, row, called=True)
    done = settled(call, row, call.turn.history.at(row.position))
    return done if done is not None else advance(call, row)
