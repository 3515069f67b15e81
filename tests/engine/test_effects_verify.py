"""Receipts are read back before a resumed run goes on; a contradiction stops it for an operator."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from approvals import CHANGED, MISSING, UNKNOWN, Context, Effect, Receipt, workflow
from approvals.engine.loop import Worker
from approvals.models import Effect as Row
from approvals.models import Wait
from approvals.services import runs
from approvals.testing import assert_invariants, crash_at, decide, drive, peer, people
from tests.engine.make import case, kinds
from tests.engine.shop import (
    Blind,
    Guarded,
    Order,
    Verifiable,
    answers,
    bought,
    buy_then_wait,
    error,
    later,
    reads,
    row,
    settle,
    status,
)
from tests.engine.workers import claimed_by

pytestmark = pytest.mark.usefixtures("engine")


def test_a_receipt_that_agrees_is_verified_at_every_resume() -> None:
    with peer(Verifiable) as shop:
        run = bought()
        assert row(run).status == "committed" and "effect.verify" not in kinds(run)
        runs.signal(run.id, "other", 1)
        drive()
        runs.signal(run.id, "go", 1)
        drive()
        assert status(run) == "completed" and row(run).status == "verified"
        assert kinds(run).count("effect.verify") == 1 and len(shop.calls) == 1
        assert_invariants()


def test_nothing_is_verified_at_a_yield_or_on_the_way() -> None:
    with peer(Verifiable), reads(AssertionError("not now")) as verify:

        @workflow(name="buys-twice", version=1)
        def twice(ctx: Context, order: Order) -> str:
            ctx.effect("one", Verifiable, order)
            ctx.step("nothing", lambda: None)
            return ctx.effect("two", Verifiable, order).external_id

        run = runs.start(twice, Order())
        drive()
        assert status(run) == "completed" and not verify.called


def test_a_lost_turn_is_a_resume() -> None:
    with peer(Verifiable):
        run = runs.start(buy_then_wait, Order())
        with crash_at("before_suspend"):
            drive()
        drive()
        assert kinds(run).count("effect.verify") == 1
        assert_invariants()


def test_a_fresh_verification_is_not_repeated_and_an_old_one_is() -> None:
    @workflow(name="waits-thrice", version=1)
    def thrice(ctx: Context, order: Order) -> str:
        receipt = ctx.effect("order", Verifiable, order)
        for n in range(3):
            ctx.wait(ctx.signal(f"go {n}"))
        return receipt.external_id

    with peer(Verifiable), mock.patch.object(Verifiable, "verify_max_age", timedelta(hours=1)):
        run = runs.start(thrice, Order())
        drive()
        runs.signal(run.id, "go 0", 1)
        drive()
        assert kinds(run).count("effect.verify") == 1
        runs.signal(run.id, "go 1", 1)
        later(minutes=50)
        assert kinds(run).count("effect.verify") == 1
        runs.signal(run.id, "go 2", 1)
        later(minutes=20)
        assert status(run) == "completed" and kinds(run).count("effect.verify") == 2
        assert_invariants()


@pytest.mark.parametrize(("answer", "found"), [(CHANGED, "changed"), (MISSING, "missing")])
def test_a_contradiction_stops_the_run_with_both_values(answer: Any, found: str) -> None:
    """CASES 24."""
    with (
        peer(Verifiable) as shop,
        answers(Verifiable, lambda r, k: Receipt("x1", checksum="c1", evidence={"n": 1})),
    ):
        run = bought()
        seen = None if answer is MISSING else Receipt("x1", checksum="c2", evidence={"n": 2})
        with reads(answer), mock.patch.object(Verifiable, "lookup", return_value=seen):
            runs.signal(run.id, "go", 1)
            drive()
        told = json.loads(case(run).data)
        assert case(run).name == "contradicted" and told["found"] == found
        assert told["receipt"] == {"external_id": "x1", "checksum": "c1", "evidence": {"n": 1}}
        assert told["seen"]["checksum"] == ("c2" if seen else None)
        assert row(run).status == "contradicted" and status(run) == "suspended"
        later(hours=1)
        assert status(run) == "suspended", "only an operator settles it"
        settle(run, "accept")
        drive()
        assert runs.get(run.id).output == f"x1 c1 {row(run).key}", (
            "replay goes on answering the first receipt"
        )
        found_row = row(run)
        assert found_row.status == "verified" and found_row.checksum == "c1"
        assert json.loads(found_row.evidence)["accepted"]["note"] == "looked myself"
        assert shop.calls == []
        assert_invariants()


def test_an_accepted_value_is_not_contradicted_again() -> None:
    with peer(Verifiable), reads(CHANGED):
        run = bought()
        runs.signal(run.id, "go", 1)
        drive()
        settle(run, "accept")
        drive()
        assert status(run) == "completed"
        assert_invariants()


def test_an_operators_word_counts_for_this_resume_and_the_next_looks_again() -> None:
    @workflow(name="waits-twice", version=1)
    def twice(ctx: Context, order: Order) -> str:
        receipt = ctx.effect("order", Verifiable, order)
        ctx.wait(ctx.signal("go"))
        ctx.wait(ctx.signal("on"))
        return receipt.external_id

    with peer(Verifiable):
        run = runs.start(twice, Order())
        drive()
        with reads(MISSING):
            runs.signal(run.id, "go", 1)
            drive()
            settle(run, "confirm")
            drive()
            assert status(run) == "suspended" and row(run).status == "verified"
            assert not Wait.objects.filter(run=run.id, kind="reconciliation", status="open").exists()
        with reads(CHANGED):
            runs.signal(run.id, "on", 1)
            drive()
            assert case(run).name == "contradicted"
        settle(run, "confirm")
        drive()
        assert status(run) == "completed"
        assert_invariants()


def test_an_operator_fails_a_contradicted_run() -> None:
    with peer(Verifiable), reads(MISSING):
        run = bought()
        runs.signal(run.id, "go", 1)
        drive()
        settle(run, "fail")
        assert status(run) == "failed" and error(run) == "Failed"
        assert_invariants()


@pytest.mark.parametrize("answer", [UNKNOWN, ConnectionError("away"), "nonsense"])
def test_what_cannot_be_told_is_tried_again_on_timers_and_then_asked(answer: Any) -> None:
    with peer(Verifiable):
        run = bought()
        with reads(answer) as verify:
            runs.signal(run.id, "go", 1)
            for tries, seconds in enumerate((0, 11, 61, 301), 1):
                later(seconds=seconds)
                assert verify.call_count == tries
                drive()
                assert verify.call_count == tries, "only when its timer fires"
            assert case(run).name == "cannot tell"
            later(hours=9)
            assert status(run) == "suspended"
        settle(run, "resume")
        drive()
        assert status(run) == "completed" and row(run).status == "verified"
        assert_invariants()


def test_it_goes_on_by_itself_when_it_can_be_told_again() -> None:
    with peer(Verifiable):
        run = bought()
        with reads(UNKNOWN):
            runs.signal(run.id, "go", 1)
            drive()
        assert status(run) == "suspended"
        later(seconds=11)
        assert status(run) == "completed"
        assert_invariants()


def test_a_pause_that_is_taken_back_lets_nothing_go_on_unverified() -> None:
    with peer(Verifiable):
        run, worker = bought(), Worker(threads=1)

        def asked_meanwhile(*of: Any) -> Any:
            runs.pause(run.id, actor=None, reason="deploy")
            return UNKNOWN

        runs.signal(run.id, "go", 1)
        with mock.patch.object(Verifiable, "verify", asked_meanwhile):
            worker.take(claimed_by(worker, run))
        assert status(run) == "pending" and worker.lease is not None
        worker.lease.release()
        runs.resume(run.id, actor=None)
        with reads(UNKNOWN) as verify:
            drive()
            assert verify.call_count == 1 and status(run) == "suspended"
        later(seconds=11)
        assert status(run) == "completed" and row(run).status == "verified"
        assert_invariants()


@workflow(name="publish-over", version=1)
def publish_over(ctx: Context, order: Order) -> str:
    """The second order stands for the first."""
    first = ctx.effect("draft", Verifiable, order)
    second = ctx.effect("final", Guarded, order, supersedes=first, title="Publish")
    ctx.wait(ctx.signal("go"))
    return second.external_id


def test_what_was_superseded_is_not_verified_any_more_but_is_until_then() -> None:
    who = people()
    with peer(Verifiable), peer(Guarded):
        run = runs.start(publish_over, Order(), requester=who.requester)
        drive()
        decide(run, who.reviewers[0], "approved")
        with reads(MISSING):
            drive()
        assert case(run).name == "contradicted", "nothing stands for the draft yet"
        settle(run, "confirm")
        drive()
        assert Row.objects.get(run=run.id, name="draft").superseded
        with reads(MISSING):
            runs.signal(run.id, "go", 1)
            drive()
        assert status(run) == "completed"
        assert_invariants()


def test_superseded_already_when_the_worker_dies_in_the_call() -> None:
    who = people()
    with peer(Verifiable), peer(Guarded):
        run = runs.start(publish_over, Order(), requester=who.requester)
        drive()
        decide(run, who.reviewers[0], "approved")
        with crash_at("performed"):
            drive()
        with reads(CHANGED):
            drive()
        runs.signal(run.id, "go", 1)
        drive()
        assert status(run) == "completed"
        assert_invariants()


def test_supersedes_needs_a_receipt_of_this_run() -> None:
    foreign: list[Any] = []

    @workflow(name="foreign-receipt", version=1)
    def foreign_receipt(ctx: Context, order: Order) -> str:
        mine = ctx.effect("order", Blind, order, supersedes=foreign[0] if foreign else None)
        foreign.append(mine)
        return mine.external_id

    with peer(Blind) as shop:
        runs.start(foreign_receipt, Order())
        drive()
        second = runs.start(foreign_receipt, Order())
        drive()
        assert case(second).name == "crashed" and len(shop.calls) == 1
        assert_invariants()


def test_redispatch_comes_after_verification() -> None:
    """A peer that deduplicates is in doubt, and an earlier receipt is contradicted: nothing is sent."""

    @workflow(name="two-orders", version=1)
    def two_orders(ctx: Context, order: Order) -> str:
        ctx.effect("first", Verifiable, order)
        return ctx.effect("second", Blind, order).external_id

    with peer(Verifiable), peer(Blind, "deduplicate") as second:
        run = runs.start(two_orders, Order())
        with crash_at("performed:2"):
            drive()
        with reads(MISSING):
            drive()
        assert case(run).name == "contradicted" and len(second.calls) == 1
        settle(run, "accept")
        drive()
        assert status(run) == "completed" and len(second.calls) == 2 and len(second.requests) == 1
        assert_invariants()


def test_an_effect_whose_code_is_gone_is_passed_over_in_verification_and_asked_about_in_doubt() -> None:
    class Gone(Effect[Order]):
        kind = "shop.gone"

        def perform(self, request: Order, key: str) -> Receipt[Order]:
            raise ConnectionError("?")

    @workflow(name="gone", version=1)
    def gone(ctx: Context, order: Order) -> str:
        return ctx.effect("order", Gone, order).external_id

    run = runs.start(gone, Order())
    with crash_at("performing"):
        drive()
    with mock.patch.dict("approvals.workflows.effects._kinds"):
        from approvals.workflows import effects

        del effects._kinds["shop.gone"]
        drive()
    assert "no code" in json.loads(case(run).data)["reason"]
    settle(run, "confirm", external_id="x")
    drive()
    assert status(run) == "completed"
    assert_invariants()
