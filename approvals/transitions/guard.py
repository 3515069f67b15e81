"""The guard of dispatch: does everything that was approved still hold, for exactly these bytes, now?

Evaluated under the run's lock, in the transaction that dispatches (ARCHITECTURE 9).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from approvals import facts, policy
from approvals.journal import Transaction
from approvals.models import Approval, Effect, PolicyVersion, Wait
from approvals.states import WaitKind
from approvals.transitions import waits


@dataclass(frozen=True, slots=True)
class Guarded:
    """What the guard found: the approvals that may be consumed, or why not."""

    ok: bool
    approvals: Sequence[Approval] = ()
    reason: str = ""
    denied: bool = False


def pin(effect: Effect, versions: Sequence[PolicyVersion]) -> str:
    """The policies as the effect remembers them."""
    return json.dumps([{"slug": v.slug, "version": v.version} for v in versions])


def pinned(effect: Effect) -> dict[str, int]:
    """Slug → version of the policies that were in force when the effect was intended."""
    return {row["slug"]: row["version"] for row in json.loads(effect.policies)}


def check(tx: Transaction, effect: Effect, workflow_version: int) -> Guarded:
    """Evaluates every pinned and every current policy over facts as they are now; the stricter wins.

    `workflow_version`: of the code that is about to send; an approval that other code asked for is asked anew.
    """
    before = pinned(effect)
    current = facts.required(before, effect.kind)
    if not current:
        return Guarded(ok=True)
    old = {(v.slug, v.version): v for v in PolicyVersion.objects.filter(slug__in=before)}
    held = {
        a.policy.slug: a
        for a in Approval.objects.filter(
            wait__run=tx.run, effect=effect, invalidated="", wait__outcome="approved"
        )
        .select_related("policy", "wait")
        .order_by("wait__closed_seq")
    }
    used, refused = [], []
    for version in current:
        then = old.get((version.slug, before.get(version.slug, version.version)), version)
        approval = held.get(version.slug)
        since = version.slug not in before and approval is None
        result = _revalidate(tx, effect, approval, facts.read(then), facts.read(version), loaded_since=since)
        problem = _unusable(approval, effect, workflow_version) if approval is not None else ""
        if result.denied or problem or not result.ok:
            refused.append(Guarded(ok=False, reason=problem or result.reason, denied=result.denied))
        elif approval is not None:
            used.append(approval)
    if refused:
        return next((r for r in refused if r.denied), refused[0])
    return Guarded(ok=True, approvals=used)


def to_ask_again(tx: Transaction, effect: Effect) -> list[tuple[PolicyVersion, policy.Verdict]]:
    """Pins the policies anew; those of them that ask people, and what they ask.

    One that decides by itself now, but asked before, asks as it did then: the stricter of both holds.
    """
    before, seen = pinned(effect), facts.of_effect(tx.run, effect)
    old = {(v.slug, v.version): v for v in PolicyVersion.objects.filter(slug__in=before)}
    verdicts = []
    for version in facts.required(before, effect.kind):
        then = old.get((version.slug, before.get(version.slug, version.version)), version)
        found = [(v, policy.choose(facts.read(v), seen)) for v in (version, then)]
        verdicts.append(next((f for f in found if f[1].kind == "ask"), found[0]))
    effect.policies = pin(effect, [version for version, _ in verdicts])
    Effect.objects.filter(pk=effect.pk).update(policies=effect.policies)
    return [(version, verdict) for version, verdict in verdicts if verdict.kind == "ask"]


def _unusable(approval: Approval, effect: Effect, workflow_version: int) -> str:
    if approval.workflow_version != workflow_version:
        before = approval.workflow_version
        return f"Version {before} of the workflow asked, and version {workflow_version} would send."
    if approval.digest != effect.digest:
        return "What was approved is not what would be sent."
    if approval.consumed_by_id not in (None, effect.pk):
        return "The approval was used by another effect."
    return ""


def _revalidate(
    tx: Transaction,
    effect: Effect,
    approval: Approval | None,
    then: policy.Policy,
    now: policy.Policy,
    *,
    loaded_since: bool,
) -> policy.Revalidation:
    said = waits.decisions(approval) if approval else []
    return policy.revalidate(
        then,
        now,
        facts.of_effect(tx.run, effect),
        votes=facts.votes(approval, said) if approval else [],
        people=facts.reviewers(said),
        parties=facts.parties(tx.run),
        approved_at=approval.wait.closed_at if approval else None,
        now=tx.now,
        loaded_since=loaded_since,
    )


def approvals_to_invalidate(effect: Effect) -> list[Wait]:
    """The approvals of an effect that a refused check makes void."""
    return list(
        Wait.objects.filter(
            run=effect.run_id,
            kind=WaitKind.APPROVAL,
            approval__effect=effect,
            approval__invalidated="",
            outcome="approved",
        )
        .select_related("approval")
        .order_by("position", "ordinal")
    )
