"""The effect protocol: intent, dispatch, receipt, doubt, verification."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import BaseModel

from approvals import MATCH, Context, Effect, Receipt, Retry, Verification, workflow
from approvals.errors import InvalidWorkflow
from approvals.limits import limits
from approvals.models import Effect as Row
from approvals.models import Wait
from approvals.services import decisions, policies, reconciliation, runs
from approvals.testing import assert_invariants, clock, crash_at, decide, drive, peer, pending, people

pytestmark = pytest.mark.usefixtures("engine")


class Order(BaseModel):
    sku: str
    quantity: int = 1


class Blind(Effect[Order]):
    kind = "test.blind"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")


class Findable(Effect[Order]):
    kind = "test.findable"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")

    def lookup(self, request: Order, key: str) -> Receipt[Order] | None:
        raise AssertionError("tests replace the peer")

    def verify(self, receipt: Receipt[Order]) -> Verification:
        return MATCH


class Guarded(Effect[Order]):
    kind = "test.guarded"
    policy = "one-reviewer"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")


@workflow(name="blind", version=1)
def blind(ctx: Context, order: Order) -> str:
    return ctx.effect("order", Blind, order).external_id


@workflow(name="findable", version=1)
def findable(ctx: Context, order: Order) -> str:
    return ctx.effect("order", Findable, order).external_id


@workflow(name="guarded", version=1)
def guarded(ctx: Context, order: Order) -> str:
    receipt = ctx.effect("order", Guarded, order, title="Order it")
    return f"{receipt.request.sku} {receipt.external_id}"


def test_an_effect_is_performed_once() -> None:
    with peer(Blind) as shop:
        run = runs.start(blind, Order(sku="A"))
        drive()
        assert [r.sku for r in shop.requests] == ["A"]
    assert runs.get(run.id).output == f"peer:{shop.keys[0]}"
    assert_invariants()


@pytest.mark.parametrize("mode", ["apply", "deduplicate"])
def test_a_guarded_effect_waits_for_a_person_and_survives_the_worst_crash(mode: str) -> None:
    who = people()
    with peer(Guarded, mode) as shop:  # type: ignore[arg-type]
        run = runs.start(guarded, Order(sku="A"), requester=who.requester)
        drive()
        assert shop.requests == [] and runs.get(run.id).status == "suspended"
        decide(run, who.reviewers[0], "approved")
        with crash_at("performed"):
            drive()
        drive()
        assert len(shop.requests) == 1
        if mode == "deduplicate":
            assert runs.get(run.id).status == "completed"
        else:
            case = Wait.objects.get(run=run.id, kind="reconciliation")
            assert case.name == "in doubt"
            reconciliation.resolve(
                case.pk, actor=who.operator, resolution="confirm", note="seen it", external_id="x1"
            )
            drive()
            assert runs.get(run.id).output == "A x1"
        assert_invariants()


def test_a_look_up_that_finds_it_confirms() -> None:
    with peer(Findable) as shop:
        run = runs.start(findable, Order(sku="A"))
        with crash_at("performed"):
            drive()
        drive()
        assert runs.get(run.id).status == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_look_up_that_finds_nothing_waits_for_deadline_and_grace() -> None:
    with peer(Findable, "late") as shop:
        run = runs.start(findable, Order(sku="A"))
        drive()
        assert Row.objects.get().status == "in_doubt"
        shop.land()
        shop.mode = "apply"
        clock.shift(timedelta(seconds=60))
        drive()
        assert runs.get(run.id).status == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_rejection_raises_and_nothing_is_sent() -> None:
    who = people()
    with peer(Guarded) as shop:
        run = runs.start(guarded, Order(sku="A"), requester=who.requester)
        drive()
        (wait,) = pending(run)
        decisions.decide(
            wait.id, actor=who.reviewers[0], outcome="rejected", digest=wait.digest, comment="no"
        )
        drive()
        assert shop.requests == []
    found = runs.get(run.id)
    assert found.status == "failed" and found.error is not None and found.error["type"] == "ApprovalRejected"
    assert_invariants()


def test_policies_load() -> None:
    assert policies.load({"slug": "p", "rules": [{"automatic": True}]}).version == 1


def test_an_effect_may_not_ask_for_more_attempts_than_the_limit() -> None:
    for bases in ((Blind,), (Effect,)):
        with pytest.raises(InvalidWorkflow, match="Too many attempts"):
            type("Eager", bases, {"retry": Retry(attempts=limits().attempts + 1)})
    type("Patient", (Blind,), {"retry": Retry(attempts=limits().attempts)})
