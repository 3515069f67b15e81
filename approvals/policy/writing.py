"""The canonical form of a policy: what is stored and digested."""

from __future__ import annotations

from typing import Any

from approvals.policy.durations import duration_text
from approvals.policy.values import OUTCOMES, Match, Policy, Rule, Stage


def body(policy: Policy) -> dict[str, Any]:
    """JSON-able, and `parse` reads it back equal.

    Keys that came later stand only where they say something: what they do not touch keeps its digest.
    """
    written: dict[str, Any] = {
        "slug": policy.slug,
        "effects": list(policy.effects),
        "rules": [_rule(rule) for rule in policy.rules],
        "exclude": sorted(policy.exclude),
        "on_expiry": policy.on_expiry,
    }
    if policy.respond_within is not None:
        written["respond_within"] = duration_text(policy.respond_within)
    if policy.valid_for is not None:
        written["valid_for"] = duration_text(policy.valid_for)
    if policy.enforcement != "hard":
        written["enforcement"] = policy.enforcement
    rungs = [{"after": duration_text(r.after), "to": list(r.sources)} for r in policy.escalate]
    later = {
        "match": _match(policy.match),
        "edit": list(policy.edit),
        "remind": [duration_text(after) for after in policy.remind],
        "escalate": rungs,
        "fresh_sign_in": {risk: duration_text(within) for risk, within in policy.fresh_sign_in},
    }
    return written | {key: value for key, value in later.items() if value}


def _match(match: Match) -> dict[str, list[str]]:
    named = {"kind": match.kinds, "target": match.targets, "risk": match.risks}
    return {key: list(values) for key, values in named.items() if values}


def _rule(rule: Rule) -> dict[str, Any]:
    written: dict[str, Any] = {} if rule.when is None else {"when": rule.when}
    if match := _match(rule.match):
        written["match"] = match
    if rule.automatic or rule.deny:
        return written | ({"automatic": True} if rule.automatic else {"deny": True})
    written["stages"] = [_stage(stage) for stage in rule.stages]
    if not rule.separate_stages:
        written["separate_stages"] = False
    if rule.comment_required:
        written["comment_required"] = [o for o in OUTCOMES if o in rule.comment_required]
    if rule.reject_after != 1:
        written["reject_after"] = rule.reject_after
    return written


def _stage(stage: Stage) -> dict[str, Any]:
    needs = [{"needed": need.needed, "from": list(need.sources)} for need in stage.needs]
    return {"name": stage.name} | (needs[0] if len(needs) == 1 else {"all": needs})
