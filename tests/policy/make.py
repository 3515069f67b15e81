"""Small policies, facts and people for the tests of this folder."""

from __future__ import annotations

from typing import Any

import pytest

from approvals.errors import InvalidPolicy
from approvals.policy import Facts, Parties, Person, Policy, check, parse

FINANCE = {"needed": 1, "from": ["group:finance"]}


def policy(**keys: Any) -> Policy:
    """A policy of one unconditional rule that asks one person of finance, changed by `keys`."""
    return parse({"slug": "refunds", "rules": [{"stages": [FINANCE]}]} | keys)


def asking(needed: int, *sources: str, **keys: Any) -> Policy:
    return policy(rules=[{"stages": [{"needed": needed, "from": list(sources)}]}], **keys)


def parties(**keys: Any) -> Parties:
    """Rita asked, sam started, nobody edited."""
    return Parties(**({"requester": id_of("rita"), "starter": id_of("sam")} | keys))


def facts(action: Any = None, *, risk: str | None = "low", **keys: Any) -> Facts:
    effect = {"kind": "refund.create", "target": "ch_1", "risk": risk, "reversible": True}
    run = {"id": "r1", "workflow": "refund", "version": 1, "key": "k", "tags": ["vip"]}
    values: dict[str, Any] = {
        "action": {"amount_minor": 4_999} if action is None else action,
        "effect": effect,
        "run": run,
        "requester": {"username": "rita", "groups": ["support"]},
    }
    return Facts(**(values | keys))


def person(username: str, *groups: str, active: bool = True, permissions: tuple[str, ...] = ()) -> Person:
    """Whose id is not their name: nothing may compare the two."""
    return Person(id_of(username), username, active, frozenset(groups), frozenset(permissions))


def id_of(username: str) -> str:
    return f"id of {username}"


def problems(**keys: Any) -> tuple[str, ...]:
    """What is wrong with a policy changed by `keys` when it is to be loaded."""
    with pytest.raises(InvalidPolicy) as caught:
        check({"slug": "refunds", "rules": [{"stages": [FINANCE]}]} | keys)
    return caught.value.problems


def rule_problems(*rules: Any) -> tuple[str, ...]:
    return problems(rules=list(rules))


def stage_problems(**keys: Any) -> tuple[str, ...]:
    return rule_problems({"stages": [FINANCE | keys]})


def the_one(found: tuple[str, ...]) -> str:
    assert len(found) == 1, found
    return found[0]
