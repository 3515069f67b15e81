"""Where the context may be used, how a workflow is left, and what it gives deterministically."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, transaction
from pydantic import BaseModel

from approvals import Context, Effect, Receipt
from approvals.errors import ContextMisuse, Suspended, SuspendInsideTransaction
from approvals.models import Run, Wait
from approvals.services import runs
from approvals.testing import clock, drive, peer
from tests.engine.make import case, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")

seen: list[Any] = []
given: list[Context] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()
    given.clear()


class Order(BaseModel):
    sku: str


class Shop(Effect[Order]):
    kind = "context.shop"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        return Receipt(inside())


def inside() -> str:
    """Uses the context of the workflow that is running."""
    ctx = given[0]
    calls: list[Callable[[], Any]] = [
        lambda: ctx.step("inner", len, ""), ctx.now, lambda: ctx.uuid("u"), lambda: ctx.random("r"),
        lambda: ctx.sleep("s", timedelta(seconds=1)), lambda: ctx.signal("x"), lambda: ctx.progress(1, 2),
        lambda: ctx.transaction("t", len, ""), lambda: ctx.effect("e", Shop, Order(sku="")),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ContextMisuse):
            call()
    return "refused"


async def inside_async() -> str:
    return inside()


@flow
def misusing(ctx: Context, where: str) -> str:
    given[:] = [ctx]
    if where == "step":
        return ctx.step("outer", inside)
    if where == "async step":
        return ctx.step("outer", inside_async)
    if where == "transaction":
        return ctx.transaction("outer", inside)
    if where == "effect":
        return ctx.effect("outer", Shop, Order(sku="a")).external_id
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(inside()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("where", ["step", "async step", "transaction", "effect", "thread"])
def test_the_context_is_used_in_the_workflow_function_only(where: str) -> None:
    assert ran(misusing, where).output == "refused"


# --- transactions of one's own ---------------------------------------------------------------------

IN_ATOMIC = {
    "wait": lambda ctx, h: ctx.wait(h),
    "at most": lambda ctx, h: ctx.wait(h, at_most=timedelta(seconds=1)),
    "any": lambda ctx, h: ctx.wait_any(h),
    "all": lambda ctx, h: ctx.wait_all(h),
    "sleep": lambda ctx, h: ctx.sleep("s", timedelta(seconds=1)),
    "signal": lambda ctx, h: ctx.signal("x"),
    "step": lambda ctx, h: ctx.step("s", len, ""),
    "transaction": lambda ctx, h: ctx.transaction("s", len, ""),
    "effect": lambda ctx, h: ctx.effect("s", Shop, Order(sku="a")),
    "approval": lambda ctx, h: ctx.approval("s", policy="one-reviewer", action=1, title="t"),
    "now": lambda ctx, h: ctx.now(),
}


@flow
def atomic(ctx: Context, call: str) -> str:
    handle = ctx.signal("go")
    with transaction.atomic():
        Group.objects.create(name="rolled back")
        IN_ATOMIC[call](ctx, handle)
    return "not reached"


@pytest.mark.parametrize("call", IN_ATOMIC)
def test_nothing_is_recorded_and_nobody_suspends_inside_a_transaction_of_the_authors(call: str) -> None:
    run = ran(atomic, call)
    assert run.status == "suspended" and case(run).name == "crashed"
    assert '"code": "suspend_inside_transaction"' in case(run).data and "test_context.py" in case(run).data
    assert not Group.objects.exists() and kinds(run)[-2:] == ["wait.open", "run.stop"]


@flow
def atomic_caught(ctx: Context, n: int) -> int:
    handle = ctx.signal("go")
    with suppress(SuspendInsideTransaction), transaction.atomic():
        ctx.wait(handle)
    return ctx.wait(handle).payload  # type: ignore[no-any-return]


def test_a_refusal_that_is_caught_takes_no_position() -> None:
    run = ran(atomic_caught)
    runs.signal(run.id, "go", 7)
    drive()
    assert runs.get(run.id).output == 7


# --- leaving ---------------------------------------------------------------------------------------


@contextmanager
def resource(ctx: Context, name: str):
    seen.append(f"enter {name}")
    try:
        yield
    finally:
        seen.append(f"exit {name}")
        try:
            ctx.step("clean up", seen.append, "cleaned")
        except BaseException as error:
            seen.append(type(error).__name__)
            raise


@flow
def leaving(ctx: Context, how: str) -> str:
    handle = ctx.signal("go")
    if how == "except":
        try:
            ctx.wait(handle)
        except Exception:
            seen.append("caught")
        return "went on"
    if how == "bare":
        try:
            ctx.wait(handle)
        except BaseException as error:
            seen.append(error)
        try:
            ctx.step("after", seen.append, "did something")
        except BaseException as error:
            seen.append(error)
        return "went on"
    if how == "finally":
        try:
            ctx.wait(handle)
        finally:
            seen.append("finally")
            with suppress(Exception):
                ctx.sleep("another", timedelta(seconds=5))
            seen.append("not reached on leaving")
        return "done"
    with resource(ctx, "a"), resource(ctx, "b"):
        ctx.wait(handle)
    return "done"


def test_except_exception_does_not_hold_a_suspension() -> None:
    run = ran(leaving, "except")
    assert run.status == "suspended" and seen == []
    runs.signal(run.id, "go", 1)
    drive()
    assert runs.get(run.id).output == "went on"


def test_a_workflow_that_swallows_even_base_exception_is_suspended_all_the_same() -> None:
    run = ran(leaving, "bare")
    assert run.status == "suspended" and run.output is None
    assert [type(s) for s in seen] == [Suspended, Suspended] and seen[0] is seen[1]
    assert "step.complete" not in kinds(run)
    assert Wait.objects.filter(run=run.id, status="open", parked__gt=0).count() == 1
    seen.clear()
    runs.signal(run.id, "go", 1)
    drive()
    assert runs.get(run.id).output == "went on" and seen == ["did something"]


def test_finally_runs_and_the_context_does_nothing_in_it() -> None:
    run = ran(leaving, "finally")
    assert run.status == "suspended" and seen == ["finally"]
    assert Wait.objects.filter(run=run.id).count() == 1
    seen.clear()
    runs.signal(run.id, "go", 1)
    drive()
    assert seen == ["finally"] and runs.get(run.id).status == "suspended"  # at the sleep
    clock.shift(timedelta(seconds=5))
    drive()
    assert runs.get(run.id).output == "done"


def test_with_exits_run_and_the_context_does_nothing_in_them() -> None:
    run = ran(leaving, "with")
    assert seen == ["enter a", "enter b", "exit b", "Suspended", "exit a", "Suspended"]
    seen.clear()
    runs.signal(run.id, "go", 1)
    drive()
    assert seen == ["enter a", "enter b", "exit b", "cleaned", "exit a", "cleaned"]


# --- the database's trouble is nobody's to catch ---------------------------------------------------


@flow
def trusting(ctx: Context, n: int) -> str:
    with suppress(Exception):
        ctx.step("away", away)
    return ctx.step("after", str, n)


def away() -> int:
    seen.append("tried")
    if len(seen) == 1:
        raise OperationalError("the server closed the connection unexpectedly")
    return 1


def test_a_lost_database_ends_the_turn_and_not_the_step() -> None:
    run = ran(trusting)
    assert run.status == "completed" and seen == ["tried", "tried"]
    assert kinds(run).count("run.lose_lease") == 1 and "step.fail" not in kinds(run)


# --- the time, names, chance -----------------------------------------------------------------------


@flow
def chance(ctx: Context, n: int) -> list[str]:
    found = [str(ctx.now()), str(ctx.uuid("a")), str(ctx.uuid("a")), str(ctx.uuid("b"))]
    found += [
        str(ctx.random("a").random()),
        str(ctx.random("a").random()),
        str(ctx.random("b").randint(0, 10**9)),
    ]
    ctx.sleep("a while", timedelta(hours=1))
    seen.append(found)
    return [*found, str(ctx.now())]


def test_now_uuid_and_random_are_the_same_at_every_replay() -> None:
    run, other = runs.start(chance, 0), runs.start(chance, 0)
    drive()
    clock.shift(timedelta(hours=1))
    drive()
    out = runs.get(run.id).output
    assert (
        len(set(out)) == 8
        and runs.replay(run.id).same
        and seen[-1] in (out[:7], runs.get(other.id).output[:7])
    )
    assert not set(out[1:]) & set(runs.get(other.id).output[1:])
    assert datetime.fromisoformat(out[7]) - datetime.fromisoformat(out[0]) >= timedelta(hours=1)


@flow
def telling(ctx: Context, n: int) -> str:
    ctx.log.warning("first")
    ctx.progress(1, 2, "half")
    ctx.sleep("a while", timedelta(seconds=5))
    ctx.log.warning("second")
    return f"{ctx.run_id} {ctx.key} {ctx.requester} {ctx.version}"


def test_the_log_is_silent_on_replay_and_progress_is_shown(caplog) -> None:
    run = ran(telling, key="k")
    assert Run.objects.get(pk=run.id).progress == '{"done": 1, "total": 2, "text": "half"}'
    clock.shift(timedelta(seconds=5))
    drive()
    runs.replay(run.id)
    assert [r.message for r in caplog.records if r.name.startswith("approvals.workflow")] == [
        "first",
        "second",
    ]
    assert runs.get(run.id).output == f"{run.id} k  1"


def test_a_peer_is_not_called_inside_a_body() -> None:
    with peer(Shop) as shop:
        ran(misusing, "step")
    assert shop.requests == []


@flow
def odd_names(ctx: Context, n: int) -> str:
    told = []
    for name in ("a\x00", "\ud800", "zoë 🎉\n"):
        try:
            told.append(str(ctx.step(name, len, "abc")))
        except ContextMisuse:
            told.append("refused")
    ctx.sleep("a while", timedelta(seconds=5))
    return " ".join(told)


def test_a_name_that_cannot_be_stored_is_refused_and_takes_no_position() -> None:
    run = ran(odd_names)
    clock.shift(timedelta(seconds=5))
    drive()
    assert runs.get(run.id).output == "refused refused 3"
