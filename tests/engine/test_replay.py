"""Replay compares: code that changed under a suspended run stops it, visibly, the journal intact (CASES 30–33)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from approvals import Context, Effect, Failed, Receipt, step
from approvals.engine.cases import EndOfJournal
from approvals.engine.turn import Turn
from approvals.errors import ArgumentsChanged, NotApproved
from approvals.models import Entry, Run, Wait
from approvals.services import reconciliation, runs
from approvals.testing import assert_invariants, clock, crash_at, decide, drive, peer, people
from approvals.transitions import NewEntry
from tests.engine.make import case, code, flow, kinds, ran, resume

pytestmark = pytest.mark.usefixtures("engine")

done: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh(engine):
    done.clear()


class Order(BaseModel):
    sku: str
    quantity: int = 1


class Shop(Effect[Order]):
    kind = "replay.shop"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")


def work(n: int) -> int:
    done.append(n)
    return n


@step(durability="none")
def none(n: int) -> int:
    return n


@flow
def original(ctx: Context, n: int) -> str:
    a = ctx.step("a", work, 1)
    b = ctx.step("b", work, 2)
    ctx.effect("order", Shop, Order(sku="A"))
    ctx.approval("sign", policy="one-reviewer", action=Order(sku="B"), title="Sign")
    return f"{a + b}"


def changed(**to: Any) -> Callable[[Context, int], str]:
    """The same workflow with some of its calls otherwise."""

    def fn(ctx: Context, n: int) -> str:
        calls = {
            "a": lambda: ctx.step("a", work, 1),
            "b": lambda: ctx.step("b", work, 2),
            "order": lambda: ctx.effect("order", Shop, Order(sku="A")),
            "sign": lambda: ctx.approval("sign", policy="one-reviewer", action=Order(sku="B"), title="Sign"),
        }
        for name, call in calls.items():
            to.get(name, lambda ctx, call=call: call())(ctx)
        return "3"

    return fn


def both(*calls: Callable[[Context], Any]) -> Callable[[Context], Any]:
    def run(ctx: Context) -> None:
        for call in calls:
            call(ctx)

    return run


CHANGES = {
    "renamed": ({"a": lambda c: c.step("A", work, 1)}, 1),
    "reordered": ({"a": lambda c: c.step("b", work, 2), "b": lambda c: c.step("a", work, 1)}, 1),
    "inserted": ({"b": both(lambda c: c.step("new", work, 9), lambda c: c.step("b", work, 2))}, 2),
    "removed": ({"a": lambda c: None}, 1),
    "removed last": ({"sign": lambda c: None}, 3),
    "step for transaction": ({"a": lambda c: c.transaction("a", work, 1)}, 1),
    "step for timer": ({"b": lambda c: c.sleep("b", timedelta(seconds=1))}, 2),
    "step for signal": ({"b": lambda c: c.signal("b")}, 2),
    "stored for computed": ({"b": lambda c: c.step("b", none, 2)}, 2),
    "step for effect": ({"a": lambda c: c.effect("a", Shop, Order(sku="A"))}, 1),
    "effect for step": ({"order": lambda c: c.step("order", work, 3)}, 3),
    "another request": ({"order": lambda c: c.effect("order", Shop, Order(sku="A", quantity=2))}, 3),
    "another action": (
        {"sign": lambda c: c.approval("sign", policy="one-reviewer", action=Order(sku="C"), title="Sign")},
        4,
    ),
    "approval for signal": ({"sign": lambda c: c.wait(c.signal("sign"))}, 4),
    "now for step": ({"a": lambda c: c.now()}, 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_stops_the_run_at_once_and_mended_code_goes_on(change: str) -> None:
    calls, position = CHANGES[change]
    who = people()
    with peer(Shop) as shop:
        run = ran(original, requester=who.requester)
        before = list(Entry.objects.filter(run=run.id).order_by("seq").values())
        with code(original, changed(**calls)):
            assert not runs.replay(run.id).same
            decide(run, who.reviewers[0], "approved")
            drive()
            wait = case(run)
            told = json.loads(wait.data)
            assert (wait.name, wait.position) == ("replay diverged", position)
            assert told["recorded"] != told["seen"]
            assert runs.get(run.id).status == "suspended" and done == [1, 2]
        assert list(Entry.objects.filter(run=run.id).order_by("seq").values())[: len(before)] == before
        assert resume(run).output == "3" and done == [1, 2] and len(shop.requests) == 1
        assert_invariants()


def test_code_that_gives_its_verdict_too_early_has_diverged_and_does_not_fail_the_run() -> None:
    who = people()

    def hasty(ctx: Context, n: int) -> str:
        raise Failed("changed my mind")

    with peer(Shop):
        run = ran(original, requester=who.requester)
        decide(run, who.reviewers[0], "approved")
        with code(original, hasty):
            assert not runs.replay(run.id).same
            drive()
            assert case(run).name == "replay diverged" and runs.get(run.id).status == "suspended"
        assert resume(run).output == "3"
        assert_invariants()


@step(durability="sync")
def in_time(n: int) -> int:
    return work(n)


SAME = {
    "texts": {
        "sign": lambda c: c.approval(
            "sign", policy="one-reviewer", action=Order(sku="B"), title="Other", summary="words"
        )
    },
    "arguments of a step": {"a": lambda c: c.step("a", work, 7)},
    "durability": {"b": lambda c: c.step("b", in_time, 2)},
    "a call that takes no position": {"a": both(lambda c: c.uuid("u"), lambda c: c.step("a", work, 1))},
}


@pytest.mark.parametrize("change", SAME)
def test_what_is_not_compared_may_change(change: str) -> None:
    who = people()
    with peer(Shop):
        run = ran(original, requester=who.requester)
        with code(original, changed(**SAME[change])):
            report = runs.replay(run.id)
            assert report.same and bool(report.warnings) == (change == "arguments of a step")
            decide(run, who.reviewers[0], "approved")
            drive()
            assert runs.get(run.id).output == "3"
            warned = Entry.objects.filter(run=run.id, kind="warning").values_list("name", flat=True)
            assert list(warned) == list(report.warnings)
            assert_invariants()


class Wider(BaseModel):
    sku: str
    quantity: int = 1
    colour: str = "red"


class WiderShop(Effect[Wider]):
    kind = "replay.wider"

    def perform(self, request: Wider, key: str) -> Receipt[Wider]:
        raise AssertionError("tests replace the peer")


class NarrowShop(Effect[Order]):
    """What `WiderShop` was before a field with a default came."""

    kind = "replay.wider.before"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")


@flow
def narrow(ctx: Context, n: int) -> str:
    ctx.effect("order", NarrowShop, Order(sku="A"))
    ctx.sleep("a while", timedelta(seconds=5))
    return "done"


def test_bytes_that_todays_type_reads_as_the_same_request_are_the_same(monkeypatch) -> None:
    monkeypatch.setattr(WiderShop, "kind", NarrowShop.kind)

    def wider(ctx: Context, n: int) -> str:
        receipt = ctx.effect("order", WiderShop, Wider(sku="A"))
        ctx.sleep("a while", timedelta(seconds=5))
        return receipt.request.colour

    with peer(NarrowShop):
        run = ran(narrow)
    with code(narrow, wider):
        assert runs.replay(run.id).same
        clock.shift(timedelta(seconds=5))
        drive()
        assert runs.get(run.id).output == "red"


def test_an_operator_may_fail_a_run_that_diverged() -> None:
    with peer(Shop):
        run = ran(original)
        with code(original, changed(**CHANGES["renamed"][0])):
            Run.objects.filter(pk=run.id).update(verify_due=False)
            runs.pause(run.id, actor=people().operator, reason="deploy")
            runs.resume(run.id, actor=people().operator)
            drive()
            reconciliation.resolve(case(run).pk, actor=people().operator, resolution="fail", note="give up")
        found = runs.get(run.id)
        assert found.status == "failed" and found.error is not None and found.error["code"] == "operator"
        assert not Wait.objects.filter(run=run.id, status="open").exists()
        assert_invariants()


# --- what was caught is remembered -----------------------------------------------------------------


@flow
def catching(ctx: Context, n: int) -> list[str]:
    told = []
    given = ctx.approval("ask", policy="one-reviewer", action=Order(sku="A"), effect=Shop, title="Ask")
    for quantity in (2, 1):
        try:
            told.append(
                ctx.effect("order", Shop, Order(sku="A", quantity=quantity), approved_by=given).key[-4:]
            )
        except (ArgumentsChanged, NotApproved) as error:
            told.append(type(error).__name__)
    try:
        ctx.step("odd", odd)
    except Exception as error:
        told.append(f"{type(error).__name__}: {error}")
    ctx.sleep("a while", timedelta(seconds=5))
    return told


def odd() -> object:
    return object()


def test_an_error_that_was_caught_is_raised_again_by_replay() -> None:
    who = people()
    with peer(Shop) as shop:
        run = ran(catching, requester=who.requester)
        decide(run, who.reviewers[0], "approved")
        drive()
        assert runs.get(run.id).status == "suspended" and len(shop.requests) == 1
        clock.shift(timedelta(seconds=5))
        drive()
        told = runs.get(run.id).output
        assert (
            told[0] == "ArgumentsChanged"
            and told[1].endswith("-3-1")
            and told[2].startswith("NotSerializable")
        )
        assert "'odd'" in told[2] and runs.replay(run.id).same
        assert_invariants()


# --- reports ---------------------------------------------------------------------------------------


@flow
def verdict(ctx: Context, n: int) -> str:
    ctx.step("a", work, n)
    if n == 1:
        raise Failed("not today")
    return f"done {n}"


def test_a_replay_of_a_finished_run_knows_its_end() -> None:
    good, bad = ran(verdict, 0), ran(verdict, 1)
    assert bad.error == {"type": "Failed", "message": "not today", "code": "failed"}
    assert [runs.replay(r.id).ended for r in (good, bad)] == ["completed", "failed"]
    assert_invariants()
    before = list(Entry.objects.order_by("run", "seq").values())
    for fn in (lambda ctx, n: f"other {ctx.step('a', work, n)}", lambda ctx, n: {}[ctx.step("a", work, n)]):
        with code(verdict, fn):
            assert not runs.replay(good.id).same and not runs.replay(bad.id).same
    assert done == [0, 1] and list(Entry.objects.order_by("run", "seq").values()) == before


def test_the_journal_is_byte_for_byte_what_it_was_after_a_replay() -> None:
    who = people()
    with peer(Shop):
        run = ran(original, requester=who.requester)
        decide(run, who.reviewers[0], "approved")
        drive()
        tables = (Run, Entry, Wait)
        before = [list(t._default_manager.order_by("pk").values()) for t in tables]
        for _ in range(3):
            report = runs.replay(run.id)
            assert report.same and report.ended == "completed" and report.output == '"3"'
        assert [list(t._default_manager.order_by("pk").values()) for t in tables] == before
        assert kinds(run)[-1] == "run.complete"


def test_a_replay_commits_nothing_even_of_a_run_that_a_worker_holds() -> None:
    """Its turn has the fence of the worker's own: only that it replays keeps it from writing."""
    run = runs.start(verdict, 0)
    with crash_at("claimed"):
        drive()
    turn = Turn(Run.objects.get(pk=run.id), verdict, replaying=True)
    turn.keep(NewEntry("step.complete", 1, "a", "", "0"))
    with pytest.raises(EndOfJournal):
        turn.flush()
    with pytest.raises(EndOfJournal), turn.boundary():
        pass
    assert kinds(run) == ["run.start", "run.claim"]
