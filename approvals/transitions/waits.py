"""Events of a wait. Closing one that its run is parked on wakes the run in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from approvals import facts, payloads, policy
from approvals.errors import InvalidInput, LimitExceeded
from approvals.journal import Transaction
from approvals.limits import limits
from approvals.models import Approval, Audience, Decision, Effect, Message, Wait, statements
from approvals.states import EffectStatus, RunStatus, WaitKind, WaitStatus
from approvals.transitions import runs


def open_(tx: Transaction, wait: Wait, approval: Approval | None = None, **data: Any) -> None:
    """Opens a wait; a message that came early closes it at once."""
    wait.opened_at = tx.now
    tx.move(
        wait,
        "open",
        {"parked": wait.parked},
        wait=wait.kind,
        ordinal=wait.ordinal,
        due_at=wait.due_at.isoformat() if wait.due_at else None,
        **data,
    )
    if approval is not None:
        approval.wait = wait
        approval.save(force_insert=True)
        _ask(approval, 0)
    if wait.kind in (WaitKind.SIGNAL, WaitKind.WEBHOOK):
        for message in statements.fetch(Message, _EARLY, [tx.run.pk, wait.name]):
            try:
                message.payload = _fitted(wait, payloads.read_whole(message.payload))
            except InvalidInput:
                Message.objects.filter(pk=message.pk).update(status=Message.Status.LATE)
                tx.append("message.refuse", name=message.name, id=message.message_id)
                continue
            Message.objects.filter(pk=message.pk).update(
                status=Message.Status.CONSUMED, wait=wait, payload=message.payload
            )
            _give(tx, wait, message)
            return


def _fitted(wait: Wait, tree: Any) -> str:
    """What the wait gets of this payload, at rest. Raises InvalidInput if it asks for something else."""
    if wait.data:
        schema = json.loads(wait.data)["schema"]
        tree = payloads.fitted(tree, schema, told="The payload does not fit what the run waits for")
    return payloads.at_rest(tree)


def waiting_for(tx: Transaction, name: str) -> Wait | None:
    """The open wait that the next message of this name is for: the oldest."""
    return next(iter(statements.fetch(Wait, _WAITING, [tx.run.pk, name])), None)


def receive(tx: Transaction, message: Message, tree: Any, waiting: Wait | None) -> None:
    """A message came: the wait that waits for it gets it, else it is kept, sealed whole, for the next one.

    Raises InvalidInput, and nothing is changed, if the wait asks for something else; LimitExceeded where the
    journal has no room for more messages.
    """
    if tx.run.seq >= limits().journal_entries:
        raise LimitExceeded("The journal of this run is full", entries=tx.run.seq)
    message.payload = payloads.sealed_whole(tree) if waiting is None else _fitted(waiting, tree)
    message.run, message.received_at, message.wait = tx.run, tx.now, waiting
    if waiting is not None:
        message.status = Message.Status.CONSUMED
    statements.insert(message)
    if waiting is None:
        tx.append("message.keep", name=message.name, id=message.message_id)
    else:
        _give(tx, waiting, message)


def _give(tx: Transaction, wait: Wait, message: Message) -> None:
    value = {
        "id": message.message_id,
        "received_at": message.received_at.isoformat(),
        "payload": message.payload,
    }
    resolve(tx, wait, "received", value)


def resolve(tx: Transaction, wait: Wait, outcome: str, value: Any = None) -> None:
    """It got what it waited for."""
    if wait.status == WaitStatus.OPEN:
        _close(tx, wait, "resolve", outcome, value)


_DUE = "run_id = %s AND status = 'open' AND due_at <= %s ORDER BY due_at, position"
_WAITING = (
    "run_id = %s AND name = %s AND kind = 'signal' AND status = 'open' ORDER BY position, ordinal LIMIT 1"
)
_EARLY = "run_id = %s AND name = %s AND status = 'buffered' ORDER BY id"
_SAID = "approval_id = %s ORDER BY at, id"


def apply_due(tx: Transaction) -> list[Wait]:
    """Applies what time has already decided, in the order of the deadlines. Every event does this first."""
    due = statements.fetch(Wait, _DUE, [tx.run.pk, tx.now])
    closed: list[Wait] = []
    for wait in due:
        if closed:
            wait.refresh_from_db(fields=["status", "parked"])  # an earlier one may have closed it as a loser
        if wait.status != WaitStatus.OPEN:
            continue
        if wait.kind == WaitKind.TIMER:
            resolve(tx, wait, "fired", {"at": wait.due_at.isoformat() if wait.due_at else None})
        else:
            expire(tx, wait)
        closed.append(wait)
    return closed


def expire(tx: Transaction, wait: Wait) -> None:
    """Its deadline passed. An approval's policy may cancel the run then."""
    at = wait.due_at.isoformat() if wait.due_at else None
    if wait.kind != WaitKind.APPROVAL:
        _close(tx, wait, "expire", "expired", {"at": at})
        return
    approval = Approval.objects.select_related("policy").get(pk=wait.pk)
    rules = facts.read(approval.policy)
    if rules.on_expiry == "cancel":
        runs.flag_cancel(tx, actor=f"policy {rules.slug}", reason=f"nobody decided {wait.name!r} in time")
    _close(tx, wait, "expire", "expired", outcome_of(approval, decisions(approval), "expired", ""))
    _withdraw_effect(tx, approval, "expired")


def decide(
    tx: Transaction,
    wait: Wait,
    approval: Approval,
    decision: Decision,
    earlier: Sequence[Decision],
    people: Mapping[str, policy.Person],
) -> policy.Tally:
    """One person's decision; the one that settles the matter closes the wait in this transaction.

    `people`: everybody who decided, as they are now.
    """
    decision.at = tx.now
    statements.insert(decision)
    tx.move(
        wait,
        "decide",
        decision=str(decision.pk),
        reviewer=decision.reviewer_name,
        outcome=decision.outcome,
        comment=decision.comment,
        revision=decision.revision,
        digest=decision.digest,
        channel=decision.channel,
    )
    rows = [*earlier, decision]
    result = _count(tx, approval, rows, people)
    if result.outcome is not None:
        _close(
            tx, wait, "resolve", result.outcome, outcome_of(approval, rows, result.outcome, decision.comment)
        )
        if result.outcome != "approved":
            _withdraw_effect(tx, approval, result.outcome)
    return result


def withdraw(
    tx: Transaction, wait: Wait, approval: Approval, decision: Decision, said: Sequence[Decision]
) -> None:
    """A person takes back their own decision, one of those that were said, while it is open."""
    decision.withdrawn_at = tx.now
    Decision.objects.filter(pk=decision.pk).update(withdrawn_at=tx.now)
    tx.move(wait, "withdraw", decision=str(decision.pk), reviewer=decision.reviewer_name)
    _count(tx, approval, said, facts.reviewers(said))


def _count(
    tx: Transaction, approval: Approval, said: Sequence[Decision], people: Mapping[str, policy.Person]
) -> policy.Tally:
    """Counts anew, and keeps how far it has come; a stage that opens by it asks its people."""
    result = facts.tally(approval, tx.run, said, people)
    progress = json.dumps(result.progress)
    if progress != approval.progress:
        approval.progress = progress
        Approval.objects.filter(pk=approval.pk).update(progress=progress)
    if result.stage:
        _ask(approval, result.stage)
    return result


def _ask(approval: Approval, upto: int) -> None:
    """The people of the stages up to this one are asked; a stage may open a second time."""
    stages = facts.rule(approval).stages[: upto + 1]
    asked = sorted({source for stage in stages for source in stage.sources})
    rows = [Audience(approval=approval, source=source) for source in asked]
    Audience.objects.bulk_create(rows, ignore_conflicts=upto > 0)


def invalidate(tx: Transaction, wait: Wait, approval: Approval, reason: str) -> None:
    """A check at dispatch refused what had been approved; a fresh approval is opened beside this."""
    approval.invalidated = reason
    Approval.objects.filter(pk=approval.pk).update(invalidated=reason)
    tx.move(wait, "invalidate", reason=reason)


def decisions(approval: Approval) -> list[Decision]:
    """Everything that was said about it, in order."""
    return statements.fetch(Decision, _SAID, [approval.pk])


def outcome_of(approval: Approval, rows: Sequence[Decision], outcome: str, comment: str) -> dict[str, Any]:
    """What the closing entry of an approval says; replay answers from it."""
    form = next((d.form for d in reversed(rows) if d.form and d.outcome == outcome), "")
    return {
        "outcome": outcome,
        "action": approval.action,
        "digest": approval.digest,
        "comment": comment,
        "form": form,
        "decisions": [
            {
                "reviewer": d.reviewer_name,
                "outcome": d.outcome,
                "comment": d.comment,
                "at": d.at.isoformat(),
                "channel": d.channel,
                "counted": facts.counts(d, approval),
            }
            for d in rows
        ],
    }


def _withdraw_effect(tx: Transaction, approval: Approval, reason: str) -> None:
    """The effect that asked is not going to be sent; its other open approvals are pointless."""
    if approval.effect_id is None:
        return
    effect = Effect.objects.select_for_update().get(pk=approval.effect_id)
    if effect.status != EffectStatus.INTENDED:
        return
    tx.move(effect, "withdraw", {"reason": reason}, reason=reason)
    for other in Wait.objects.filter(run=tx.run, approval__effect=effect, status=WaitStatus.OPEN):
        runs.leave_wait(tx, other)


def _close(tx: Transaction, wait: Wait, event: str, outcome: str, value: Any) -> None:
    parked = wait.parked
    tx.move(
        wait, event, {"outcome": outcome}, outcome=outcome, value=json.dumps(value, separators=(",", ":"))
    )
    if tx.run.status != RunStatus.SUSPENDED or parked == Wait.NOT_PARKED:
        return
    refused = wait.kind == WaitKind.APPROVAL and outcome != "approved" and tx.run.parked_left > 0
    left = tx.run.parked_left - 1
    if refused and Approval.objects.filter(pk=wait.pk, effect__isnull=False).exists():
        left = 0  # one policy's no is enough: the others need not answer
    tx.set(parked_left=left)
    if left <= 0:
        runs.wake(tx, losers=parked != Wait.TOGETHER)
