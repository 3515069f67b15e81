"""Who may decide."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from approvals.policy import (
    ONE_REVIEWER,
    Eligibility,
    Parties,
    Person,
    Policy,
    eligibility,
    parse,
)
from tests.policy.make import asking, id_of, parties, person, policy


def may(
    policy: Policy,
    who: Person,
    *,
    requester: str | None = id_of("rita"),
    starter: str | None = id_of("sam"),
    editors: frozenset[str] = frozenset({id_of("ed")}),
) -> Eligibility:
    return eligibility(policy, policy.rules[0].stages, who, Parties(requester, starter, editors))


MIXED = asking(1, "group:finance", "user:cfo", "permission:approvals.review")


@pytest.mark.parametrize(
    ("who", "ok"),
    [
        (person("ann", "finance"), True),
        (person("cfo"), True),
        (person("bob", permissions=("approvals.review",)), True),
        (person("bob"), False),
        (person("bob", "Finance", "user:cfo", "cfo", permissions=("finance", "cfo")), False),
        (person("finance", permissions=("approvals.view",)), False),
        (person("CFO"), False),
    ],
)
def test_sources(who: Person, ok: bool) -> None:
    found = may(MIXED, who)
    assert (found.ok, found.stage) == ((True, 0) if ok else (False, None))
    if not ok:
        assert found.reason == (
            "is not in group:finance and is not user:cfo and does not have permission:approvals.review"
        )


def test_a_reason_for_one_source() -> None:
    assert may(asking(1, "group:finance"), person("bob")).reason == "is not in group:finance"
    assert may(asking(1, "user:cfo"), person("bob")).reason == "is not user:cfo"


def test_disabled() -> None:
    found = may(MIXED, person("ann", "finance", active=False))
    assert found == Eligibility(False, None, "is disabled")


EXCLUDED = {"rita": "asked for it", "sam": "started the run", "ed": "edited it"}
ROLES = {"requester": "rita", "starter": "sam", "editor": "ed"}


@pytest.mark.parametrize("size", range(4))
def test_exclusions_are_exactly_those_of_the_policy(size: int) -> None:
    for exclude in itertools.combinations(ROLES, size):
        policy = asking(1, "group:finance", exclude=list(exclude))
        for role, name in ROLES.items():
            found = may(policy, person(name, "finance"))
            assert found.ok is (role not in exclude)
            assert found.reason == ("" if found.ok else EXCLUDED[name])


def test_without_requester_or_starter_nobody_is_excluded_for_it() -> None:
    policy = asking(1, "group:finance")
    assert may(policy, person("rita", "finance"), requester=None).ok
    assert may(policy, person("sam", "finance"), starter=None).ok
    assert may(policy, person("ed", "finance"), editors=frozenset()).ok


def test_who_was_renamed_is_still_excluded_and_who_took_the_name_is_not() -> None:
    policy = asking(1, "group:finance")
    renamed = replace(person("rita", "finance"), username="bob")
    taken = replace(person("other", "finance"), username="rita")
    assert may(policy, renamed).reason == "asked for it"
    assert may(policy, taken).ok


def test_nobody_is_asked() -> None:
    found = eligibility(MIXED, (), person("cfo"), Parties())
    assert not found.ok
    assert found.reason


def test_one_reviewer() -> None:
    policy = parse(ONE_REVIEWER)
    allowed = ("approvals.review",)
    assert may(policy, person("ann", permissions=allowed)).ok
    assert not may(policy, person("ann", "reviewers")).ok
    assert may(policy, person("rita", permissions=allowed)).reason == "asked for it"
    assert may(policy, person("sam", permissions=allowed)).reason == "started the run"
    assert may(policy, person("ann", permissions=allowed, active=False)).reason == "is disabled"


IN_ORDER = policy(
    rules=[
        {
            "stages": [
                {"name": "first", "needed": 1, "from": ["group:a"]},
                {"name": "then", "needed": 1, "from": ["group:b"]},
                {"name": "last", "needed": 1, "from": ["group:a", "group:c"]},
            ]
        }
    ]
)


@pytest.mark.parametrize(
    ("groups", "upto", "stage"),
    [
        ("a", None, 0),
        ("c", None, 2),
        ("ab", 0, 0),
        ("ab", 1, 1),
        ("a", 1, 0),
        ("a", 2, 2),
        ("b", 2, 1),
        ("b", 0, None),
        ("c", 1, None),
    ],
)
def test_a_stage_asks_its_people_once_it_is_open(groups: str, upto: int | None, stage: int | None) -> None:
    found = eligibility(IN_ORDER, IN_ORDER.rules[0].stages, person("x", *groups), parties(), upto=upto)
    assert found.stage == stage and found.ok is (stage is not None)
    if not found.ok:
        assert found.reason == f"is asked only once stage {('first', 'then')[upto or 0]} is met"
