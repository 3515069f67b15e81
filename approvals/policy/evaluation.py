"""Choosing a rule, who may decide, counting decisions, and all of it once more at dispatch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from approvals.policy.conditions import ConditionError, condition_holds
from approvals.policy.reading import duration_text
from approvals.policy.values import (
    ROOTS,
    Eligibility,
    Facts,
    Outcome,
    Person,
    Policy,
    Revalidation,
    Rule,
    Stage,
    Tally,
    Verdict,
    Vote,
)


def choose(policy: Policy, facts: Facts) -> Verdict:
    """What the policy says of these facts: the first rule that matches."""
    values = {name: getattr(facts, name) for name in ROOTS}
    for index, rule in enumerate(policy.rules):
        told = f"Policy {policy.slug}, rule {index + 1} ({_condition(rule)})"
        try:
            if rule.when is not None and not condition_holds(rule.when, values):
                continue
        except ConditionError as error:
            reason = f"{told} could not be evaluated, because {error}; so it denies."
            return Verdict("denied", index, (), reason)
        if not rule.automatic:
            return Verdict("ask", index, rule.stages, f"{told} asks {_asked(rule.stages)}.")
        risk = "low" if facts.effect is None else facts.effect.get("risk")
        if risk not in ("low", "medium"):
            found = "high" if risk == "high" else "not known"
            reason = f"{told} is automatic, but the risk is {found}; that is never automatic."
            return Verdict("denied", index, (), reason)
        return Verdict("automatic", index, (), f"{told} allows this without a person.")
    reason = f"Policy {policy.slug}: none of its {len(policy.rules)} rules matches; so it denies."
    return Verdict("denied", None, (), reason)


def _asked(stages: Sequence[Stage]) -> str:
    return " and ".join(f"{s.needed} of {', '.join(s.sources)}" for s in stages)


def _condition(rule: Rule) -> str:
    if rule.when is None:
        return "always"
    told = " ".join(rule.when.split())
    return f"when {told}" if len(told) <= 120 else f"when {told[:117]}..."


def eligibility(
    policy: Policy,
    stages: Sequence[Stage],
    person: Person,
    *,
    requester: str | None,
    starter: str | None,
    editors: frozenset[str],
) -> Eligibility:
    """Whether this person may decide now; the first stage that takes them. Requester, starter, editors: ids."""
    if not person.is_active:
        return Eligibility(False, None, "is disabled")
    if "requester" in policy.exclude and person.id == requester:
        return Eligibility(False, None, "asked for it")
    if "starter" in policy.exclude and person.id == starter:
        return Eligibility(False, None, "started the run")
    if "editor" in policy.exclude and person.id in editors:
        return Eligibility(False, None, "edited it")
    for index, stage in enumerate(stages):
        if any(_belongs(source, person) for source in stage.sources):
            return Eligibility(True, index, "")
    sources = dict.fromkeys(source for stage in stages for source in stage.sources)
    missing = " and ".join(_missing(source) for source in sources)
    return Eligibility(False, None, missing or "cannot decide, because nobody is asked")


def _belongs(source: str, person: Person) -> bool:
    kind, _, name = source.partition(":")
    if kind == "group":
        return name in person.groups
    if kind == "permission":
        return name in person.permissions
    return kind == "user" and name == person.username


def _missing(source: str) -> str:
    kind = source.partition(":")[0]
    verb = {"group": "is not in", "permission": "does not have"}.get(kind, "is not")
    return f"{verb} {source}"


def tally(stages: Sequence[Stage], votes: Iterable[Vote]) -> Tally:
    """Count the decisions. Their order never matters: a rejection beats a request for changes,
    and that any number of approvals; nobody is counted twice, in one stage or in two."""
    counted = [vote for vote in votes if vote.counted]
    outcomes = {vote.outcome for vote in counted}
    got, open_stage = 0, None
    used: set[str] = set()
    for index, stage in enumerate(stages):
        yes = {v.reviewer for v in counted if v.outcome == "approved" and v.stage == index} - used
        used |= yes
        got += min(len(yes), stage.needed)
        if len(yes) < stage.needed and open_stage is None:
            open_stage = index
    outcome: Outcome | None = None
    if "rejected" in outcomes:
        outcome = "rejected"
    elif "changes_requested" in outcomes:
        outcome = "changes_requested"
    elif stages and open_stage is None:
        outcome = "approved"
    needed = sum(stage.needed for stage in stages)
    return Tally(needed, got, outcome, open_stage if outcome is None else None)


def revalidate(
    pinned: Policy,
    current: Policy,
    facts: Facts,
    *,
    votes: Sequence[Vote],
    people: Mapping[str, Person],
    requester: str | None,
    starter: str | None,
    editors: frozenset[str],
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
    asking = [version for version in versions if version[1].kind == "ask"]
    if not asking:
        return Revalidation(True, versions[-1][1].reason, False)
    judge = partial(eligibility, requester=requester, starter=starter, editors=editors)
    for policy, verdict, label in asking:
        may = {i: judge(policy, verdict.stages, person) for i, person in people.items()}
        problem = _shortfall(verdict.stages, votes, may)
        if problem and loaded_since:
            reason = f"Policy {policy.slug}, loaded since, asks for {_asked(verdict.stages)}; nobody was asked yet."
            return Revalidation(False, reason, False)
        if problem:
            reason = f"The approval does not hold under policy {policy.slug} {label}: {problem}."
            return Revalidation(False, reason, False)
    return _in_time([version[0] for version in versions], approved_at, now)


def _shortfall(stages: Sequence[Stage], votes: Sequence[Vote], may: Mapping[str, Eligibility]) -> str:
    kept = list(_still_counted(votes, may))
    result = tally(stages, kept)
    if result.outcome == "approved":
        return ""
    if result.outcome is not None:
        return f"the decision was {result.outcome.replace('_', ' ')}"
    still, gone = {v.reviewer for v in kept}, Eligibility(False, None, "is no longer known")
    lost = {(v.username, v.reviewer) for v in votes if v.counted and v.reviewer not in still}
    why = ", ".join(f"{name} {may.get(i, gone).reason}" for name, i in sorted(lost))
    count = f"{result.got} of {result.needed} needed approvals"
    return f"{count} still count ({why})" if why else f"it has {count}"


def _still_counted(votes: Iterable[Vote], may: Mapping[str, Eligibility]) -> Iterator[Vote]:
    """Approvals of those who may still decide, in the stage that takes them now; a no stays."""
    for vote in votes:
        who = may.get(vote.reviewer)
        if vote.outcome != "approved":
            yield vote
        elif who is not None and who.ok and who.stage is not None:
            yield replace(vote, stage=who.stage)


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
