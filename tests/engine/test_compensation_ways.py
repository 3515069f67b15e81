"""From wherever a run stands it can be cancelled and undone; what it has to do with others, and with checks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from approvals import MATCH, MISSING, Context, NotSent, Receipt, Refused, Verification, workflow
from approvals.errors import Failed, IllegalTransition
from approvals.models import Effect as Row
from approvals.models import Outbox, Run
from approvals.services import reconciliation, runs
from approvals.testing import assert_invariants, clock, crash_at, decide, drive, peer, people
from tests.engine.make import case, kinds, ran
from tests.engine.shop import Guarded
from tests.engine.test_compensation import GATED, cancel, settle
from tests.engine.undo import Booking, Car, Flight, Hotel, Trip, Undoable, booking, compensation, trip, world

pytestmark = pytest.mark.usefixtures("engine")

waiting = trip("ways-waiting", Flight, Hotel, ends="waits")
undoing = trip("ways-undoing", Flight, ends="undoes")


@pytest.fixture(autouse=True)
def _fresh(engine: Any) -> Iterator[None]:
    world.clear()
    yield
    assert_invariants()


def plainly(run: Any) -> None:
    """Cancels it without a word about undoing."""
    runs.cancel(run.id, actor=people().operator, reason="enough")


# --- from where ------------------------------------------------------------------------------------


class Blind(Undoable):
    kind = "undo.blind"

    def perform(self, request: Trip, key: str) -> Receipt[Trip]:
        super().perform(request, key)
        raise ConnectionError("the answer was lost")


@workflow(name="undo-doubtful", version=1)
def doubtful(ctx: Context, n: int) -> int:
    booking(ctx, Flight)
    ctx.effect("blind", Blind, Trip())
    return n


def test_a_run_that_waits_for_people_is_undone_and_asks_them_no_more() -> None:
    with peer(Guarded) as shop:
        run = ran(GATED[2], requester=people().requester)
        cancel(run)
        drive()
        with pytest.raises(AssertionError, match="needed one open approval"):
            decide(run, people().reviewers[0], "approved")
    assert runs.get(run.id).status == "cancelled" and world.order == ["undo.hotel", "undo.flight"]
    assert shop.requests == []


def test_what_was_asked_plainly_may_be_asked_again_with_compensation_while_it_is_not_over() -> None:
    run = ran(doubtful)
    plainly(run)
    assert runs.get(run.id).status == "suspended", "what is in doubt is settled first"
    cancel(run)
    cancel(run)
    assert kinds(run).count("run.cancel_asked") == 2
    settle(run, "confirm", external_id=f"id-{Row.objects.get(kind='undo.blind').key}")
    assert runs.get(run.id).status == "cancelled" and world.order == ["undo.blind", "undo.flight"]


def test_a_plain_cancel_takes_back_no_compensation_that_was_asked_for() -> None:
    run = ran(doubtful)
    cancel(run)
    plainly(run)
    settle(run, "confirm", external_id=f"id-{Row.objects.get(kind='undo.blind').key}")
    assert world.order == ["undo.blind", "undo.flight"]


def test_what_turned_out_not_to_have_happened_is_not_undone() -> None:
    run = ran(doubtful)
    cancel(run)
    clock.shift(timedelta(minutes=2))
    settle(run, "disprove")
    assert world.order == ["undo.flight"] and runs.get(run.id).status == "cancelled"
    assert Row.objects.get(kind="undo.blind").status == "withdrawn"


def test_an_operator_who_fails_a_run_that_was_to_be_undone_has_it_undone() -> None:
    run = ran(doubtful)
    cancel(run)
    settle(run, "fail")
    assert case(run).name == "in doubt", "it cannot be undone before it is known whether it happened"
    settle(run, "confirm", external_id=f"id-{Row.objects.get(kind='undo.blind').key}")
    found = runs.get(run.id)
    assert found.status == "failed" and found.error is not None and found.error["code"] == "operator"
    assert world.order == ["undo.blind", "undo.flight"]


def test_what_is_being_undone_replays_up_to_where_it_stood() -> None:
    """Its waits are closed with nothing in them; whatever the code would make of that, it is not what ended it."""
    run = ran(trip("ways-car", Car, ends="waits"))
    world.answers = [ConnectionError("the answer was lost")]
    cancel(run)
    drive()
    assert case(run).name == "in doubt" and runs.replay(run.id).same


def test_a_run_that_ended_otherwise_cannot_be_undone_any_more() -> None:
    for flow in (trip("ways-done", Flight, ends="undoes"), trip("ways-failed", Flight, compensate=False)):
        run = ran(flow)
        before = list(world.order)
        with pytest.raises(IllegalTransition):
            cancel(run)
        assert drive() == 0 and world.order == before


def test_a_cancel_while_the_code_undoes_finishes_that() -> None:
    world.answers = [NotSent("busy")]
    run = ran(undoing)
    assert runs.get(run.id).status == "suspended"
    cancel(run)
    assert runs.get(run.id).status == "suspended", "the next attempt has its time"
    clock.shift(timedelta(minutes=1))
    drive()
    assert runs.get(run.id).status == "cancelled" and world.order == ["undo.flight"]
    assert Row.objects.filter(run=run.id, kind="undo.flight.compensate").count() == 1


def test_a_plain_cancel_while_the_code_undoes_leaves_the_rest_as_it_is() -> None:
    world.answers = [NotSent("busy")]
    run = ran(undoing)
    plainly(run)
    assert runs.get(run.id).status == "cancelled" and world.undone == []
    assert compensation(run, "undo.flight").status == "withdrawn"


def test_a_pause_holds_what_a_cancelled_run_owes_only_as_long_as_it_waits_anyway() -> None:
    world.answers = [NotSent("busy")]
    run = ran(waiting)
    cancel(run)
    drive()
    runs.pause(run.id, actor=people().operator, reason="hm")
    drive()
    assert runs.get(run.id).status == "paused" and world.undone == []
    clock.shift(timedelta(minutes=1))
    drive()
    assert runs.get(run.id).status == "cancelled" and world.order == ["undo.hotel", "undo.flight"]


def test_nothing_is_undone_while_a_case_about_it_is_open() -> None:
    world.answers = [Refused("no")]
    run = ran(waiting)
    cancel(run)
    drive()
    assert case(run).name == "not undone"
    assert drive() == 0 and world.undone == [] and len(world.calls) == 1
    settle(run, "resume")
    assert runs.get(run.id).status == "cancelled" and world.order == ["undo.hotel", "undo.flight"]


# --- parents and children --------------------------------------------------------------------------


@workflow(name="undo-parent", version=1, compensate=True)
def parent(ctx: Context, n: int) -> int:
    booking(ctx, Car)
    return ctx.wait(ctx.child("trip", GATED[2], n))  # type: ignore[no-any-return]


@workflow(name="undo-above", version=1)
def above(ctx: Context, n: int) -> int:
    booking(ctx, Car)
    return ctx.wait(ctx.child("trip", waiting, n))  # type: ignore[no-any-return]


@workflow(name="undo-only-children", version=1)
def only_children(ctx: Context, n: int) -> int:
    return ctx.wait(ctx.child("trip", waiting, n))  # type: ignore[no-any-return]


@workflow(name="undo-fails-above", version=1, compensate=True)
def fails_above(ctx: Context, n: int) -> int:
    booking(ctx, Car)
    ctx.child("trip", waiting, n)
    ctx.wait(ctx.signal("go"))
    raise Failed("no visa")


def child_of(run: Any) -> Run:
    return Run.objects.get(parent_run=run.id)


def test_a_rejection_in_a_child_undoes_the_childs_effects_and_then_its_parents() -> None:
    who = people()
    with peer(Guarded):
        run = ran(parent, requester=who.requester)
        child = child_of(run)
        decide(runs.get(child.pk), who.reviewers[0], "rejected")
        drive()
    assert world.order == ["undo.hotel", "undo.flight", "undo.car"] and world.booked == {}
    found = runs.get(run.id)
    assert runs.get(child.pk).status == "failed" and found.status == "failed"
    assert found.error is not None and found.error["type"] == "ChildFailed"


@pytest.mark.parametrize(("flow", "own"), [(above, ["undo.car"]), (only_children, [])])
def test_cancel_and_compensation_reach_a_child_that_is_under_way(flow: Any, own: list[str]) -> None:
    run = ran(flow, 1)
    child = child_of(run)
    cancel(run)
    drive()
    assert runs.get(run.id).status == "cancelled" and runs.get(child.pk).status == "cancelled"
    assert world.booked == {} and sorted(world.order) == sorted([*own, "undo.hotel", "undo.flight"])


def test_a_plain_cancel_reaches_a_child_without_compensation() -> None:
    run = ran(above, 1)
    plainly(run)
    drive()
    assert runs.get(child_of(run).pk).status == "cancelled" and world.undone == []


def test_a_parent_that_fails_and_undoes_has_the_child_that_is_under_way_undo_too() -> None:
    run = ran(fails_above, 1)
    runs.signal(run.id, "go", 1)
    drive()
    assert runs.get(run.id).status == "failed" and runs.get(child_of(run).pk).status == "cancelled"
    assert world.booked == {} and sorted(world.order) == ["undo.car", "undo.flight", "undo.hotel"]


# --- checks of what is being undone ----------------------------------------------------------------


class Checked(Undoable):
    """Read back at every resume, and known to its peer by our key."""

    kind = "undo.checked"
    deduplicates = True

    def verify(self, receipt: Receipt[Trip]) -> Verification:
        return MATCH if receipt.key in world.booked else MISSING


class CheckedMail(Booking):
    """Cannot be undone by its code."""

    kind = "undo.checked-mail"

    def verify(self, receipt: Receipt[Trip]) -> Verification:
        return MATCH if receipt.key in world.booked else MISSING


@workflow(name="undo-checked", version=1)
def checked(ctx: Context, n: int) -> str:
    booking(ctx, Checked)
    ctx.compensate("changed my mind")
    return "over"


@workflow(name="undo-checked-mail", version=1)
def checked_mail(ctx: Context, n: int) -> str:
    booking(ctx, CheckedMail)
    ctx.compensate("changed my mind")
    ctx.wait(ctx.signal("go"))
    return "over"


def test_what_is_being_undone_is_not_missed_by_its_own_check() -> None:
    with crash_at("performed:2"):
        run = ran(checked)
    assert world.booked == {} and runs.get(run.id).status == "running"
    drive()
    assert runs.get(run.id).output == "over" and len(set(world.calls)) == 1
    assert "effect.contradict" not in kinds(run)


def test_what_an_operator_undid_by_hand_is_not_checked_any_more() -> None:
    run = ran(checked_mail)
    world.booked.clear()
    settle(run, "accept")
    runs.signal(run.id, "go", 1)
    drive()
    assert runs.get(run.id).output == "over" and "effect.contradict" not in kinds(run)


def test_a_look_up_for_an_operator_shows_what_the_peer_has_of_what_is_to_be_undone() -> None:
    world.answers = [ConnectionError("?")]
    run = ran(trip("ways-looked-up", Hotel))
    clock.shift(timedelta(minutes=1))
    drive()
    reconciliation.ask_to_look(case(run).pk, actor=people().operator)
    drive()
    of = Row.objects.get(kind="undo.hotel")
    assert f'"external_id": "id-{of.key}"' in case(run).data
    assert not Outbox.objects.filter(kind=Outbox.Kind.PROBE).exists()
    settle(run, "disprove")
    assert world.order == ["undo.hotel"]
