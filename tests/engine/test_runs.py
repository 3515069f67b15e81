"""Starting, cancelling, pausing: what applications ask of runs, in each state (CASES 18, 50)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, SecretStr

from approvals import Context, Effect, Receipt
from approvals.engine import loop, sweeper
from approvals.errors import (
    IllegalTransition,
    InvalidInput,
    NotFound,
    NotSerializable,
    PermissionRefused,
    RunConflict,
    UnknownWorkflow,
)
from approvals.models import Entry, Run, Wait
from approvals.services import runs
from approvals.testing import clock, crash_at, drive, peer, people, wait_for
from tests.engine.make import case, flow, kinds, ran, resume

pytestmark = pytest.mark.usefixtures("checked")

during: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    during.clear()


class Order(BaseModel):
    sku: str
    token: SecretStr = SecretStr("t")


class Shop(Effect[Order]):
    kind = "runs.shop"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        for call in during:
            call()
        return Receipt("x")

    def lookup(self, request: Order, key: str) -> Receipt[Order] | None:
        return None


@flow
def ordering(ctx: Context, order: Order) -> str:
    return ctx.effect("order", Shop, order).external_id


@flow
def waiting(ctx: Context, n: int) -> int:
    ctx.step("before", len, "")
    return ctx.wait(ctx.signal("go")).payload  # type: ignore[no-any-return]


@flow
def failing(ctx: Context, n: int) -> int:
    return n // 0


def ended(how: str) -> Any:
    run = ran(waiting)
    if how == "cancelled":
        runs.cancel(run.id, actor=None, reason="no")
    elif how == "completed":
        runs.signal(run.id, "go", 1)
        drive()
    else:
        run = ran(failing)
        from approvals.services import reconciliation

        reconciliation.resolve(case(run).pk, actor=None, resolution="fail", note="give up")
    assert runs.get(run.id).status == how
    return run


# --- starting --------------------------------------------------------------------------------------


def test_a_start_by_name_or_object_is_kept_as_it_was_asked_for() -> None:
    who = people().requester
    run: Any = runs.start("test_runs.waiting", 4, key="k", requester=who, tags=["a", "b"])
    assert (run.workflow, run.version, run.status, run.key) == ("test_runs.waiting", 1, "pending", "k")
    assert (run.requester, run.input, run.output, run.error) == ("rita", 4, None, None)
    assert run.tags == ("a", "b") and runs.get(run.id) == run and run.finished_at is None


@pytest.mark.parametrize("status", ["pending", "suspended", "completed", "failed", "cancelled"])
def test_the_same_key_and_input_give_the_earlier_run_whatever_became_of_it(status: str) -> None:
    run = runs.start(waiting, 4, key="k")
    if status != "pending":
        drive()
    if status == "completed":
        runs.signal(run.id, "go", 1)
        drive()
    if status == "cancelled":
        runs.cancel(run.id, actor=None, reason="no")
    if status == "failed":
        run = runs.start(failing, 4, key="k")
        drive()
        from approvals.services import reconciliation

        reconciliation.resolve(case(run).pk, actor=None, resolution="fail", note="give up")
        assert runs.start(failing, 4, key="k").id == run.id
        return
    before = Run.objects.count()
    again = runs.start(waiting, 4, key="k")
    assert again.id == run.id and again.status == status and Run.objects.count() == before


def test_the_same_key_with_another_input_is_a_conflict_and_changes_nothing() -> None:
    run = runs.start(waiting, 4, key="k")
    with pytest.raises(RunConflict) as found:
        runs.start(waiting, 5, key="k")
    assert found.value.values["run"] == run.id and Run.objects.count() == 1
    assert runs.start(failing, 5, key="k").id != run.id, "keys are of one workflow"
    runs.cancel(runs.start(failing, 5, key="k").id, actor=None, reason="not to be run")


def test_a_secret_in_the_input_is_compared_as_a_value() -> None:
    with peer(Shop):
        run = runs.start(ordering, Order(sku="a", token=SecretStr("s")), key="k")
        assert runs.start(ordering, Order(sku="a", token=SecretStr("s")), key="k").id == run.id
        with pytest.raises(RunConflict):
            runs.start(ordering, Order(sku="a", token=SecretStr("other")), key="k")


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\x00"])
def test_odd_keys_are_refused(bad: str) -> None:
    with pytest.raises(InvalidInput):
        runs.start(waiting, 4, key=bad)


def test_what_cannot_start_starts_nothing() -> None:
    with pytest.raises(UnknownWorkflow):
        runs.start("no such", 1)
    with pytest.raises(NotSerializable):
        runs.start(waiting, "x")
    with pytest.raises(InvalidInput):
        runs.start_json("test_runs.waiting", {"a": 1})
    for call in (runs.get, runs.replay):
        with pytest.raises(NotFound):
            call(uuid4())
    assert not Run.objects.exists()


def test_values_that_todays_type_refuses_are_still_shown_and_compared() -> None:
    run = runs.start(waiting, 4, key="k")
    Run.objects.filter(pk=run.id).update(input='"four"')
    assert runs.get(run.id).input == "four"
    with pytest.raises(RunConflict):
        runs.start(waiting, 4, key="k")
    drive()
    assert "the input of" in case(run).data


# --- cancelling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["pending", "suspended", "paused"])
def test_a_run_that_no_worker_holds_is_cancelled_at_once(first: str) -> None:
    run = runs.start(waiting, 1)
    if first != "pending":
        drive()
    if first == "paused":
        runs.pause(run.id, actor=people().operator, reason="hm")
    runs.cancel(run.id, actor=people().operator, reason="enough")
    found = Run.objects.get(pk=run.id)
    assert found.status == "cancelled" and (found.cancel_by, found.cancel_reason) == ("olaf", "enough")
    assert not Wait.objects.filter(status="open").exists()
    runs.cancel(run.id, actor=people().operator, reason="again")
    assert kinds(run).count("run.cancel") == 1 and kinds(run).count("run.cancel_asked") == 1
    assert drive() == 0


@pytest.mark.parametrize("how", ["completed", "failed"])
def test_a_run_that_is_over_cannot_be_cancelled(how: str) -> None:
    run = ended(how)
    before = Entry.objects.count()
    with pytest.raises(IllegalTransition):
        runs.cancel(run.id, actor=None, reason="too late")
    assert runs.get(run.id).status == how and Entry.objects.count() == before


def test_a_running_run_is_cancelled_at_its_next_boundary_and_its_receipt_is_kept() -> None:
    with peer(Shop) as shop:
        run = runs.start(ordering, Order(sku="a"))
        apply = shop.apply

        def cancelled(request: Any, key: str) -> None:
            apply(request, key)
            runs.cancel(run.id, actor=people().operator, reason="enough")
            assert runs.get(run.id).status == "running"

        shop.apply = cancelled  # type: ignore[method-assign]
        drive()
        assert runs.get(run.id).status == "cancelled" and len(shop.requests) == 1
        assert "effect.commit" in kinds(run) and "run.complete" not in kinds(run)


def test_a_run_in_doubt_is_settled_before_it_is_cancelled() -> None:
    with peer(Shop, "late") as shop:
        run = ran(ordering, Order(sku="a"))
        assert run.status == "suspended"
        runs.cancel(run.id, actor=None, reason="enough")
        drive()
        assert runs.get(run.id).status != "cancelled"
        clock.shift(timedelta(seconds=60))
        drive()
        clock.shift(timedelta(seconds=60))
        drive()
        assert runs.get(run.id).status == "cancelled" and len(shop.calls) == 1


def test_who_may_cancel() -> None:
    who = people()
    run = ran(waiting, requester=who.requester)
    for actor in (who.outsider, who.reviewers[0]):
        with pytest.raises(PermissionRefused):
            runs.cancel(run.id, actor=actor, reason="no")
        with pytest.raises(PermissionRefused):
            runs.pause(run.id, actor=actor, reason="no")
    with pytest.raises(NotFound):
        runs.cancel(uuid4(), actor=who.operator, reason="no")
    assert runs.get(run.id).status == "suspended"
    runs.cancel(run.id, actor=who.requester, reason="mine")
    assert runs.get(run.id).status == "cancelled"


# --- pausing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["pending", "suspended"])
def test_a_paused_run_keeps_its_waits_and_goes_on_where_it_was(first: str) -> None:
    who = people().operator
    run = runs.start(waiting, 1)
    if first == "suspended":
        drive()
    runs.pause(run.id, actor=who, reason="deploy")
    assert runs.get(run.id).status == "paused" and drive() == 0
    assert Wait.objects.filter(status="open").count() == (first == "suspended")
    with pytest.raises(IllegalTransition):
        runs.pause(run.id, actor=who, reason="again")
    runs.resume(run.id, actor=who)
    drive()
    assert runs.get(run.id).status == "suspended"
    with pytest.raises(IllegalTransition):
        runs.resume(run.id, actor=who)
    runs.signal(run.id, "go", 7)
    drive()
    assert runs.get(run.id).output == 7


def test_a_wait_that_closes_while_the_run_is_paused_is_found_at_its_resume() -> None:
    who = people().operator
    run = ran(waiting)
    runs.pause(run.id, actor=who, reason="deploy")
    runs.signal(run.id, "go", 7)
    assert runs.get(run.id).status == "paused" and drive() == 0
    runs.resume(run.id, actor=who)
    drive()
    assert runs.get(run.id).output == 7


@flow
def two(ctx: Context, n: int) -> str:
    a, b, c = ctx.signal("a"), ctx.signal("b"), ctx.signal("c")
    ctx.wait_any(a, b, cancel_losers=False)
    return str(ctx.wait(c).payload)


def test_what_a_paused_run_was_parked_on_does_not_wake_it_later() -> None:
    run = ran(two)
    runs.pause(run.id, actor=None, reason="deploy")
    runs.signal(run.id, "a", 1)
    runs.resume(run.id, actor=None)
    drive()
    wakes = kinds(run).count("run.wake")
    runs.signal(run.id, "b", 2)
    assert runs.get(run.id).status == "suspended" and kinds(run).count("run.wake") == wakes
    runs.signal(run.id, "c", 3)
    drive()
    assert runs.get(run.id).output == "3"


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_a_run_that_is_over_is_neither_paused_nor_resumed(how: str) -> None:
    run = ended(how)
    with pytest.raises(IllegalTransition):
        runs.pause(run.id, actor=None, reason="no")
    with pytest.raises(IllegalTransition):
        runs.resume(run.id, actor=None)
    assert runs.get(run.id).status == how


def test_a_run_with_an_open_case_is_not_paused() -> None:
    run = ran(failing)
    with pytest.raises(IllegalTransition):
        runs.pause(run.id, actor=None, reason="no")
    assert case(run).name == "crashed"


@pytest.mark.parametrize("again", [True, False])
def test_a_running_run_is_paused_at_its_next_boundary(again: bool) -> None:
    """With `again`, the operator thinks better of it before that boundary comes."""
    with peer(Shop) as shop:
        run = runs.start(ordering, Order(sku="a"))
        apply = shop.apply

        def paused(request: Any, key: str) -> None:
            apply(request, key)
            runs.pause(run.id, actor=people().operator, reason="deploy")
            runs.pause(run.id, actor=people().operator, reason="deploy")
            if again:
                runs.resume(run.id, actor=people().operator)

        shop.apply = paused  # type: ignore[method-assign]
        drive()
        assert runs.get(run.id).status == ("completed" if again else "paused")
        if not again:
            assert kinds(run).count("run.pause_asked") == 1 and "effect.commit" in kinds(run)
            runs.resume(run.id, actor=people().operator)
            drive()
        assert runs.get(run.id).output is not None and len(shop.calls) == 1


@pytest.mark.parametrize("ask", ["pause", "cancel"])
def test_a_request_to_stop_reaches_a_run_that_suspends(ask: str) -> None:
    run = runs.start(waiting, 1)
    with crash_at("before_suspend"):
        drive()
    assert runs.get(run.id).status == "running"
    getattr(runs, ask)(run.id, actor=None, reason="now")
    assert runs.get(run.id).status == "running"
    drive()
    assert runs.get(run.id).status == {"pause": "paused", "cancel": "cancelled"}[ask]
    if ask == "pause":
        runs.resume(run.id, actor=None)
        runs.signal(run.id, "go", 3)
        drive()
        assert runs.get(run.id).output == 3


@flow
def paused_meanwhile(ctx: Context, n: int) -> int:
    if not during:
        during.append("asked")
        runs.pause(ctx.run_id, actor=None, reason="deploy")
        n = 1 // n
    return ctx.wait(ctx.signal("go")).payload  # type: ignore[no-any-return]


@pytest.mark.parametrize("where", ["pending", "suspended"])
def test_a_pause_that_no_boundary_has_met_yet_is_taken_back(where: str) -> None:
    """Since it was asked for, its worker has died, or stopped the run at a case."""
    run = runs.start(paused_meanwhile, int(where == "pending"))
    with crash_at("before_suspend"):
        drive()
    wait_for(lambda: sweeper.sweep() or runs.get(run.id).status == where)
    runs.resume(run.id, actor=None)
    with pytest.raises(IllegalTransition):
        runs.resume(run.id, actor=None)
    if where == "suspended":
        resume(run)
    drive()
    assert runs.get(run.id).status == "suspended" and "run.pause" not in kinds(run)


def test_a_worker_that_is_told_to_stop_gives_the_run_back_at_a_boundary(monkeypatch) -> None:
    take = loop.Worker.take

    def stopping(self: loop.Worker, run: Run) -> None:
        if not during:
            during.append("stopped once")
            self._stopping.set()
        take(self, run)
        self._stopping.clear()

    monkeypatch.setattr(loop.Worker, "take", stopping)
    run = ran(waiting)
    assert kinds(run)[:3] == ["run.start", "run.claim", "run.yield"] and run.status == "suspended"
    assert Run.objects.get().turns_lost == 0
