"""What a policy file says that can never be. Refused when it is loaded, never when it is read back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from approvals.policy.choosing import fits
from approvals.policy.counting import serving
from approvals.policy.durations import duration_text
from approvals.policy.matching import assign
from approvals.policy.reading import parse, refuse
from approvals.policy.values import RISKS, Match, Need, Person, Policy, Rule

type _Cell = tuple[str | None, str]
"""A kind of effect (None: a question to people; "": one that the policy does not name) and a risk."""
_NAMES_SHOWN: Final = 3


def check(body: Mapping[str, Any]) -> Policy:
    """Read a policy that is to be loaded. Raises InvalidPolicy with every problem, what can never be included."""
    policy = parse(body)
    problems = [*_claims(policy), *_reach(policy), *_people(policy), *_times(policy), *_not_yet(policy)]
    if problems:
        refuse(policy.slug, problems)
    return policy


def _not_yet(policy: Policy) -> Iterator[str]:
    """Of CONTRACT's keys, those that nothing in the product obeys yet."""
    said = {
        "enforcement": policy.enforcement != "hard",
        "edit": policy.edit,
        "remind": policy.remind,
        "escalate": policy.escalate,
        "fresh_sign_in": policy.fresh_sign_in,
    }
    for key in (key for key, is_said in said.items() if is_said):
        yield f"{key}: not supported yet; remove it, it is never silently ignored"
    if policy.on_expiry == "escalate":
        yield "on_expiry: escalate is not supported yet; needs reject or cancel"


# --- when rules speak ------------------------------------------------------------------------------


def _claims(policy: Policy) -> Iterator[str]:
    kinds = policy.match.kinds
    for index, kind in enumerate(policy.effects):
        if kinds and kind not in kinds:
            yield f"effects[{index}]: {kind} is claimed, but match takes only {', '.join(kinds)}; so it could never run"


def _reach(policy: Policy) -> Iterator[str]:
    cells = [_cells(policy, rule) for rule in policy.rules]
    for index, rule in enumerate(policy.rules):
        if not cells[index]:
            yield f"rules[{index}]: can never match, because its match and the policy's have nothing in common"
            continue
        before = [j for j in range(index) if policy.rules[j].when is None]
        always = next((j for j in before if policy.rules[j].match == Match()), None)
        taken = {c for j in before for c in cells[index] & cells[j] if _covers(policy, policy.rules[j], rule)}
        if always is not None:
            yield f"rules[{index}]: can never match, because rules[{always}] has no `when` and always matches"
        elif taken == cells[index]:
            told = ", ".join(f"rules[{j}]" for j in before)
            yield f"rules[{index}]: can never match, because {told} without `when` take all that it matches"
        elif rule.automatic and {risk for _, risk in cells[index] - taken} == {"high"}:
            yield f"rules[{index}].automatic: never for risk high, so this rule could only deny; say deny: true"


def _cells(policy: Policy, rule: Rule) -> set[_Cell]:
    """What this rule may match, `when` left aside."""
    levels = (policy.match, rule.match)
    if all(level.targets for level in levels) and not any(
        _meet(a, b) for a in policy.match.targets for b in rule.match.targets
    ):
        return set()
    named = {*policy.effects, *policy.match.kinds, *(k for r in policy.rules for k in r.match.kinds)}
    cells: set[_Cell] = {(kind, risk) for kind in {*named, ""} for risk in RISKS} | {(None, "low")}
    return {cell for cell in cells if all(_takes(level, *cell) for level in levels)}


def _takes(match: Match, kind: str | None, risk: str) -> bool:
    if kind is None and match.targets:
        return False
    return (not match.kinds or kind in match.kinds) and (not match.risks or risk in match.risks)


def _covers(policy: Policy, earlier: Rule, later: Rule) -> bool:
    """Whether the earlier rule takes every target that the later one does."""
    asked = later.match.targets or policy.match.targets or ("*",)
    return not earlier.match.targets or all(any(fits(q, p) for q in earlier.match.targets) for p in asked)


def _meet(first: str, second: str) -> bool:
    """Whether some text fits both patterns."""
    at = {(0, 0)}  # places in both that the same text may lead to
    seen: set[tuple[int, int]] = set()
    while at:
        i, j = at.pop()
        if (i, j) in seen:
            continue
        seen.add((i, j))
        a, b = first[i : i + 1], second[j : j + 1]
        if not a and not b:
            return True
        if a == "*":
            at |= {(i + 1, j)} | ({(i, j + 1)} if b else set())
        if b == "*":
            at |= {(i, j + 1)} | ({(i + 1, j)} if a else set())
        if a and a == b:
            at.add((i + 1, j + 1))
    return False


# --- who is asked ----------------------------------------------------------------------------------


def _people(policy: Policy) -> Iterator[str]:
    for index, rule in enumerate(policy.rules):
        short = list(_short_needs(f"rules[{index}]", rule))
        yield from short or _short_together(f"rules[{index}]", rule)
        users = _users(need for stage in rule.stages for need in stage.needs)
        if rule.stages and users is not None and len(users) < rule.reject_after:
            found = f"found {rule.reject_after}, but only {_named(users)} may decide"
            yield f"rules[{index}].reject_after: {found}; so it could never be rejected"


def _short_needs(path: str, rule: Rule) -> Iterator[str]:
    for i, stage in enumerate(rule.stages):
        for j, need in enumerate(stage.needs):
            users = _users([need])
            if users is not None and len(users) < need.needed:
                where = f"{path}.stages[{i}]" + (f".all[{j}]" if len(stage.needs) > 1 else "")
                yield (
                    f"{where}.needed: found {need.needed}, but from names only {len(users)} different users;"
                    " this can never be satisfied"
                )


def _short_together(path: str, rule: Rule) -> Iterator[str]:
    """Needs that can each be met, but not all by different people."""
    stages = [list(stage.needs) for stage in rule.stages]
    together = [[need for stage in stages for need in stage]] if rule.separate_stages else stages
    for index, needs in enumerate(together):
        wants = [users for need in needs if (users := _users([need])) is not None for _ in range(need.needed)]
        if None in assign(wants):
            where = f"{path}.stages" if rule.separate_stages else f"{path}.stages[{index}]"
            several = rule.separate_stages and len(stages) > 1
            hint = " (separate_stages: false lets one person serve two)" if several else ""
            users = sorted({user for want in wants for user in want})
            yield (
                f"{where}: {len(wants)} different people are needed of {_named(users)};"
                f" this can never be satisfied{hint}"
            )


def _users(needs: Iterator[Need] | Sequence[Need]) -> list[str] | None:
    """The people that are asked, where all are by name; None: anybody may come to be among them."""
    sources = dict.fromkeys(source for need in needs for source in need.sources)
    return list(sources) if all(source.startswith("user:") for source in sources) else None


def _named(users: Sequence[str]) -> str:
    return ", ".join(users[:10]) + (f" and {len(users) - 10} more" if len(users) > 10 else "")


def _times(policy: Policy) -> Iterator[str]:
    if policy.on_expiry == "escalate" and not policy.escalate:
        yield "on_expiry: escalate, but there is no escalate; say whom to ask then"
    if (last := policy.respond_within) is None:
        return
    over = f"after respond_within ({duration_text(last)}) has passed; so it would never come"
    for index, after in enumerate(policy.remind):
        if after >= last:
            yield f"remind[{index}]: found {duration_text(after)}, {over}"
    for index, rung in enumerate(policy.escalate):
        if rung.after >= last and policy.on_expiry != "escalate":
            yield f"escalate[{index}].after: found {duration_text(rung.after)}, {over}"


def understaffed(policy: Policy, people: Sequence[Person], gone: Collection[str] = ()) -> list[str]:
    """What these people, as they are now, cannot satisfy. They may change, so these are warnings.

    `gone`: sources that are not there; a need of nothing else is not told again.
    """
    found = []
    for index, rule in enumerate(policy.rules):
        served = serving(rule, people)
        missing = list(_missing(rule, served))
        found += [f"rules[{index}]: {text}" for sources, text in missing if not {*sources} <= {*gone}]
        if missing or policy.exclude.isdisjoint(("requester", "starter")):
            continue
        busy = {person for stage in served for need in stage for person in need}
        needed = [
            p.username
            for p in people
            if p.id in busy and any(_missing(rule, serving(rule, [o for o in people if o.id != p.id])))
        ]
        if needed:
            names = ", ".join(needed[:_NAMES_SHOWN]) + (", ..." if len(needed) > _NAMES_SHOWN else "")
            found.append(f"rules[{index}]: nobody can satisfy it when the requester is one of {names}")
    return found


def _missing(rule: Rule, served: Sequence[Sequence[Sequence[str]]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The sources of each need that is not met, and what to tell of it."""
    for stage, by_need in zip(rule.stages, served, strict=True):
        for need, who in zip(stage.needs, by_need, strict=True):
            if len(who) < need.needed:
                asked = f"{need.needed} of {', '.join(need.sources)}"
                told = f"stage {stage.name} needs {asked}, and only {len(who)} could be found for it now"
                yield need.sources, told
