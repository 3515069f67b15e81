"""Choosing a rule: what a policy says of an effect, or of a question to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from approvals.policy.conditions import ConditionError, condition_holds
from approvals.policy.values import ROOTS, Facts, Match, Policy, Rule, Stage, Verdict


def choose(policy: Policy, facts: Facts) -> Verdict:
    """What the policy says of these facts: the first rule that matches."""
    for index, rule in enumerate(policy.rules):
        told = f"Policy {policy.slug}, rule {index + 1} ({condition_text(rule)})"
        try:
            if not _speaks(policy, rule, facts):
                continue
        except ConditionError as error:
            reason = f"{told} could not be evaluated, because {error}; so it denies."
            return Verdict("denied", index, (), reason)
        return _said(rule, index, told, facts)
    reason = f"Policy {policy.slug}: none of its {len(policy.rules)} rules matches; so it denies."
    return Verdict("denied", None, (), reason)


def _said(rule: Rule, index: int, told: str, facts: Facts) -> Verdict:
    if rule.deny:
        return Verdict("denied", index, (), f"{told} denies this.")
    if not rule.automatic:
        return Verdict("ask", index, rule.stages, f"{told} asks {stages_text(rule.stages)}.")
    risk = "low" if facts.effect is None else facts.effect.get("risk")
    if risk not in ("low", "medium"):
        found = "high" if risk == "high" else "not known"
        reason = f"{told} is automatic, but the risk is {found}; that is never automatic."
        return Verdict("denied", index, (), reason)
    return Verdict("automatic", index, (), f"{told} allows this without a person.")


def _speaks(policy: Policy, rule: Rule, facts: Facts) -> bool:
    if not (_matches(policy.match, facts.effect) and _matches(rule.match, facts.effect)):
        return False
    values = {name: getattr(facts, name) for name in ROOTS}
    return rule.when is None or condition_holds(rule.when, values)


def _matches(match: Match, effect: Mapping[str, Any] | None) -> bool:
    if effect is None:
        return not match.kinds and not match.targets and (not match.risks or "low" in match.risks)
    return (
        (not match.kinds or _text(effect, "kind") in match.kinds)
        and (not match.risks or _text(effect, "risk") in match.risks)
        and (not match.targets or any(fits(p, _text(effect, "target")) for p in match.targets))
    )


def _text(effect: Mapping[str, Any], name: str) -> str:
    value = effect.get(name)
    if not isinstance(value, str):
        raise ConditionError(f"the effect has no {name}")
    return value


def fits(pattern: str, text: str) -> bool:
    """Whether the pattern describes all of the text: * stands for any characters, the rest for itself."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    last = rest.pop()
    if len(first) + len(last) > len(text) or not (text.startswith(first) and text.endswith(last)):
        return False
    text = text[len(first) : len(text) - len(last)]
    for part in rest:
        _, found, text = text.partition(part) if part else ("", "*", text)
        if not found:
            return False
    return True


def stages_text(stages: Sequence[Stage]) -> str:
    """Who is asked, in words."""
    return ", then ".join(
        " and ".join(f"{need.needed} of {', '.join(need.sources)}" for need in stage.needs)
        for stage in stages
    )


def condition_text(rule: Rule) -> str:
    """When a rule speaks, in words."""
    match, when = rule.match, " ".join((rule.when or "").split())
    told = [
        f"{name} {' or '.join(values)}"
        for name, values in (("kind", match.kinds), ("target", match.targets), ("risk", match.risks))
        if values
    ]
    words = ", ".join([*told, *([f"when {when}"] if when else [])])
    return (words if len(words) <= 125 else f"{words[:122]}...") or "always"
