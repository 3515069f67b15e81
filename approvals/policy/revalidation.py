"""All of it once more at dispatch: the policy as it was and as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from approvals.policy.choosing import choose, stages_text
from approvals.policy.counting import eligibility, lacks_comment, tally
from approvals.policy.durations import duration_text
from approvals.policy.values import Facts, Parties, Person, Policy, Revalidation, Rule, Vote


def revalidate(
    pinned: Policy,
    current: Policy,
    facts: Facts,
    *,
    votes: Sequence[Vote],
    people: Mapping[str, Person],
    parties: Parties,
    approved_at: datetime | None,
    now: datetime,
    loaded_since: bool = False,
) -> Revalidation:
    """Whether what was approved may go out now: the policy as it was and as it is must both hold.

    `people` are the reviewers as they are now, by id; one who is absent from it has left. `loaded_since`:
    nobody was asked under this policy, because it did not hold for this when the others were."""
    then = "was loaded since" if loaded_since else "as it was when this was asked"
    versions = [(pinned, choose(pinned, facts), then)]
    if current != pinned:
        versions.append((current, choose(current, facts), "as it is now"))
    for _, verdict, label in versions:
        if verdict.kind == "denied":
            return Revalidation(False, f"{verdict.reason} (The policy {label}.)", True)
    asking = [
        (policy, policy.rules[verdict.rule], label)
        for policy, verdict, label in versions
        if verdict.kind == "ask" and verdict.rule is not None
    ]
    if not asking:
        return Revalidation(True, versions[-1][1].reason, False)
    for policy, rule, label in asking:
        problem = _shortfall(policy, rule, votes, people, parties)
        if problem and loaded_since:
            asked = stages_text(rule.stages)
            reason = f"Policy {policy.slug}, loaded since, asks for {asked}; nobody was asked yet."
            return Revalidation(False, reason, False)
        if problem:
            reason = f"The approval does not hold under policy {policy.slug} {label}: {problem}."
            return Revalidation(False, reason, False)
    return _in_time([policy for policy, _, _ in asking], approved_at, now)


def _shortfall(
    policy: Policy, rule: Rule, votes: Sequence[Vote], people: Mapping[str, Person], parties: Parties
) -> str:
    result = tally(policy, rule, votes, people, parties)
    if result.outcome == "approved":
        return ""
    if result.outcome is not None:
        return f"the decision was {result.outcome.replace('_', ' ')}"
    lost = sorted(
        f"{vote.username} {why}" for vote in votes if (why := _lost(policy, rule, vote, people, parties))
    )
    count = f"{result.got} of {result.needed} needed approvals"
    return f"{count} still count ({', '.join(dict.fromkeys(lost))})" if lost else f"it has {count}"


def _lost(policy: Policy, rule: Rule, vote: Vote, people: Mapping[str, Person], parties: Parties) -> str:
    """Why an approval that was given does not count any more, after its reviewer's name."""
    if vote.outcome != "approved" or not vote.counted:
        return ""
    if vote.reviewer not in people:
        return "is no longer known"
    may = eligibility(policy, rule.stages, people[vote.reviewer], parties)
    if may.ok and lacks_comment(rule, vote):
        return "gave no comment"
    return may.reason


def _in_time(policies: Sequence[Policy], approved_at: datetime | None, now: datetime) -> Revalidation:
    if approved_at is None:
        return Revalidation(False, "Nobody has approved this yet.", False)
    limits = [policy.valid_for for policy in policies if policy.valid_for is not None]
    if limits and now >= approved_at + min(limits):
        given = approved_at.isoformat(timespec="seconds")
        lasts = duration_text(min(limits))
        reason = f"The approval was given at {given} and is valid for {lasts}; that time is over."
        return Revalidation(False, reason, False)
    return Revalidation(True, "The approval holds.", False)
