"""Each field of the model says something: changed alone, it changes what happens. A new field needs a line here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from approvals import facts as product
from approvals import policy as model
from approvals.errors import InvalidPolicy
from approvals.models import Run, Wait
from approvals.policy import Match, Need, Parties, Policy, Rule, Rung, Stage, Vote
from approvals.services import runs
from approvals.testing import clock, drive
from tests.engine import asking
from tests.policy.make import facts, id_of, parties, person, policy

MODEL = (Policy, Rule, Stage, Need, Match, Rung)
ANN, BOB, CYD = person("ann", "finance"), person("bob", "finance"), person("cyd", "law")
PEOPLE = {p.id: p for p in (ANN, BOB, CYD)}
ASKS = policy()
TWO_STAGES = policy(
    rules=[
        {
            "stages": [
                {"name": "money", "needed": 1, "from": ["group:finance"]},
                {"name": "more", "needed": 1, "from": ["group:finance"]},
            ]
        }
    ]
)
MATCHING = policy(rules=[{"match": {"kind": "refund.create"}, "automatic": True}])
RUNGS = policy(escalate=[{"after": "1h", "to": ["group:finance"]}])


def verdict(one: Policy) -> Any:
    return model.choose(one, facts())


def counted(*votes: Vote) -> Callable[[Policy], Any]:
    return lambda one: model.tally(one, one.rules[0], votes, PEOPLE, Parties()).outcome


def yes(name: str, **keys: Any) -> Vote:
    return Vote(id_of(name), "approved", **keys)


def may(name: str, **keys: Any) -> Callable[[Policy], Any]:
    who = person(name, "finance")
    return lambda one: model.eligibility(one, one.rules[0].stages, who, parties(), **keys)


def law(one: Policy) -> Any:
    return model.eligibility(one, one.rules[0].stages, CYD, parties(), upto=0)


def two_hours_later(one: Policy) -> Any:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return model.revalidate(
        one, one, facts(), votes=[yes("ann")], people=PEOPLE, parties=Parties(),
        approved_at=at, now=at + timedelta(hours=2),
    ).ok  # fmt: skip


def loaded(one: Policy) -> Any:
    """What `check` says of it; of what nothing obeys yet, that it is refused."""
    try:
        return model.check(model.body(one)) == one
    except InvalidPolicy as error:
        return error.problems


def claims(one: Policy) -> Any:
    product.publish(one)
    return [version.slug for version in product.required((), "refund.create")]


def runs_out(one: Policy) -> Any:
    """What became of a run whose question nobody answered for a day."""
    product.publish(one)
    run = runs.start(asking.ask, one.slug)
    drive()
    has_deadline = Wait.objects.get(run=run.id).due_at is not None
    clock.shift(timedelta(days=1))
    drive()
    return has_deadline, Run.objects.get(pk=run.id).status


EXPIRING = policy(respond_within="1h")
LAW = (Stage("law", (Need(1, ("group:law",)),)),)
FIELDS: dict[tuple[type, str], tuple[Policy, Any, Callable[[Policy], Any]]] = {
    (Policy, "slug"): (ASKS, "others", verdict),
    (Policy, "effects"): (ASKS, ("refund.create",), claims),
    (Policy, "rules"): (ASKS, MATCHING.rules, verdict),
    (Policy, "exclude"): (ASKS, frozenset(), may("rita")),
    (Policy, "respond_within"): (EXPIRING, None, runs_out),
    (Policy, "on_expiry"): (EXPIRING, "cancel", runs_out),
    (Policy, "valid_for"): (ASKS, timedelta(hours=1), two_hours_later),
    (Policy, "match"): (ASKS, Match(kinds=("other",)), verdict),
    (Policy, "enforcement"): (ASKS, "soft", loaded),
    (Policy, "edit"): (ASKS, ("/a",), loaded),
    (Policy, "remind"): (ASKS, (timedelta(hours=1),), loaded),
    (Policy, "escalate"): (ASKS, RUNGS.escalate, loaded),
    (Policy, "fresh_sign_in"): (ASKS, (("high", timedelta(hours=1)),), loaded),
    (Rule, "when"): (ASKS, "false", verdict),
    (Rule, "automatic"): (ASKS, True, verdict),
    (Rule, "stages"): (ASKS, LAW, counted(yes("ann"))),
    (Rule, "match"): (ASKS, Match(kinds=("other",)), verdict),
    (Rule, "deny"): (ASKS, True, verdict),
    (Rule, "comment_required"): (ASKS, frozenset({"approved"}), counted(yes("ann", commented=False))),
    (Rule, "reject_after"): (ASKS, 2, counted(Vote(id_of("ann"), "rejected"))),
    (Rule, "separate_stages"): (TWO_STAGES, False, counted(yes("ann"))),
    (Stage, "name"): (policy(rules=[{"stages": [
        {"name": "money", "needed": 1, "from": ["group:finance"]},
        {"name": "law", "needed": 1, "from": ["group:law"]},
    ]}]), "cash", law),
    (Stage, "needs"): (ASKS, LAW[0].needs, counted(yes("ann"))),
    (Need, "needed"): (ASKS, 2, counted(yes("ann"))),
    (Need, "sources"): (ASKS, ("group:law",), counted(yes("ann"))),
    (Match, "kinds"): (MATCHING, ("other",), verdict),
    (Match, "targets"): (MATCHING, ("other/*",), verdict),
    (Match, "risks"): (MATCHING, ("medium",), verdict),
    (Rung, "after"): (RUNGS, timedelta(hours=2), model.body),
    (Rung, "sources"): (RUNGS, ("group:law",), model.body),
}  # fmt: skip


def test_every_field_is_here() -> None:
    assert set(FIELDS) == {(cls, field.name) for cls in MODEL for field in dataclasses.fields(cls)}


@pytest.mark.parametrize(("cls", "name"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
def test_a_field_changed_alone_changes_what_happens(cls: type, name: str, request: Any) -> None:
    one, value, seen = FIELDS[cls, name]
    if seen in (claims, runs_out):
        request.getfixturevalue("engine")
    other = changed(one, cls, **{name: value})
    assert seen(other) != seen(one)
    assert model.body(other) != model.body(one), "the stored form keeps it"


def changed(one: Policy, cls: type, **change: Any) -> Policy:
    """The same, but for this field of the policy or of the first thing of this class within it."""
    (rule, *rules), rungs = one.rules, one.escalate
    if cls is Policy:
        return dataclasses.replace(one, **change)
    if cls is Rung:
        return dataclasses.replace(one, escalate=(dataclasses.replace(rungs[0], **change),))
    if cls is Rule:
        rule = dataclasses.replace(rule, **change)
    elif cls is Match:
        rule = dataclasses.replace(rule, match=dataclasses.replace(rule.match, **change))
    else:
        stage, *stages = rule.stages
        if cls is Stage:
            stage = dataclasses.replace(stage, **change)
        else:
            stage = dataclasses.replace(stage, needs=(dataclasses.replace(stage.needs[0], **change),))
        rule = dataclasses.replace(rule, stages=(stage, *stages))
    return dataclasses.replace(one, rules=(rule, *rules))
