"""Rules, stages and conditions of a policy file: what is read and what is refused."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.policy.make import FINANCE, policy, problems, rule_problems, stage_problems, the_one

# --- rules ------------------------------------------------------------------------------------


def test_rules_must_be_there() -> None:
    assert "needs a list of 1 to 100 rules" in the_one(problems(rules=[]))
    many = [{"when": "true", "automatic": True}] * 101
    assert "needs a list of 1 to 100 rules" in the_one(problems(rules=many))
    assert the_one(rule_problems("automatic")).startswith("rules[0]: found ")


def test_automatic_or_stages() -> None:
    assert "neither automatic: true nor stages" in the_one(rule_problems({}))
    assert "neither" in the_one(rule_problems({"automatic": False}))
    assert "both" in the_one(rule_problems({"automatic": True, "stages": [FINANCE]}))
    assert policy(rules=[{"automatic": False, "stages": [FINANCE]}]) == policy()


@pytest.mark.parametrize("value", ["true", "yes", "on", 1, 0, None, []])
def test_automatic_is_true_or_false(value: Any) -> None:
    found = the_one(rule_problems({"automatic": value}))
    assert found.startswith("rules[0].automatic: found ")
    assert "needs true" in found


def test_rules_that_can_never_match() -> None:
    found = rule_problems({"stages": [FINANCE]}, {"when": "true", "automatic": True}, {"stages": [FINANCE]})
    assert [p.split(":")[0] for p in found] == ["rules[1]", "rules[2]"]
    assert all("can never match, because rules[0] has no `when`" in p for p in found)


@pytest.mark.parametrize("value", [None, [], {}, "group:a", 1, True])
def test_stages_are_a_list(value: Any) -> None:
    found = the_one(rule_problems({"stages": value}))
    assert found.startswith("rules[0].stages: found ")
    assert "needs a list of 1 to 100 stages" in found


@pytest.mark.parametrize("value", [None, "group:a", 1, []])
def test_a_stage_is_a_mapping(value: Any) -> None:
    assert the_one(rule_problems({"stages": [value]})).startswith("rules[0].stages[0]: found ")


@pytest.mark.parametrize("value", [0, -1, 101, "1", "2", 1.0, True, None, [1], 10**30])
def test_needed_is_a_whole_number(value: Any) -> None:
    found = the_one(stage_problems(needed=value))
    assert found.startswith("rules[0].stages[0].needed: found ")
    assert "from 1 to 100" in found


def test_needed_and_from_must_be_said() -> None:
    assert rule_problems({"stages": [{}]}) == (
        "rules[0].stages[0].needed: missing",
        "rules[0].stages[0].from: missing",
    )


@pytest.mark.parametrize(
    "source",
    [
        "finance",
        "group:",
        "group: a",
        "user:",
        "role:a",
        "Group:a",
        "permission:review",
        "group:a\nb",
        "permission:a.b.c",
        "permission:",
        ":a",
        "group:" + "x" * 151,
        3,
        None,
        True,
        {"group": "a"},
    ],
)
def test_bad_sources(source: Any) -> None:
    found = the_one(stage_problems(**{"from": ["group:ok", source]}))
    assert found.startswith("rules[0].stages[0].from")
    assert "needs" in found


@pytest.mark.parametrize(
    "source",
    [
        "group:a",
        "group:Finance Team (EU)",
        "group:a:b",
        "user:cfo",
        "user:c.f+o@x-y_z.org",
        "permission:approvals.review",
        "group:" + "x" * 150,
        "group:Geschäftsführung",
    ],
)
def test_good_sources(source: str) -> None:
    (rule,) = policy(rules=[{"stages": [{"needed": 1, "from": [source]}]}]).rules
    assert rule.stages[0].sources == (source,)


def test_from_is_a_list_with_something_in_it() -> None:
    assert "empty list" in the_one(stage_problems(**{"from": []}))
    assert "needs a list" in the_one(stage_problems(**{"from": "group:finance"}))
    assert "needs a list" in the_one(stage_problems(**{"from": None}))


def test_more_than_the_named_users_can_never_be_satisfied() -> None:
    found = the_one(stage_problems(needed=3, **{"from": ["user:a", "user:b"]}))
    assert "can never be satisfied" in found
    assert "only 2 different users" in found
    for sources_ in (["user:a", "user:b", "user:c"], ["user:a", "group:b"], ["permission:a.b"]):
        (rule,) = policy(rules=[{"stages": [{"needed": 3, "from": sources_}]}]).rules
        assert rule.stages[0].needed == 3


@pytest.mark.parametrize("name", ["", " a", 3, None, True, "a\nb", "\u200b"])
def test_bad_stage_names(name: Any) -> None:
    assert the_one(stage_problems(name=name)).startswith("rules[0].stages[0].name: found ")


# --- conditions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("action.x <", "not valid CEL: 1:"),
        ("action.x = 3", "not valid CEL"),
        ("action.?x == 3", "not valid CEL"),
        ("", "needs a CEL condition"),
        ("  ", "needs a CEL condition"),
        (None, "found nothing; needs a CEL condition"),
        (True, "found true; needs a CEL condition"),
        (5000, "found 5000"),
        (["true"], "needs a CEL condition"),
        ("amount_minor < 5000", "unknown name amount_minor; known: action, effect, run, requester"),
        ("user.name == 'x'", "unknown name user"),
        ("now() > 3", "unknown function now"),
        ("max(1, 2) == 2", "unknown function max"),
        ("cel.bind(x, 1, x == 1)", "unknown name cel"),
        ("action.l.exists(x, x == y)", "unknown name y"),
        ("action.l.map(x, x) == []", "map is not available"),
        ("true // always", "a comment"),
        ("action.s == '''a'''", "triple quotes"),
        ("action.s == 'a\u202eb'", "cannot be seen"),
        ("action.s == 'a\0b'", "cannot be seen"),
        ("action.s == '\ud800'", "cannot be seen"),
        ("true" + " && true" * 200, "at most 1000"),
        ("(" * 400 + "true" + ")" * 400, "not valid CEL"),
        ("action.a.all(x, x.all(y, y.all(z, z == 1)))", "at most two levels"),
        ("action.a.all(x, ')' == x || x.all(y, ')' == y || y.all(z, z == 1)))", "two levels"),
    ],
)
def test_bad_conditions(when: Any, told: str) -> None:
    found = rule_problems({"when": when, "automatic": True})
    assert any(p.startswith("rules[0].when: ") and told in p for p in found), found
    assert all(len(p) < 700 for p in found)


@pytest.mark.parametrize(
    "when",
    [
        "action.amount_minor < 5000",
        "effect.kind == 'refund.create' && effect.risk != 'high'",
        "'finance' in requester.groups",
        "requester != null && requester.username.startsWith('svc-')",
        "has(action.note) && size(action.note) > 0",
        "action.lines.all(l, l.tags.exists(t, t == 'x'))",
        "action.lines.filter(l, l.amount > 5).size() < 3 && action.lines.exists_one(l, l.vip)",
        "timestamp(action.due) < timestamp('2030-01-01T00:00:00Z')",
        "duration(action.lasts) > duration('1h')",
        "action.url == 'https://example.org/'",
        r"action.path.matches(r'^/\d+$')",
        "run.workflow == 'refund' &&\n  'vip' in run.tags",
        "double(action.amount) < 13.5 || int(action.count) > 3 || string(action.n) == '4'",
    ],
)
def test_good_conditions(when: str) -> None:
    assert policy(rules=[{"when": when, "automatic": True}]).rules[0].when == when


def test_values_of_yaml_that_json_cannot_hold_are_named() -> None:
    assert "found a date" in the_one(problems(valid_for=date(2030, 1, 1)))
    loop: list[Any] = []
    loop.append(loop)
    assert "found a list" in the_one(problems(valid_for=loop))
