"""The one door through which people decide. Every page, command and API comes here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals import facts, faults, payloads, policy
from approvals.errors import (
    AlreadyDecided,
    ApprovalsError,
    CommentRequired,
    DecisionRefused,
    InvalidInput,
    NotFound,
    StaleDigest,
    WaitClosed,
)
from approvals.models import Approval, Decision, Wait, statements
from approvals.states import RUN_FINAL, WaitStatus
from approvals.transitions import Transaction, locked, waits

OUTCOMES = ("approved", "rejected", "changes_requested")
_EXCLUDED = {"asked for it": "requester", "started the run": "starter", "edited it": "editor"}


@dataclass(frozen=True, slots=True)
class Decided:
    """What a decision came to."""

    wait_id: UUID
    outcome: str
    """What this person decided."""
    status: str
    """Of the approval now: open while the quorum is not met."""
    result: str
    """What the approval came to; empty while it is open."""
    needed: int
    got: int


def decide(
    wait_id: UUID,
    *,
    actor: Any,
    outcome: str,
    digest: str,
    revision: int | None = None,
    comment: str = "",
    action: Any = None,
    form: Any = None,
    key: str | None = None,
    channel: str = "web",
) -> Decided:
    """Records one person's decision on exactly what they saw; the one that settles it closes the wait.

    The same decision again by the same person gives the same answer and changes nothing; so does the same
    `key`, whatever happened since, and InvalidInput if it came with something else. Raises NotFound,
    InvalidInput, StaleDigest (digest or revision is not the present one), DecisionRefused (not eligible, not
    yet asked, no edit allowed), CommentRequired, AlreadyDecided (by, at, outcome) or WaitClosed (expired,
    cancelled). CASES 6, 8, 36-39.
    """
    if outcome not in OUTCOMES:
        raise InvalidInput("A decision's outcome is one of " + ", ".join(OUTCOMES), found=repr(outcome)[:60])
    if key is not None and (not 0 < len(key) <= 200 or not key.isprintable()):
        raise InvalidInput("A decision's key is a printable text of 1 to 200 characters")
    if action is not None:
        raise DecisionRefused("This policy lets nobody edit the action", wait=wait_id)
    answer: Decided | ApprovalsError
    with locked(_run_of(wait_id)) as tx:
        waits.apply_due(tx)  # a deadline that has passed has decided, whoever comes now
        approval = Approval.objects.select_related("wait", "policy").get(pk=wait_id)
        said = waits.decisions(approval)
        answer = (
            _answered_by_key(approval, said, actor, outcome, digest, key)
            or _answered_before(approval, said, actor, outcome, digest)
            or _refusal(approval, said, digest, revision)
            or _take(tx, approval, said, actor, outcome, comment, form, channel, key)
        )
    faults.reach("decided")
    if isinstance(answer, ApprovalsError):
        raise answer
    return answer


def _run_of(wait_id: UUID) -> UUID:
    found = statements.fetch(Wait, "id = %s AND kind = 'approval'", [wait_id])
    if not found:
        raise NotFound("There is no such approval", wait=wait_id)
    return found[0].run_id


def _own(approval: Approval, said: Sequence[Decision], actor: Any) -> Decision | None:
    own = [d for d in said if actor is not None and d.reviewer_id == actor.pk and facts.counts(d, approval)]
    return own[0] if own else None


def _answered_by_key(
    approval: Approval, said: Sequence[Decision], actor: Any, outcome: str, digest: str, key: str | None
) -> Decided | ApprovalsError | None:
    """The answer to a request that came before, told by the key that its sender gave it."""
    earlier = next((d for d in said if key is not None and d.key == key), None)
    if earlier is None:
        return None
    same = (earlier.reviewer_id, earlier.outcome, earlier.digest)
    if actor is None or actor.pk is None or same != (actor.pk, outcome, digest):
        return InvalidInput("This key came before, with another decision", key=key, wait=approval.pk)
    return _decided(approval, outcome)


def _answered_before(
    approval: Approval, said: Sequence[Decision], actor: Any, outcome: str, digest: str
) -> Decided | None:
    """A double click: the same person, the same words, about the same bytes."""
    own = _own(approval, said, actor)
    if own is None or own.outcome != outcome or own.digest != digest:
        return None
    return _decided(approval, outcome)


def _refusal(
    approval: Approval, said: Sequence[Decision], digest: str, revision: int | None
) -> ApprovalsError | None:
    wait = approval.wait
    if wait.status != WaitStatus.OPEN:
        return _closed(approval, said)
    if digest != approval.digest and approval.revision == 1:
        told = "This is not a digest of this approval; read it, and decide by the one that it shows"
        return StaleDigest(told, wait=wait.pk, found=digest[:80] or "none", current=approval.digest)
    if digest != approval.digest or (revision is None and approval.revision > 1):
        return StaleDigest(
            wait=wait.pk, seen=digest or "none", current=approval.digest, revision=approval.revision
        )
    if revision is not None and revision != approval.revision:
        return StaleDigest(wait=wait.pk, seen_revision=revision, revision=approval.revision)
    return None


def _closed(approval: Approval, said: Sequence[Decision]) -> ApprovalsError:
    """The truth for whoever came second: who decided what, and when."""
    wait = approval.wait
    last = next((d for d in reversed(said) if d.withdrawn_at is None), None)
    if wait.status == WaitStatus.RESOLVED and last is not None:
        return AlreadyDecided(wait=wait.pk, outcome=wait.outcome, by=last.reviewer_name, at=last.at)
    told = {"expired": "It expired before it was decided; nothing was changed"}
    return WaitClosed(told.get(wait.outcome), wait=wait.pk, outcome=wait.outcome, at=wait.closed_at)


def _take(
    tx: Transaction,
    approval: Approval,
    said: Sequence[Decision],
    actor: Any,
    outcome: str,
    comment: str,
    form: Any,
    channel: str,
    key: str | None,
) -> Decided | ApprovalsError:
    people = facts.reviewers(said, actor)
    person = people.get(str(actor.pk)) if actor is not None else None
    if person is None or tx.run.status in RUN_FINAL:
        return DecisionRefused("Only a person with an account can decide", wait=approval.pk)
    rules, rule = facts.read(approval.policy), facts.rule(approval)
    is_open = facts.tally(approval, tx.run, said, people).stage
    eligible = policy.eligibility(rules, rule.stages, person, facts.parties(tx.run), upto=is_open)
    if not eligible.ok:
        slug, excluded = approval.policy.slug, _EXCLUDED.get(eligible.reason)
        by = f"policy {slug} excludes the {excluded}" if excluded else f"policy {slug}"
        reason = f"{person.username} may not decide this: {person.username} {eligible.reason} ({by})"
        return DecisionRefused(
            f"{reason}. Nothing was changed.", wait=approval.pk, actor=person.username, policy=slug
        )
    if (own := _own(approval, said, actor)) is not None:
        return AlreadyDecided(
            "You decided this already", wait=approval.pk, by=own.reviewer_name, at=own.at, outcome=own.outcome
        )
    if outcome in rule.comment_required and not policy.says_something(comment):
        return CommentRequired(wait=approval.pk, outcome=outcome, policy=approval.policy.slug)
    filled, problem = _checked_form(approval, form, outcome)
    if problem is not None:
        return problem
    decision = Decision(
        approval=approval,
        reviewer=actor,
        reviewer_name=person.username,
        outcome=outcome,
        comment=_clean(comment),
        form=filled,
        channel=channel,
        revision=approval.revision,
        digest=approval.digest,
        key=key,
        stage=eligible.stage or 0,
    )
    waits.decide(tx, approval.wait, approval, decision, said, people)
    return _decided(approval, outcome)


def _clean(comment: str) -> str:
    return comment.encode("utf-8", "backslashreplace").decode().replace("\x00", "")[:10_000]


def _checked_form(approval: Approval, form: Any, outcome: str) -> tuple[str, ApprovalsError | None]:
    if not approval.form:
        return "", None if form in (None, {}, "") else InvalidInput(
            "This approval has no form", wait=approval.pk
        )
    if form is None:
        missing = InvalidInput("Fill in the form", wait=approval.pk) if outcome == "approved" else None
        return "", missing
    try:
        tree = payloads.tree_of(form, what="the form")
        return payloads.at_rest(
            payloads.fitted(tree, json.loads(approval.form), told="The form does not fit")
        ), None
    except ApprovalsError as error:
        return "", error


def _decided(approval: Approval, outcome: str) -> Decided:
    wait = approval.wait
    counted = facts.quorum(approval)
    return Decided(wait.pk, outcome, wait.status, wait.outcome, counted.needed, counted.got)


def withdraw(wait_id: UUID, *, actor: Any) -> None:
    """Takes one's own decision back while the approval is open.

    Raises NotFound, WaitClosed or AlreadyDecided, DecisionRefused if this person has decided nothing.
    """
    problem: ApprovalsError | None = None
    with locked(_run_of(wait_id)) as tx:
        waits.apply_due(tx)
        approval = Approval.objects.select_related("wait", "policy").get(pk=wait_id)
        said = waits.decisions(approval)
        own = _own(approval, said, actor)
        if approval.wait.status != WaitStatus.OPEN:
            problem = _closed(approval, said)
        elif own is None:
            problem = DecisionRefused("You have decided nothing here that could be withdrawn", wait=wait_id)
        else:
            waits.withdraw(tx, approval.wait, approval, own, said)
    if problem is not None:
        raise problem
