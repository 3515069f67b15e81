"""Who may decide, and what the decisions come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from approvals.policy.matching import assign
from approvals.policy.values import Eligibility, Outcome, Parties, Person, Policy, Rule, Stage, Tally, Vote


def eligibility(
    policy: Policy, stages: Sequence[Stage], person: Person, parties: Parties, *, upto: int | None = None
) -> Eligibility:
    """Whether this person may decide now, and in which stage.

    `upto`: the stage that is open. It takes them before an earlier one does; a later one does not yet.
    None: the first that takes them.
    """
    if reason := _excluded(policy, person, parties):
        return Eligibility(False, None, reason)
    takes = [i for i, stage in enumerate(stages) if _is_one_of(stage.sources, person)]
    reached = [i for i in takes if upto is None or i <= upto]
    if reached:
        return Eligibility(True, upto if upto in reached else reached[0], "")
    if takes and upto is not None:
        return Eligibility(False, None, f"is asked only once stage {stages[upto].name} is met")
    sources = dict.fromkeys(source for stage in stages for source in stage.sources)
    missing = " and ".join(_missing(source) for source in sources)
    return Eligibility(False, None, missing or "cannot decide, because nobody is asked")


def _excluded(policy: Policy, person: Person, parties: Parties) -> str:
    if not person.is_active:
        return "is disabled"
    if "requester" in policy.exclude and person.id == parties.requester:
        return "asked for it"
    if "starter" in policy.exclude and person.id == parties.starter:
        return "started the run"
    if "editor" in policy.exclude and person.id in parties.editors:
        return "edited it"
    return ""


def _is_one_of(sources: Iterable[str], person: Person) -> bool:
    return any(_belongs(source, person) for source in sources)


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


def tally(
    policy: Policy, rule: Rule, votes: Iterable[Vote], people: Mapping[str, Person], parties: Parties
) -> Tally:
    """Count the decisions over the people as they are now, by id. Their order never matters.

    Enough rejections beat a request for changes, and that any number of approvals. An approval counts while
    its reviewer may decide; a no stays, whoever said it. Nobody serves two needs, nor two stages unless the
    rule allows it.
    """
    said = [vote for vote in votes if vote.counted]
    no = {vote.reviewer for vote in said if vote.outcome == "rejected"}
    yes = {v.reviewer for v in said if v.outcome == "approved" and not lacks_comment(rule, v)} - no
    voters = [people[i] for i in yes if i in people and not _excluded(policy, people[i], parties)]
    far = quorum(rule.stages, [[len(who) for who in stage] for stage in serving(rule, voters)])
    outcome: Outcome | None = None
    if len(no) >= rule.reject_after:
        outcome = "rejected"
    elif any(vote.outcome == "changes_requested" for vote in said):
        outcome = "changes_requested"
    elif rule.stages and far.stage is None:
        outcome = "approved"
    return replace(far, outcome=outcome, stage=far.stage if outcome is None else None)


def quorum(stages: Sequence[Stage], progress: Sequence[Sequence[int]]) -> Tally:
    """How far it is, from how many count by stage and need; what is not there counts nothing."""
    counted = tuple(
        tuple(progress[i]) if i < len(progress) else (0,) * len(stage.needs) for i, stage in enumerate(stages)
    )
    unmet = [i for i, (stage, got) in enumerate(zip(stages, counted, strict=True)) if sum(got) < stage.needed]
    needed, got = sum(stage.needed for stage in stages), sum(map(sum, counted))
    return Tally(needed, got, None, unmet[0] if unmet else None, counted)


def says_something(comment: str) -> bool:
    """Whether a comment has anything to see."""
    return any(character.isprintable() and not character.isspace() for character in comment)


def lacks_comment(rule: Rule, vote: Vote) -> bool:
    """Whether the rule wants a comment with it and there is none."""
    return vote.outcome in rule.comment_required and not vote.commented


def serving(rule: Rule, people: Sequence[Person]) -> list[list[list[str]]]:
    """Who of these people serves which need, by stage: as many as can be, earlier needs first."""
    served: list[list[list[str]]] = [[[] for _ in stage.needs] for stage in rule.stages]
    places = [
        [(i, j) for j, need in enumerate(stage.needs) for _ in range(need.needed)]
        for i, stage in enumerate(rule.stages)
    ]
    together = [[place for stage in places for place in stage]] if rule.separate_stages else places
    for slots in together:
        wants = [[p.id for p in people if _is_one_of(rule.stages[i].needs[j].sources, p)] for i, j in slots]
        for (i, j), person in zip(slots, assign(wants), strict=True):
            if person is not None:
                served[i][j].append(person)
    return served
