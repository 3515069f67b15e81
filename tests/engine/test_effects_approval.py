"""Effects under policies: who must say yes to which bytes, and whether that still holds at dispatch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from approvals import Context, Decision, NotSent, workflow
from approvals.errors import (
    ApprovalConsumed,
    ApprovalExpired,
    ApprovalRejected,
    ArgumentsChanged,
    ChangesRequested,
    NotApproved,
    PolicyDenied,
)
from approvals.models import Approval, Wait
from approvals.models import Effect as Row
from approvals.services import decisions, policies, runs
from approvals.testing import assert_invariants, crash_at, decide, drive, peer, pending, people
from tests.engine.shop import (
    BUYING,
    Blind,
    Claimed,
    Findable,
    Guarded,
    Order,
    Other,
    Targeted,
    answers,
    buy_claimed,
    buy_guarded,
    buy_targeted,
    case,
    error,
    kinds,
    later,
    row,
    settle,
    status,
    summary,
)

pytestmark = pytest.mark.usefixtures("engine")
REVIEWERS = [{"needed": 1, "from": ["group:reviewers"]}]
TWO = [{"needed": 2, "from": ["group:reviewers"]}]


def load(slug: str = "p", **more: Any) -> None:
    policies.load({"slug": slug, "rules": [{"stages": REVIEWERS}], **more})


def start(flow: Any, order: Order | None = None) -> Any:
    run = runs.start(flow, order or Order(), requester=people().requester)
    drive()
    return run


def approve(run: Any, which: int = 0, name: str | None = None) -> None:
    """One reviewer approves the one open approval, or that of a policy."""
    if name is None:
        decide(run, people().reviewers[which], "approved")
        return
    wait = Approval.objects.get(wait__run=run.id, wait__status="open", policy__slug=name)
    decisions.decide(wait.pk, actor=people().reviewers[which], outcome="approved", digest=wait.digest)


# --- approved_by= ----------------------------------------------------------------------------------

elsewhere: list[Decision[Any, Any]] = []
changed: dict[str, Any] = {}


@workflow(name="ask-first", version=1)
def ask_first(ctx: Context, order: Order) -> str:
    """Asks, then buys what was approved; tests change what happens in between."""
    decision = ctx.approval("may I", policy="p", action=order, effect=Guarded, title="Buy?")
    elsewhere.append(decision)
    bought = changed.get("order", order)
    try:
        receipt = ctx.effect(
            "order", changed.get("effect", Guarded), bought, approved_by=changed.get("decision", decision)
        )
    except (ArgumentsChanged, ApprovalConsumed, NotApproved) as told:
        if changed.get("uncaught"):
            raise
        ctx.sleep("a while", timedelta(seconds=5))
        return f"{type(told).__name__}"
    return receipt.external_id


@pytest.fixture(autouse=True)
def _nothing_changed() -> None:
    elsewhere.clear()
    changed.clear()


@pytest.fixture
def p(engine: None) -> None:
    """A policy `p`, and the guarded kind's own `one-reviewer` satisfied by the same question."""
    load("p")


@pytest.fixture(autouse=True)
def _no_class_policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "p" in request.fixturenames:
        monkeypatch.setattr(Guarded, "policy", None)


@pytest.mark.usefixtures("p")
def test_approved_by_performs_exactly_what_was_approved() -> None:
    with peer(Guarded) as shop:
        run = start(ask_first)
        approve(run)
        drive()
        assert status(run) == "completed" and shop.requests == [Order()]
        assert Approval.objects.get().consumed_by == row(run)
        assert_invariants()


@pytest.mark.usefixtures("p")
@pytest.mark.parametrize(
    ("what", "value"),
    [("order", Order(quantity=2)), ("order", Order(sku="B")), ("effect", Other), ("effect", Findable)],
)
def test_other_bytes_or_another_kind_are_refused_alike_on_replay(what: str, value: Any) -> None:
    """CASES 25."""
    with peer(Guarded) as shop, peer(Other) as other, peer(Findable) as third:
        changed[what] = value
        run = start(ask_first)
        approve(run)
        drive()
        assert status(run) == "suspended"
        later(seconds=6)
        assert runs.get(run.id).output == "ArgumentsChanged"
        assert shop.calls + other.calls + third.calls == []
        assert_invariants()


@pytest.mark.usefixtures("p")
def test_uncaught_it_fails_the_run() -> None:
    with peer(Guarded) as shop:
        changed.update(order=Order(quantity=2), uncaught=True)
        run = start(ask_first)
        approve(run)
        drive()
        assert (status(run), error(run)) == ("failed", "ArgumentsChanged") and shop.calls == []
        assert_invariants()


@pytest.mark.usefixtures("p")
@pytest.mark.parametrize(
    ("outcome", "raised"), [("rejected", ApprovalRejected), ("changes_requested", ChangesRequested)]
)
def test_a_decision_that_does_not_approve_performs_nothing(outcome: str, raised: type) -> None:
    with peer(Guarded) as shop:
        run = start(ask_first)
        decide(run, people().reviewers[0], outcome, comment="no")
        drive()
        later(seconds=6)
        assert runs.get(run.id).output == raised.__name__ and shop.calls == []
        assert_invariants()


@pytest.mark.usefixtures("p")
def test_an_expired_decision_performs_nothing() -> None:
    load("p", respond_within="1h", on_expiry="reject")
    with peer(Guarded) as shop:
        run = start(ask_first)
        later(hours=2)
        later(seconds=6)
        assert runs.get(run.id).output == ApprovalExpired.__name__ and shop.calls == []
        assert_invariants()


@pytest.mark.usefixtures("p")
def test_another_runs_decision_authorises_nothing() -> None:
    with peer(Guarded) as shop:
        run = start(ask_first)
        approve(run)
        drive()
        changed["decision"] = elsewhere[-1]
        second = start(ask_first)
        approve(second)
        drive()
        later(seconds=6)
        assert runs.get(second.id).output == "ArgumentsChanged" and len(shop.requests) == 1
        assert_invariants()


@workflow(name="buy-twice", version=1)
def buy_twice(ctx: Context, order: Order) -> str:
    decision = ctx.approval("may I", policy="p", action=order, effect=Guarded, title="Buy?")
    ctx.effect("one", Guarded, order, approved_by=decision)
    try:
        ctx.effect("two", Guarded, order, approved_by=decision)
    except ApprovalConsumed:
        ctx.sleep("a while", timedelta(seconds=5))
        return "once"
    return "twice"


@pytest.mark.usefixtures("p")
def test_a_decision_is_used_once() -> None:
    with peer(Guarded) as shop:
        run = start(buy_twice)
        approve(run)
        with crash_at("performed"):
            drive()
        drive()
        later(seconds=6)
        assert runs.get(run.id).output == "once" and len(shop.requests) == 1
        assert_invariants()


@workflow(name="question-then-buy", version=1)
def question_then_buy(ctx: Context, order: Order) -> str:
    decision = ctx.approval("may I", policy="p", action=order, title="Shall I?")
    return ctx.effect("order", Guarded, order, approved_by=decision).external_id


@pytest.mark.usefixtures("p")
def test_a_question_to_people_authorises_no_effect() -> None:
    with peer(Guarded) as shop:
        run = start(question_then_buy)
        approve(run)
        drive()
        assert (status(run), error(run)) == ("failed", "ArgumentsChanged") and shop.calls == []
        assert_invariants()


def test_approved_by_does_not_stand_in_for_another_policy() -> None:
    """The class's own policy is another than the one that was asked: it asks too."""
    load("p")
    with peer(Guarded) as shop:
        run = start(ask_first)
        approve(run)
        drive()
        assert shop.calls == [] and [w.name for w in pending(run)] == ["order"]
        approve(run, 1)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


# --- which policies hold ---------------------------------------------------------------------------


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


def test_a_reviewer_who_left_the_group_no_longer_counts() -> None:
    load("p", effects=["shop.claimed"])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run)
        people().reviewers[0].groups.clear()
        with mock.patch("approvals.testing.people", people):
            drive()
        assert shop.calls == [] and "group:reviewers" in summary(run)
        approve(run, 1)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_removed_reviewer_no_longer_counts_and_history_still_names_them() -> None:
    load("p", effects=["shop.claimed"])
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        approve(run)
        people().reviewers[0].delete()
        drive()
        assert shop.calls == [] and "vera-reviewers" in summary(run)
        approve(run, 1)
        drive()
        assert status(run) == "completed"
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
