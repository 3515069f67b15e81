"""Which policies an effect is under, and what each of them may say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from approvals import Context, NotSent, workflow
from approvals.errors import PolicyDenied
from approvals.models import Approval
from approvals.services import decisions, runs
from approvals.testing import assert_invariants, drive, peer, pending, people
from tests.engine.make import case, kinds
from tests.engine.shop import (
    BUYING,
    REVIEWERS,
    Blind,
    Claimed,
    Guarded,
    Order,
    answers,
    approve,
    buy_claimed,
    buy_guarded,
    error,
    later,
    load,
    row,
    settle,
    start,
    status,
)

pytestmark = pytest.mark.usefixtures("engine")


def test_a_kind_that_a_policy_claims_asks_though_neither_class_nor_call_names_it() -> None:
    load("p", effects=["shop.claimed"])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        assert shop.calls == [] and len(pending(run)) == 1
        approve(run)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_policy_that_comes_to_claim_the_kind_before_dispatch_holds_too() -> None:
    with peer(Claimed) as shop, answers(Claimed, NotSent("closed")):
        run = start(buy_claimed)
        assert status(run) == "suspended" and row(run).status == "intended"
        load("p", effects=["shop.claimed"])
        later(seconds=2)
        assert shop.calls == [] and len(pending(run)) == 1
        approve(run)
        drive()
        assert len(shop.requests) == 1
        assert_invariants()


@pytest.mark.parametrize("order", [("p", "one-reviewer"), ("one-reviewer", "p")])
def test_two_policies_must_both_hold(order: tuple[str, str]) -> None:
    load("p", effects=["shop.guarded"])
    with peer(Guarded) as shop:
        run = start(buy_guarded)
        assert len(pending(run)) == 2
        approve(run, 0, order[0])
        drive()
        assert shop.calls == [] and len(pending(run)) == 1
        approve(run, 0, order[1])
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert Approval.objects.filter(consumed_by=row(run)).count() == 2
        assert_invariants()


@pytest.mark.parametrize("outcome", ["rejected", "changes_requested"])
def test_one_policy_of_two_that_says_no_is_enough(outcome: str) -> None:
    load("p", effects=["shop.guarded"])
    with peer(Guarded) as shop:
        run = start(buy_guarded)
        first = pending(run)[0]
        decisions.decide(first.id, actor=people().reviewers[0], outcome=outcome, digest=first.digest)
        assert pending(run) == [], "the other need not answer"
        drive()
        assert (
            error(run) == {"rejected": "ApprovalRejected", "changes_requested": "ChangesRequested"}[outcome]
        )
        assert shop.calls == [] and row(run).status == "withdrawn"
        assert_invariants()


def test_an_approval_that_expires_withdraws_the_effect() -> None:
    load("p", effects=["shop.claimed"], respond_within="1h")
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        later(hours=2)
        assert error(run) == "ApprovalExpired" and shop.calls == [] and row(run).status == "withdrawn"
        assert_invariants()


def test_an_expiry_that_cancels_the_run() -> None:
    load("p", effects=["shop.claimed"], respond_within="1h", on_expiry="cancel")
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        later(hours=2)
        assert status(run) == "cancelled" and shop.calls == []
        assert_invariants()


def test_an_automatic_rule_performs_without_a_person() -> None:
    rules = [{"when": "action.quantity < 5", "automatic": True}, {"stages": REVIEWERS}]
    load("p", effects=["shop.claimed"], rules=rules)
    with peer(Claimed) as shop:
        run = start(buy_claimed, Order(quantity=2))
        assert status(run) == "completed" and len(shop.requests) == 1
        more = start(buy_claimed, Order(quantity=9))
        assert status(more) == "suspended" and len(shop.requests) == 1
        assert_invariants()


def test_a_high_risk_is_never_automatic() -> None:
    load("p", effects=["shop.claimed"], rules=[{"automatic": True}])
    with peer(Claimed) as shop, mock.patch.object(Claimed, "risk", "high"):
        run = start(buy_claimed)
        assert error(run) == "PolicyDenied" and shop.calls == []
        assert_invariants()


@workflow(name="denied", version=1)
def denied(ctx: Context, order: Order) -> str:
    try:
        ctx.effect("order", Claimed, order)
    except PolicyDenied as told:
        ctx.sleep("a while", timedelta(seconds=5))
        return str(told)
    return "bought"


@pytest.mark.parametrize(
    "rule",
    [{"when": "action.quantity < 1", "automatic": True}, {"when": "action.nothing == 1", "automatic": True}],
)
def test_a_denial_is_raised_alike_on_replay(rule: dict[str, Any]) -> None:
    """No rule matches, or one cannot be evaluated."""
    load("p", effects=["shop.claimed"], rules=[rule])
    with peer(Claimed) as shop:
        run = start(denied)
        load("p", effects=["shop.claimed"])  # it would be asked about now; what was denied stays denied
        later(seconds=6)
        assert "policy p" in runs.get(run.id).output.lower() and shop.calls == [] and pending(run) == []
        assert row(run).status == "withdrawn"
        assert_invariants()


@workflow(name="unknown-policy", version=1)
def unknown_policy(ctx: Context, order: Order) -> str:
    return ctx.effect("order", Blind, order, policy="nobody-loaded-it").external_id


def test_an_unknown_policy_stops_the_run_until_it_is_loaded() -> None:
    with peer(Blind) as shop:
        run = start(unknown_policy)
        assert case(run).name == "crashed" and "UnknownPolicy" in case(run).data and shop.calls == []
        load("nobody-loaded-it")
        settle(run, "resume")
        drive()
        assert len(pending(run)) == 1 and shop.calls == []
        approve(run)
        drive()
        assert status(run) == "completed"
        assert_invariants()


@pytest.mark.parametrize("effect", list(BUYING))
def test_every_kind_of_order_ends_well(effect: Any) -> None:
    """What the other tests build on."""
    with peer(effect) as shop:
        run = start(BUYING[effect])
        if pending(run):
            approve(run)
            drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert kinds(run).count("effect.dispatch") == 1
        assert_invariants()
