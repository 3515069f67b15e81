"""What can never be is refused when it is loaded; exactly that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.errors import InvalidPolicy
from approvals.policy import Parties, Policy, Vote, check, choose, parse, tally, understaffed
from tests.policy.make import FINANCE, facts, person, policy, problems, rule_problems, the_one

# --- who is asked -----------------------------------------------------------------------------------


def stages(*each: dict[str, Any] | list[dict[str, Any]], **keys: Any) -> dict[str, Any]:
    return {"stages": [e if isinstance(e, dict) else {"all": e} for e in each], **keys}


def ask(needed: int, *sources: str) -> dict[str, Any]:
    return {"needed": needed, "from": list(sources)}


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (
            stages(ask(2, "user:a")),
            "rules[0].stages[0].needed: found 2, but from names only 1 different users; this can never be satisfied",
        ),
        (
            stages([ask(1, "group:g"), ask(3, "user:a", "user:b")]),
            "rules[0].stages[0].all[1].needed: found 3, but from names only 2 different users;"
            " this can never be satisfied",
        ),
        (
            stages(ask(1, "user:a"), ask(1, "user:a")),
            "rules[0].stages: 2 different people are needed of user:a; this can never be satisfied"
            " (separate_stages: false lets one person serve two)",
        ),
        (
            stages([ask(1, "user:a"), ask(2, "user:a", "user:b")], separate_stages=False),
            "rules[0].stages[0]: 3 different people are needed of user:a, user:b; this can never be satisfied",
        ),
        (
            stages(ask(1, "user:a", "user:b"), reject_after=3),
            "rules[0].reject_after: found 3, but only user:a, user:b may decide; so it could never be rejected",
        ),
    ],
)
def test_who_can_never_be_enough(rule: dict[str, Any], told: str) -> None:
    assert the_one(rule_problems(rule)) == told


NEEDS = [
    ask(1, "user:a"),
    ask(1, "user:a", "user:b"),
    ask(2, "user:a", "user:b"),
    ask(2, "user:b", "user:c"),
    ask(3, "user:a", "user:b"),
    ask(2, "user:a", "group:g"),
]
STAGES = [[need] for need in NEEDS] + [
    list(pair) for pair in itertools.combinations_with_replacement(NEEDS, 2)
]
PLANS = [[stage] for stage in STAGES] + [list(pair) for pair in itertools.combinations(STAGES, 2)]
CROWD = {p.id: p for p in (person(name, "g") for name in "abcdefghijklmn")}


@pytest.mark.parametrize("separate", [True, False])
def test_lint_refuses_exactly_who_can_never_be_enough(separate: bool) -> None:
    """Against a world in which everybody named and ten more are in every group, and all say yes, or all say no."""
    refused = 0
    for index, plan in enumerate(PLANS):
        rule = stages(*plan, separate_stages=separate, reject_after=1 + index % 4)
        body = {"slug": "small", "rules": [rule]}
        read = parse(body)
        asked = {s for stage in read.rules[0].stages for s in stage.sources}
        may = [p for p in CROWD.values() if f"user:{p.username}" in asked or "group:g" in asked]
        yes, no = ([Vote(p.id, outcome) for p in may] for outcome in ("approved", "rejected"))
        possible = tally(read, read.rules[0], yes, CROWD, Parties()).outcome == "approved"
        possible &= tally(read, read.rules[0], no, CROWD, Parties()).outcome == "rejected"
        assert is_refused(body) is not possible, rule
        refused += not possible
    assert 40 < refused < len(PLANS) - 40


def is_refused(body: dict[str, Any]) -> bool:
    try:
        check(body)
    except InvalidPolicy:
        return True
    return False


# --- when rules speak -------------------------------------------------------------------------------


def match(**keys: Any) -> dict[str, Any]:
    return {"match": keys, "stages": [FINANCE]}


@pytest.mark.parametrize(
    ("rules", "keys", "told"),
    [
        (
            [match(kind="a"), match(kind=["a", "b"]), match(kind="b", risk="low")],
            {},
            "rules[2]: can never match, because rules[0], rules[1] without `when` take all that it matches",
        ),
        (
            [match(risk=["low", "high"]), match(risk="medium"), {"stages": [FINANCE]}],
            {},
            "rules[2]: can never match, because rules[0], rules[1] without `when` take all that it matches",
        ),
        (
            [match(target="prod/*"), match(target=["prod/db", "prod/*/x"])],
            {},
            "rules[1]: can never match, because rules[0] without `when` take all that it matches",
        ),
        (
            [match(kind="a")],
            {"match": {"kind": "b"}},
            "rules[0]: can never match, because its match and the policy's have nothing in common",
        ),
        (
            [match(target="*/db")],
            {"match": {"target": ["prod/x*", "stage"]}, "rules": [match(target="a*")]},
            "rules[0]: can never match, because its match and the policy's have nothing in common",
        ),
        (
            [{"match": {"risk": "high"}, "automatic": True}],
            {},
            "rules[0].automatic: never for risk high, so this rule could only deny; say deny: true",
        ),
        (
            [{"stages": [FINANCE]}],
            {"effects": ["a", "b"], "match": {"kind": "a"}},
            "effects[1]: b is claimed, but match takes only a; so it could never run",
        ),
    ],
)
def test_rules_that_can_never_speak(rules: list[Any], keys: dict[str, Any], told: str) -> None:
    assert the_one(problems(**({"rules": rules} | keys))) == told


@pytest.mark.parametrize(
    "rules",
    [
        [{**match(), "match": {"kind": "a"}, "when": "true"}, match(kind="a")],
        [match(target="prod/*"), match(target="*/db")],
        [match(kind="a"), match(risk="low")],
        [match(kind="a", target="x"), match(kind="a")],
        [{"match": {"risk": ["high", "low"]}, "automatic": True}, {"stages": [FINANCE]}],
    ],
)
def test_rules_that_may_speak_are_taken(rules: list[Any]) -> None:
    assert not is_refused({"slug": "a", "rules": rules})


KINDS, RISKS = ("a", "b"), ("low", "medium", "high")
matches = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.lists(st.sampled_from(KINDS), min_size=1, unique=True),
        "risk": st.lists(st.sampled_from(RISKS), min_size=1, unique=True),
    },
)
spoken = st.tuples(matches, st.sampled_from(["automatic", "deny", "ask"]), st.booleans())


@given(st.lists(spoken, min_size=1, max_size=4), matches)
def test_lint_refuses_exactly_the_rules_that_no_effect_reaches(
    spoken: list[Any], level: dict[str, Any]
) -> None:
    """Against every effect and question there can be, and conditions that hold or not, as it comes."""
    rules: list[dict[str, Any]] = []
    for index, (found, answer, conditional) in enumerate(spoken):
        rule: dict[str, Any] = {"stages": [FINANCE]} if answer == "ask" else {answer: True}
        if found:
            rule["match"] = found
        if conditional:
            rule["when"] = f"run.holds[{index}]"
        rules.append(rule)
    body = {"slug": "small", "rules": rules} | ({"match": level} if level else {})
    verdicts = list(everything(parse(body), len(rules)))
    reached = {rule for rule, _ in verdicts}
    useless = {
        index
        for index, rule in enumerate(rules)
        if "automatic" in rule and {kind for i, kind in verdicts if i == index} == {"denied"}
    }
    assert is_refused(body) is bool(useless or len(reached - {None}) < len(rules))


def everything(read: Policy, rules: int) -> Iterator[tuple[int | None, str]]:
    abouts: list[dict[str, Any] | None] = [None]
    abouts += [{"kind": k, "target": "t", "risk": r} for k in (*KINDS, "other") for r in RISKS]
    for about in abouts:
        for holds in itertools.product((False, True), repeat=rules):
            verdict = choose(read, facts(effect=about, run={"holds": list(holds)}))
            yield verdict.rule, verdict.kind


# --- times ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"remind": ["1h", "2d"]}, "remind[1]: found 2d, after respond_within (2d) has passed"),
        (
            {"escalate": [{"after": "3d", "to": ["group:a"]}]},
            "escalate[0].after: found 3d, after respond_within (2d) has passed",
        ),
        ({"on_expiry": "escalate"}, "on_expiry: escalate, but there is no escalate"),
    ],
)
def test_what_would_never_come(keys: dict[str, Any], told: str) -> None:
    assert any(p.startswith(told) for p in problems(respond_within="2d", **keys))


# --- by the people there are ------------------------------------------------------------------------

ANN, BOB = person("ann", "finance"), person("bob", "finance")


def test_too_few_people_are_warned_of() -> None:
    two = policy(rules=[stages({"name": "money", **ask(2, "group:finance")})])
    assert understaffed(two, [ANN]) == [
        "rules[0]: stage money needs 2 of group:finance, and only 1 could be found for it now"
    ]
    assert understaffed(two, []) == [
        "rules[0]: stage money needs 2 of group:finance, and only 0 could be found for it now"
    ]
    assert understaffed(two, [], ["group:finance"]) == []
    cyd = person("cyd", "finance")
    assert understaffed(two, [ANN, BOB, cyd]) == []


def test_whose_own_requests_nobody_could_satisfy_is_warned_of() -> None:
    two = policy(rules=[stages(ask(2, "group:finance"))])
    assert understaffed(two, [ANN, BOB]) == [
        "rules[0]: nobody can satisfy it when the requester is one of ann, bob"
    ]
    lenient = policy(rules=[stages(ask(2, "group:finance"))], exclude=["editor"])
    assert understaffed(lenient, [ANN, BOB]) == []
