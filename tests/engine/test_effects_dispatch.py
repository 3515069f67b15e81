"""Whether what people said yes to still holds when it is sent: who, which policy, which bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from approvals import Context, NotSent, workflow
from approvals.models import Approval, Wait
from approvals.models import Effect as Row
from approvals.services import runs
from approvals.testing import assert_invariants, drive, peer, pending, people
from tests.engine.make import case
from tests.engine.shop import (
    TWO,
    Claimed,
    Guarded,
    Order,
    Targeted,
    answers,
    approve,
    buy_claimed,
    buy_guarded,
    buy_targeted,
    error,
    later,
    load,
    row,
    settle,
    start,
    status,
    summary,
)

pytestmark = pytest.mark.usefixtures("engine")


# --- does it still hold at dispatch ----------------------------------------------------------------


def test_a_reviewer_who_is_disabled_no_longer_counts() -> None:
    with peer(Guarded) as shop:
        run = start(buy_guarded)
        approve(run)
        gone = people().reviewers[0]
        gone.is_active = False
        gone.save()
        drive()
        assert shop.calls == [] and "disabled" in summary(run)
        (again,) = Wait.objects.filter(run=run.id, status="open", kind="approval")
        assert again.position == row(run).position
        first = Approval.objects.exclude(pk=again.pk).get()
        assert "disabled" in first.invalidated and first.consumed_by is None
        approve(run, 1)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


@pytest.mark.parametrize(
    ("happens", "told"),
    [(lambda vera: vera.groups.clear(), "group:reviewers"), (lambda vera: vera.delete(), "vera-reviewers")],
    ids=["left the group", "removed"],
)
def test_a_reviewer_who_is_gone_no_longer_counts_and_it_is_told_why(
    happens: Callable[[Any], object], told: str
) -> None:
    load("p", effects=["shop.claimed"])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run)
        happens(people().reviewers[0])
        drive()
        assert shop.calls == [] and told in summary(run)
        approve(run, 1)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_an_approval_is_valid_for_a_while_only() -> None:
    load("p", effects=["shop.claimed"], valid_for="4h")
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run)
        later(hours=5)
        assert shop.calls == [] and "valid for" in summary(run)
        approve(run, 1)
        later(hours=3)
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_validity_counts_at_each_attempt_to_send() -> None:
    load("p", effects=["shop.claimed"], valid_for="4h")
    with peer(Claimed) as shop, answers(Claimed, NotSent("closed")):
        run = start(buy_claimed)
        approve(run)
        drive()
        assert Approval.objects.get().consumed_by == row(run)
        later(hours=5)
        assert shop.calls == [] and len(pending(run)) == 1
        approve(run)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_stricter_policy_asks_again() -> None:
    """CASES 27."""
    load("p", effects=["shop.claimed"])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run)
        load("p", effects=["shop.claimed"], rules=[{"stages": TWO}])
        drive()
        assert shop.calls == [] and "1 of 2" in summary(run)
        approve(run, 0)
        approve(run, 1)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_policy_that_denies_by_now_denies() -> None:
    load("p", effects=["shop.claimed"])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run)
        load("p", effects=["shop.claimed"], rules=[{"when": "false", "automatic": True}])
        drive()
        assert error(run) == "PolicyDenied" and shop.calls == [] and row(run).status == "withdrawn"
        assert_invariants()


def test_a_denial_of_one_policy_beats_another_that_would_ask_again() -> None:
    load("a", effects=["shop.claimed"], valid_for="1h")
    load("b", effects=["shop.claimed"])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run, 0, "a")
        approve(run, 0, "b")
        load("b", effects=["shop.claimed"], rules=[{"when": "false", "automatic": True}])
        later(hours=2)
        assert error(run) == "PolicyDenied" and shop.calls == []
        assert_invariants()


def test_a_looser_policy_takes_nothing_back() -> None:
    """CASES 28: the pinned version wants two."""
    load("p", effects=["shop.claimed"], rules=[{"stages": TWO}])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        load("p", effects=["shop.claimed"])
        approve(run, 0)
        drive()
        assert shop.calls == [] and len(pending(run)) == 1
        approve(run, 1)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_policy_that_became_automatic_does_not_make_up_for_a_lost_reviewer() -> None:
    load("p", effects=["shop.claimed"])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run)
        load("p", effects=["shop.claimed"], rules=[{"automatic": True}])
        gone = people().reviewers[0]
        gone.is_active = False
        gone.save()
        drive()
        assert shop.calls == [] and "disabled" in summary(run)
        approve(run, 1)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_two_of_two() -> None:
    """CASES 37."""
    load("p", effects=["shop.claimed"], rules=[{"stages": TWO}])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run, 0)
        approve(run, 0)  # a double click counts once
        drive()
        assert shop.calls == [] and len(pending(run)) == 1
        approve(run, 1)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert Approval.objects.get().decisions.count() == 2
        assert_invariants()


# --- exactly these bytes ---------------------------------------------------------------------------


def test_what_reaches_the_peer_is_what_was_frozen_whatever_the_authors_objects_become() -> None:
    """CASES 25: a hook rewrites the request object while it is described, and after it was approved."""
    order = Order(sku="A", quantity=1)

    @workflow(name="rewrites", version=1)
    def rewrites(ctx: Context, asked: Order) -> str:
        request = Order(sku="A", quantity=1)
        try:
            receipt = ctx.effect("order", Guarded, request, title="Order it")
        finally:
            request.quantity = 152
        return str(receipt.request.quantity)

    def describe(self: Any, request: Order) -> str:
        request.quantity = 152
        return "an order"

    with peer(Guarded) as shop, mock.patch.object(Guarded, "describe", describe):
        run = start(rewrites, order)
        approve(run)
        drive()
        assert runs.get(run.id).output == "1" and shop.requests == [Order(sku="A", quantity=1)]
        assert_invariants()


def test_a_stored_request_that_was_tampered_with_is_asked_about_anew() -> None:
    with peer(Guarded) as shop:
        run = start(buy_guarded)
        approve(run)
        Row.objects.filter(run=run.id).update(request='{"sku":"A","quantity":152}')
        drive()
        assert shop.calls == [] and pending(run)[0].action == {"sku": "A", "quantity": 152}
        assert "What was approved is not what would be sent" in summary(run)


def test_a_target_that_today_is_another_is_asked_about_anew() -> None:
    with peer(Targeted) as shop:
        run = start(buy_targeted)
        approve(run)
        with mock.patch.object(Targeted, "target", return_value="the other shelf"):
            drive()
            assert shop.calls == [] and "What was approved is not what would be sent" in summary(run)
            assert Approval.objects.get(pk=pending(run)[0].id).target == "the other shelf"
        approve(run)
        drive()  # and back again: what was approved now is the other shelf
        assert shop.calls == [] and Approval.objects.get(pk=pending(run)[0].id).target == "shelf A"
        approve(run)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_request_recomputed_with_another_value_stops_the_run() -> None:
    """CASES 25: the step behind the approval gives another amount now."""
    amount = [125]

    @workflow(name="refunds", version=1)
    def refunds(ctx: Context, order: Order) -> str:
        return ctx.effect("order", Guarded, Order(quantity=amount[0]), title="Order it").external_id

    with peer(Guarded) as shop:
        run = start(refunds)
        approve(run)
        amount[0] = 152
        drive()
        assert shop.calls == [] and case(run).name == "replay diverged"
        amount[0] = 125
        settle(run, "resume")
        drive()
        assert status(run) == "completed" and shop.requests == [Order(quantity=125)]
        assert_invariants()
