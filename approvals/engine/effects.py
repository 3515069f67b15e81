"""The effect protocol: intend, ask, dispatch, perform, receipt; and what replay answers.

Doubt about a call is settled by `recovery`, with the same functions, before anything else happens.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from approvals import canonical, facts, policy
from approvals.engine import asking
from approvals.engine.history import Recorded
from approvals.engine.waits import decision_of
from approvals.errors import (
    ApprovalConsumed,
    ArgumentsChanged,
    ContextMisuse,
    EffectRefused,
    NotSent,
    PolicyDenied,
    Refused,
    StepFailed,
)
from approvals.models import Approval, Effect, Wait
from approvals.states import EffectStatus, WaitKind, WaitStatus
from approvals.transitions import Transaction, guard, runs
from approvals.transitions import effects as events
from approvals.transitions import waits as wait_events
from approvals.types import Decision, Receipt
from approvals.workflows import effects as authoring
from approvals.workflows import values

if TYPE_CHECKING:
    from approvals.engine.turn import Turn


@dataclass
class Call:
    """One `ctx.effect`: what the author asked for."""

    turn: Turn
    name: str
    author: authoring.Effect[Any]
    codec: values.Codec[Any]
    ask: dict[str, Any]

    def receipt(self, row: Effect, data: events.ReceiptData) -> Receipt[Any]:
        """A stored receipt as the author sees it."""
        request = self.codec.decode(row.request, what=f"the request of {self.name!r}")
        return receipt_of(data, request, row)


def receipt_of(data: events.ReceiptData, request: Any, row: Effect) -> Receipt[Any]:
    """A stored receipt with the request as performed."""
    evidence = json.loads(data.evidence)
    return Receipt(data.external_id, checksum=data.checksum, evidence=evidence).bound(
        request, row.key, row.kind
    )


def stored(receipt: Receipt[Any]) -> events.ReceiptData:
    """A receipt as it is stored."""
    evidence = values.codec_for(Any).encode(dict(receipt.evidence), what="the evidence of a receipt")
    return events.ReceiptData(receipt.external_id, receipt.checksum, evidence)


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
    entries = turn.at("effect", name)
    position = turn.position
    text, request = call.codec.roundtrip(request, what=f"the request of {name!r}")
    target = author.target(request)
    digest = canonical.action_digest(author.kind, target, request)
    if entries:
        row = Effect.objects.get(run=turn.run_id, position=position)
        _same_request(call, entries[0], row, digest)
        if supersedes is not None:
            _supersede(turn, supersedes)
        if (done := _settled(call, row, entries)) is not None:
            return done
    else:
        row = Effect(
            run_id=turn.run_id,
            position=position,
            name=name,
            kind=author.kind,
            target=target,
            request=text,
            digest=digest,
            risk=author.risk,
            reversible=author.reversible,
        )
        if supersedes is not None:
            _supersede(turn, supersedes)
        return _intend(call, row, request, approved_by)
    return advance(call, row)


def _supersede(turn: Turn, earlier: Receipt[Any]) -> None:
    row = Effect.objects.filter(run=turn.run_id, key=earlier.key).first()
    if row is None:
        raise ContextMisuse("`supersedes` needs a receipt of this run", found=earlier.external_id)
    if not row.superseded:
        events.supersede(row)


# --- intending and asking --------------------------------------------------------------------------


def _intend(call: Call, row: Effect, request: Any, approved_by: Decision[Any, Any] | None) -> Receipt[Any]:
    """The intent, and in its transaction either the questions that policies pose or the dispatch."""
    if approved_by is not None:
        approved_by.require()
    move = _Move(time.monotonic())
    with call.turn.boundary() as tx:
        given = _given(tx, row, approved_by) if approved_by is not None else None
        slugs = [s for s in (call.ask.get("policy"), call.author.policy) if s]
        if given is not None:
            slugs.append(given.policy.slug)
        versions = facts.required(slugs, row.kind)
        events.intend(tx, row, versions)
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
            waits = [_pose(tx, call, row, request, v, r, n) for n, (v, r) in enumerate(unasked)]
            move.suspended = call.turn.park_in(tx, [(w.pk, Wait.CANCEL) for w in waits], all_of=True)
        else:
            _dispatch(tx, call, row, move)
    return _after(call, row, move)


def _given(tx: Transaction, row: Effect, decision: Decision[Any, Any]) -> Approval:
    """The approval behind `approved_by`, if it authorises exactly this."""
    approval = (
        Approval.objects.select_related("policy", "wait")
        .filter(pk=decision.wait_id, wait__run=tx.run, wait__outcome="approved", invalidated="")
        .first()
    )
    if approval is None or not approval.kind:
        raise ContextMisuse(
            "`approved_by` needs an approval of this run that was asked with effect=", name=row.name
        )
    if approval.consumed_by_id is not None or approval.effect_id is not None:
        raise ApprovalConsumed(approval=approval.title, effect=row.name)
    if approval.digest != row.digest:
        raise ArgumentsChanged(effect=row.name, approved=approval.digest, found=row.digest)
    return approval


def _pose(
    tx: Transaction,
    call: Call,
    row: Effect,
    request: Any,
    version: Any,
    verdict: policy.Verdict,
    ordinal: int,
) -> Wait:
    approval = asking.approval_of(
        call.author, row.kind, row.target, row.request, row.digest, request, call.ask
    )
    approval.effect = row
    wait = Wait(
        position=row.position, kind=WaitKind.APPROVAL, ordinal=ordinal, name=row.name, parked=Wait.CANCEL
    )
    asking.pose(tx, wait, approval, version, facts.read(version), verdict, digest=row.digest)
    return wait


# --- what is recorded ------------------------------------------------------------------------------


def _same_request(call: Call, first: Recorded, row: Effect, digest: str) -> None:
    """The same bytes, or bytes that today's type reads as the same request."""
    if first.digest == digest:
        return
    stored = call.codec.decode(row.request, what="the recorded request")
    again = canonical.action_digest(row.kind, call.author.target(stored), stored)
    if again != digest:
        call.turn.diverged(first.digest, digest, what="the digest of the request")


def _settled(call: Call, row: Effect, entries: list[Recorded]) -> Receipt[Any] | None:
    """The recorded end of this effect: a receipt, or what it raised; None while it has none."""
    for entry in entries:
        if entry.kind in ("effect.commit", "effect.confirm"):
            told = entry.read()
            if "external_id" in told:
                return call.receipt(
                    row, events.ReceiptData(told["external_id"], told["checksum"], told["evidence"])
                )
        elif entry.kind == "effect.refuse":
            reason = entry.read()["reason"]
            raise EffectRefused(f"{call.name!r} was refused: {reason}", reason=reason)
        elif entry.kind in ("effect.withdraw", "effect.abandon"):
            _withdrawn(call, entries, entry.read().get("reason", ""))
    return None


def _withdrawn(call: Call, entries: list[Recorded], reason: str) -> NoReturn:
    if reason.startswith("denied: "):
        raise PolicyDenied(reason.removeprefix("denied: "), effect=call.author.kind, name=call.name)
    if reason.startswith("not sent: "):
        told = reason.removeprefix("not sent: ")
        raise StepFailed(
            f"{call.name!r} could not be sent: {told}", step=call.name, type="NotSent", message=told
        )
    closed = [call.turn.history.closed.get(UUID(e.read()["id"])) for e in entries if e.kind == "wait.open"]
    for one in closed:
        if one is not None and one.outcome == reason:
            decision_of(one, call.codec, None, call.name).require()
    raise StepFailed(
        f"{call.name!r} was withdrawn: {reason}", step=call.name, type="Withdrawn", message=reason
    )


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
    move = _Move(time.monotonic())
    with call.turn.boundary() as tx:
        row.refresh_from_db()
        if still_open := _open_waits(row):
            move.suspended = call.turn.park_in(tx, [(w.pk, Wait.CANCEL) for w in still_open], all_of=True)
        else:
            _dispatch(tx, call, row, move)
    return _after(call, row, move)


def _dispatch(tx: Transaction, call: Call, row: Effect, move: _Move) -> None:
    if runs.asked_to_stop(tx):
        runs.yield_(tx)
        move.suspended = False
        return
    checked = events.dispatch(tx, row, deadline=call.author.deadline)
    if checked.denied:
        events.withdraw(tx, row, f"denied: {checked.reason}")
        move.denied = checked.reason
    elif not checked.ok:
        move.suspended = _ask_again(tx, call, row, checked.reason)


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


def _ask_again(tx: Transaction, call: Call, row: Effect, reason: str) -> bool:
    """A check at dispatch refused what was approved: void it and open a fresh approval, in one transaction."""
    for wait in guard.approvals_to_invalidate(row):
        wait_events.invalidate(tx, wait, wait.approval, reason)
    versions = facts.required(guard.pinned(row), row.kind)
    Effect.objects.filter(pk=row.pk).update(policies=guard.pin(row, versions))
    request = call.codec.decode(row.request, what=f"the request of {call.name!r}")
    ask = {**call.ask, "summary": f"Asked again: {reason}. {call.ask.get('summary') or ''}".strip()}
    again = Call(call.turn, call.name, call.author, call.codec, ask)
    verdicts = facts.verdicts(versions, facts.of_effect(tx.run, row))
    first = Wait.objects.filter(run=tx.run, position=row.position, kind=WaitKind.APPROVAL).count()
    asked = [(v, r) for v, r in verdicts if r.kind == "ask"]
    if not asked:
        runs.yield_(tx)  # the policies that hold now decide by themselves: the next turn dispatches
        return False
    waits = [_pose(tx, again, row, request, v, r, first + n) for n, (v, r) in enumerate(asked)]
    return call.turn.park_in(tx, [(w.pk, Wait.CANCEL) for w in waits], all_of=True)


def perform(call: Call, row: Effect, started: float) -> Receipt[Any]:
    """Calls the peer for a dispatched effect, and records what it said."""
    turn = call.turn
    turn.reach("intent_committed")
    request = call.codec.decode(row.request, what=f"the request of {call.name!r}")
    ends = started + call.author.deadline.total_seconds()
    token = authoring.call_ends.set(ends)
    try:
        # A process can be held up between the commit and here; past its deadline nothing may be sent.
        if time.monotonic() >= ends:
            raise NotSent("the deadline of the call had passed before it was sent")
        turn.reach("performing")
        with turn.inside(f"the effect {call.name!r}"):
            receipt = call.author.perform(request, row.key)
        turn.reach("performed")
        if not isinstance(receipt, Receipt):
            raise TypeError(f"perform() returned {type(receipt).__name__}, needed a Receipt")
        data = stored(receipt)
    except Refused as error:
        return _refused(call, row, error.reason)
    except NotSent as error:
        return _not_sent(call, row, error.reason)
    except Exception as error:
        return _doubted(call, row, f"{type(error).__name__}: {error}"[:1000])
    finally:
        authoring.call_ends.reset(token)
    with turn.boundary(honour=False) as tx:
        tx.position = max(tx.position, row.position)
        events.commit(tx, row, data)
    turn.reach("receipt_committed")
    return receipt_of(data, request, row)


def perform_again(call: Call, row: Effect, started: float) -> None:
    """Performs a redispatched effect; what it raises is found by replay in the journal."""
    try:
        perform(call, row, started)
    except (EffectRefused, StepFailed):
        return


def _refused(call: Call, row: Effect, reason: str) -> Receipt[Any]:
    with call.turn.boundary(honour=False) as tx:
        tx.position = max(tx.position, row.position)
        events.refuse(tx, row, reason)
    if row.status == EffectStatus.IN_DOUBT:
        return _settle(call, row)
    raise EffectRefused(f"{call.name!r} was refused: {reason}", reason=reason)


def _not_sent(call: Call, row: Effect, reason: str) -> Receipt[Any]:
    """Nothing went out: a timer for the next attempt, or the end of it."""
    turn, retry = call.turn, call.author.retry
    suspended = None
    with turn.boundary(honour=False) as tx:
        events.not_sent(tx, row, reason)
        if row.status == EffectStatus.INTENDED and row.attempts >= retry.attempts:
            events.withdraw(tx, row, f"not sent: {reason}")
        elif row.status == EffectStatus.INTENDED:
            suspended = park_on_timer(
                tx, call.turn, row, call.name, retry.delay(row.attempts).total_seconds()
            )
    if row.status == EffectStatus.IN_DOUBT:
        return _settle(call, row)
    if suspended is not None:
        turn.left(suspended)
    raise StepFailed(
        f"{call.name!r} could not be sent: {reason}", step=call.name, type="NotSent", message=reason
    )


def park_on_timer(tx: Transaction, turn: Turn, row: Effect, name: str, seconds: float) -> bool:
    """Suspends on a timer at the effect's position, in the transaction of a boundary."""
    ordinal = Wait.objects.filter(run=tx.run, position=row.position, kind=WaitKind.TIMER).count()
    wait = Wait(position=row.position, kind=WaitKind.TIMER, ordinal=ordinal, name=name, parked=Wait.KEEP)
    wait.due_at = tx.now + timedelta(seconds=seconds)
    wait_events.open_(tx, wait, call="effect")
    return turn.park_in(tx, [(wait.pk, Wait.KEEP)])


def _doubted(call: Call, row: Effect, reason: str) -> Receipt[Any]:
    with call.turn.boundary(honour=False) as tx:
        events.doubt(tx, row, reason)
    return _settle(call, row)


def _settle(call: Call, row: Effect) -> Receipt[Any]:
    """Doubt is settled in this same turn, by the same rules as after a crash."""
    from approvals.engine import recovery

    recovery.settle(call.turn, row)
    done = _settled(call, row, call.turn.history.at(row.position))
    return done if done is not None else advance(call, row)
