"""Undoing what a run has done: when it fails, when it is cancelled, when its code says so (CASES 29)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from approvals import Context, workflow
from approvals.errors import ApprovalRejected, Failed, IllegalTransition
from approvals.models import Effect as Row
from approvals.models import Run
from approvals.services import reconciliation, runs
from approvals.testing import assert_invariants, clock, decide, drive, peer, people
from tests.engine.make import case, kinds, ran
from tests.engine.shop import Guarded, Order
from tests.engine.undo import Car, Flight, Hotel, Mail, Trip, booking, compensation, effects, trip, world

pytestmark = pytest.mark.usefixtures("engine")

failing = trip("failing", Flight, Hotel, Car)
plain = trip("plain", Flight, Hotel, compensate=False)
waiting = trip("waiting", Flight, Hotel, Car, ends="waits")
mailing = trip("mailing", Flight, Mail, Hotel)
NEWEST_FIRST = ["undo.car", "undo.hotel", "undo.flight"]


@pytest.fixture(autouse=True)
def _fresh(engine: Any) -> Iterator[None]:
    world.clear()
    yield
    assert_invariants()


def settle(run: Any, resolution: str, **more: Any) -> None:
    reconciliation.resolve(case(run).pk, actor=people().operator, resolution=resolution, note="seen", **more)
    drive()


def cancel(run: Any, **more: Any) -> None:
    runs.cancel(run.id, actor=people().operator, reason="enough", compensate=True, **more)


# --- at failure ------------------------------------------------------------------------------------


def test_a_run_that_fails_undoes_what_it_did_newest_first_and_then_fails_with_its_error() -> None:
    run = ran(failing)
    assert world.order == NEWEST_FIRST and world.booked == {}
    assert run.status == "failed" and run.error == {"type": "Failed", "message": "no visa", "code": "failed"}
    done = [("flight", "compensated"), ("hotel", "compensated"), ("car", "compensated")]
    undone = [(f"{kind}.compensate", "committed") for kind in ("car", "hotel", "flight")]
    assert effects(run) == done + undone
    last = [k for k in kinds(run) if k in ("run.fail_asked", "effect.compensate", "run.fail")]
    assert last == ["run.fail_asked", *["effect.compensate"] * 3, "run.fail"]
    assert runs.replay(run.id).same


def test_each_compensation_is_an_effect_of_its_own() -> None:
    run = ran(failing)
    row, of = compensation(run, "undo.car"), Row.objects.get(run=run.id, kind="undo.car")
    assert row.compensates_id == of.pk and row.key != of.key and world.undone[0] == ("undo.car", row.key)
    assert row.external_id == f"undone-{row.key}" and row.sends == 1 and row.position == -of.position
    told = [k for k in kinds(run) if k.startswith("effect.")][-4:]
    assert told == ["effect.intend", "effect.dispatch", "effect.commit", "effect.compensate"]


def test_a_run_that_does_not_say_so_stays_as_it_is() -> None:
    run = ran(plain)
    assert run.status == "failed" and world.undone == [] and len(world.booked) == 2


def test_nothing_done_is_nothing_undone() -> None:
    @workflow(name="undo-nothing", version=1, compensate=True)
    def nothing(ctx: Context, n: int) -> int:
        raise Failed("at once")

    run = ran(nothing)
    assert run.status == "failed" and "run.fail_asked" not in kinds(run)


def test_compensate_may_say_that_nothing_was_to_be_done() -> None:
    world.answers = ["nothing"]
    run = ran(failing)
    row = compensation(run, "undo.car")
    assert row.status == "committed" and "nothing" in json.loads(row.evidence)["undone"]
    assert run.status == "failed" and world.order == ["undo.hotel", "undo.flight"]


@workflow(name="undo-crashing", version=1, compensate=True)
def crashing(ctx: Context, n: int) -> int:
    booking(ctx, Flight, Car)
    return 1 // n


def test_an_operator_who_fails_a_run_has_it_undo_what_it_did() -> None:
    run = ran(crashing)
    assert case(run).name == "crashed" and world.undone == []
    settle(run, "fail")
    found = runs.get(run.id)
    assert found.status == "failed" and found.error is not None and found.error["code"] == "operator"
    assert world.order == ["undo.car", "undo.flight"]


# --- rejected: first, in the middle, last, in a child ----------------------------------------------


def gated(at: int) -> Any:
    def run(ctx: Context, n: int) -> int:
        for i, kind in enumerate((Flight, Hotel, Car)):
            if i == at:
                ctx.effect("gate", Guarded, Order(), title="Go on?")
            ctx.effect(kind.kind, kind, Trip())
        if at == 3:
            ctx.effect("gate", Guarded, Order(), title="Go on?")
        return n

    run.__qualname__ = f"gated{at}"
    return workflow(name=f"undo-gated{at}", version=1, compensate=True)(run)


GATED = [gated(at) for at in range(4)]


@pytest.mark.parametrize("at", range(4))
def test_a_rejection_undoes_what_came_before_it_once(at: int) -> None:
    who = people()
    with peer(Guarded) as shop:
        run = ran(GATED[at], requester=who.requester)
        decide(run, who.reviewers[0], "rejected")
        drive()
    assert world.order == NEWEST_FIRST[3 - at :] and shop.requests == []
    found = runs.get(run.id)
    assert found.status == "failed" and found.error is not None
    assert found.error["type"] == "ApprovalRejected"


# --- cancelled -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["suspended", "paused"])
def test_a_cancelled_run_is_claimed_to_undo_what_it_did_and_its_code_does_not_run(first: str) -> None:
    run = ran(waiting)
    if first == "paused":
        runs.pause(run.id, actor=people().operator, reason="hm")
    cancel(run)
    assert runs.get(run.id).status == "pending"
    before = kinds(run).count("wait.open")
    drive()
    assert runs.get(run.id).status == "cancelled" and world.order == NEWEST_FIRST
    assert kinds(run).count("run.unwind") == 1 and kinds(run).count("wait.open") == before
    assert Run.objects.get(pk=run.id).cancel_reason == "enough"


def test_nothing_to_undo_is_cancelled_at_once() -> None:
    run = runs.start(waiting, 1)
    cancel(run)
    assert runs.get(run.id).status == "cancelled" and drive() == 0


def test_a_running_run_is_cancelled_at_its_next_boundary_and_undoes_its_last_effect_too() -> None:
    @workflow(name="undo-running", version=1)
    def running(ctx: Context, n: int) -> int:
        booking(ctx, Flight)
        runs.cancel(ctx.run_id, actor=people().operator, reason="enough", compensate=True)
        booking(ctx, Hotel)
        return n

    run = ran(running)
    assert runs.get(run.id).status == "cancelled"
    assert world.booked == {} and world.order[-1] == "undo.flight"


def test_a_crashed_run_can_be_cancelled_and_undone_without_mending_its_code() -> None:
    run = ran(crashing)
    cancel(run)
    drive()
    assert runs.get(run.id).status == "cancelled" and world.order == ["undo.car", "undo.flight"]


def test_a_run_that_fails_already_cannot_be_cancelled() -> None:
    world.answers = [ConnectionError("?")]
    run = ran(failing)
    with pytest.raises(IllegalTransition):
        runs.cancel(run.id, actor=people().operator, reason="enough")
    settle(run, "confirm", external_id="seen")
    assert runs.get(run.id).status == "failed"


def test_a_failing_run_that_is_paused_goes_on_undoing_when_it_is_resumed() -> None:
    from approvals import NotSent

    world.answers = [NotSent("busy")]
    run = ran(failing)
    runs.pause(run.id, actor=people().operator, reason="hm")
    clock.shift(timedelta(minutes=1))
    drive()
    assert runs.get(run.id).status == "paused" and world.undone == []
    runs.resume(run.id, actor=people().operator)
    drive()
    assert runs.get(run.id).status == "failed" and world.order == NEWEST_FIRST


# --- as the code says ------------------------------------------------------------------------------


@workflow(name="undo-then-on", version=1)
def then_on(ctx: Context, n: int) -> str:
    try:
        booking(ctx, Flight, Hotel)
        ctx.effect("gate", Guarded, Order(), title="Go on?")
    except ApprovalRejected as no:
        ctx.compensate(str(no))
    booking(ctx, Car)
    ctx.wait(ctx.signal("go"))
    ctx.compensate("again")
    return "over"


def test_code_undoes_goes_on_and_undoes_only_what_is_new() -> None:
    who = people()
    with peer(Guarded):
        run = ran(then_on, requester=who.requester)
        decide(run, who.reviewers[0], "rejected")
        drive()
        assert world.order == ["undo.hotel", "undo.flight"] and runs.get(run.id).status == "suspended"
        runs.signal(run.id, "go", 1)
        drive()
    assert runs.get(run.id).output == "over" and world.order[2:] == ["undo.car"] and world.booked == {}
    assert runs.replay(run.id).same
    assert [k for k in kinds(run) if k.startswith("compensate")] == [
        "compensate.begin",
        "compensate.complete",
    ] * 2


# --- what cannot be undone -------------------------------------------------------------------------


def test_what_has_no_compensate_stops_for_an_operator_and_then_the_rest_is_undone() -> None:
    run = ran(mailing)
    assert world.order == ["undo.hotel"] and case(run).name == "not undone"
    told = json.loads(case(run).data)
    assert Row.objects.get(pk=told["effect"]).kind == "undo.mail" and "compensate" in told["reason"]
    assert run.error is not None and run.error["message"] == "no visa", "the first error is not hidden"
    settle(run, "accept")
    assert world.order == ["undo.hotel", "undo.flight"] and runs.get(run.id).status == "failed"
    assert ("mail", "committed") in effects(run)


def test_to_try_again_is_to_ask_again_until_the_code_can_undo_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ran(mailing)
    settle(run, "resume")
    assert case(run).name == "not undone" and world.order == ["undo.hotel"]
    monkeypatch.setattr(Mail, "compensate", Flight.compensate)
    settle(run, "resume")
    assert world.order == ["undo.hotel", "undo.mail", "undo.flight"] and runs.get(run.id).status == "failed"


def test_an_operator_may_end_it_as_things_are() -> None:
    run = ran(mailing)
    settle(run, "fail")
    found = runs.get(run.id)
    assert found.status == "failed" and found.error is not None and found.error["message"] == "no visa"
    assert world.order == ["undo.hotel"] and len(world.booked) == 2
