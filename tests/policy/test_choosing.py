"""Which rule speaks, and that whatever is unclear denies."""

from __future__ import annotations

from typing import Any

import pytest

from approvals.policy import Facts, choose, parse
from tests.policy.make import facts, policy

REFUNDS = policy(
    rules=[
        {"when": "action.amount_minor < 5000", "automatic": True},
        {
            "when": "action.amount_minor <= 100000",
            "stages": [{"needed": 1, "from": ["group:finance"]}],
        },
        {"stages": [{"needed": 2, "from": ["group:finance", "user:cfo"]}]},
    ]
)


@pytest.mark.parametrize(
    ("amount", "kind", "rule", "needed"),
    [
        (0, "automatic", 0, None),
        (4_999, "automatic", 0, None),
        (4_999.99, "automatic", 0, None),
        (5_000, "ask", 1, 1),
        (100_000, "ask", 1, 1),
        (100_001, "ask", 2, 2),
        (-1, "automatic", 0, None),
        ("4999", "denied", 0, None),
        (None, "denied", 0, None),
        ([], "denied", 0, None),
        (2**70, "denied", 0, None),
        (float("nan"), "denied", 0, None),
        (True, "denied", 0, None),
    ],
)
def test_first_match_wins(amount: Any, kind: str, rule: int, needed: int | None) -> None:
    verdict = choose(REFUNDS, facts({"amount_minor": amount}))
    assert (verdict.kind, verdict.rule) == (kind, rule)
    assert [s.needed for s in verdict.stages] == ([] if needed is None else [needed])


def test_reasons_name_policy_rule_and_what_happened() -> None:
    told = {n: choose(REFUNDS, facts({"amount_minor": n})).reason for n in (1, 5_000, 200_000)}
    assert told[1] == (
        "Policy refunds, rule 1 (when action.amount_minor < 5000) allows this without a person."
    )
    assert told[5_000].endswith("rule 2 (when action.amount_minor <= 100000) asks 1 of group:finance.")
    assert told[200_000] == "Policy refunds, rule 3 (always) asks 2 of group:finance, user:cfo."
    assert choose(REFUNDS, facts({})).reason == (
        "Policy refunds, rule 1 (when action.amount_minor < 5000) could not be evaluated,"
        " because there is no field amount_minor; so it denies."
    )


def test_no_match_denies() -> None:
    only = policy(rules=[{"when": "false", "automatic": True}])
    verdict = choose(only, facts())
    assert (verdict.kind, verdict.rule, verdict.stages) == ("denied", None, ())
    assert verdict.reason == "Policy refunds: none of its 1 rules matches; so it denies."


def test_an_error_denies_even_when_a_later_rule_would_match() -> None:
    both = policy(rules=[{"when": "action.gone == 1", "automatic": True}, *[{"automatic": True}]])
    assert choose(both, facts()).kind == "denied"


def test_a_result_that_is_not_boolean_denies() -> None:
    verdict = choose(policy(rules=[{"when": "action.amount_minor", "automatic": True}]), facts())
    assert verdict.kind == "denied"
    assert "not true or false" in verdict.reason


@pytest.mark.parametrize(
    ("risk", "kind"),
    [
        ("low", "automatic"),
        ("medium", "automatic"),
        ("high", "denied"),
        (None, "denied"),
        ("", "denied"),
        ("HIGH", "denied"),
        ("unheard", "denied"),
    ],
)
def test_high_or_unknown_risk_is_never_automatic(risk: str | None, kind: str) -> None:
    always = policy(rules=[{"automatic": True}])
    verdict = choose(always, facts(risk=risk))
    assert verdict.kind == kind
    if kind == "denied":
        assert "is automatic, but the risk is" in verdict.reason
    without = Facts({}, {}, {}, None)
    assert choose(always, without).kind == "denied"
    assert choose(policy(), facts(risk=risk)).kind == "ask"


def test_a_question_to_people_has_no_effect() -> None:
    assert choose(policy(rules=[{"automatic": True}]), facts(effect=None)).kind == "automatic"
    kind = policy(rules=[{"when": "effect.kind == 'x'", "automatic": True}])
    assert choose(kind, facts(effect=None)).kind == "denied"


@pytest.mark.parametrize(
    "when",
    [
        "effect.kind == 'refund.create' && effect.target == 'ch_1' && effect.reversible",
        "run.id == 'r1' && run.workflow == 'refund' && run.version == 1 && run.key == 'k'",
        "'vip' in run.tags",
        "requester.username == 'rita' && 'support' in requester.groups",
    ],
)
def test_conditions_see_all_facts(when: str) -> None:
    assert choose(policy(rules=[{"when": when, "automatic": True}]), facts()).kind == "automatic"


def test_no_requester() -> None:
    careless = policy(rules=[{"when": "requester.username != 'intern'", "automatic": True}])
    careful = policy(
        rules=[{"when": "requester == null || requester.username != 'intern'", "automatic": True}]
    )
    assert choose(careless, facts(requester=None)).kind == "denied"
    assert choose(careful, facts(requester=None)).kind == "automatic"


def test_a_condition_sees_no_other_facts_and_cannot_change_them() -> None:
    given = facts({"l": [3, 1]})
    choose(parse({"slug": "a", "rules": [{"when": "action.l == [3, 1]", "automatic": True}]}), given)
    assert given.action == {"l": [3, 1]}


def test_a_long_condition_is_told_in_short() -> None:
    when = " || ".join(["action.amount_minor < 5000"] * 20)
    assert len(choose(policy(rules=[{"when": when, "automatic": True}]), facts()).reason) < 250
