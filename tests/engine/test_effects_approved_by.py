"""`approved_by=`: a decision that was asked for before, and what it does not authorise."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from approvals import Context, Decision, workflow
from approvals.errors import (
    ApprovalConsumed,
    ApprovalExpired,
    ApprovalRejected,
    ArgumentsChanged,
    ChangesRequested,
    NotApproved,
)
from approvals.models import Approval
from approvals.services import runs
from approvals.testing import assert_invariants, crash_at, decide, drive, peer, pending, people
from tests.engine.shop import Findable, Guarded, Order, Other, approve, error, later, load, row, start, status

pytestmark = pytest.mark.usefixtures("engine")


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
