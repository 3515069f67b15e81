"""A compensation that fails, that nobody heard of, or whose worker died: nothing twice, nothing skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from approvals import NotSent, Refused
from approvals.errors import IllegalTransition, InvalidInput
from approvals.models import Effect as Row
from approvals.models import Run, Wait
from approvals.services import reconciliation, runs
from approvals.testing import assert_invariants, clock, crash_at, decide, drive, pending, people
from approvals.transitions import effects as events
from approvals.transitions import locked
from tests.engine.make import case, ran
from tests.engine.shop import load
from tests.engine.test_compensation import settle
from tests.engine.undo import Car, Flight, Hotel, compensation, counted, trip, world

pytestmark = pytest.mark.usefixtures("engine")

ONE: dict[str, Any] = {e.kind: trip(f"one-{e.kind}", e) for e in (Flight, Hotel, Car)}
BOTH = trip("both", Flight, Hotel)
WAITS = trip("waits", Flight, Hotel, ends="waits")


@pytest.fixture(autouse=True)
def _fresh(engine: Any) -> Iterator[None]:
    world.clear()
    yield
    assert_invariants()


def later(seconds: float = 60) -> None:
    clock.shift(timedelta(seconds=seconds))
    drive()


# --- it fails --------------------------------------------------------------------------------------


def test_a_refusal_waits_for_an_operator_who_has_it_tried_again_under_a_new_key() -> None:
    world.answers = [Refused("the counter is closed")]
    run = ran(BOTH)
    assert case(run).name == "not undone" and "closed" in json.loads(case(run).data)["reason"]
    assert run.status == "suspended" and run.error is not None and run.error["message"] == "no visa"
    first = compensation(run, "undo.hotel")
    settle(run, "resume")
    assert runs.get(run.id).status == "failed" and world.order == ["undo.hotel", "undo.flight"]
    assert world.undone[0][1] == first.key != world.calls[0]
    assert compensation(run, "undo.hotel").pk == first.pk


def test_an_operator_lets_it_be_and_the_rest_is_undone() -> None:
    world.answers = [Refused("no")]
    run = ran(BOTH)
    settle(run, "accept")
    assert runs.get(run.id).status == "failed" and world.order == ["undo.flight"]
    row = compensation(run, "undo.hotel")
    assert row.status == "withdrawn" and "seen" in row.reason
    assert Row.objects.get(kind="undo.hotel").status == "committed"


def test_what_could_not_be_sent_is_tried_again_and_then_an_operator_is_asked() -> None:
    world.answers = [NotSent("busy"), NotSent("busy")]
    run = ran(BOTH)
    assert Wait.objects.filter(status="open", kind="timer").exists() and world.undone == []
    later()
    assert case(run).name == "not undone" and len(set(world.calls)) == 1
    settle(run, "resume")
    assert runs.get(run.id).status == "failed" and world.order == ["undo.hotel", "undo.flight"]


def test_a_cancelled_run_waits_as_well_and_does_not_spin() -> None:
    world.answers = [Refused("no")]
    run = ran(WAITS)
    runs.cancel(run.id, actor=people().operator, reason="enough", compensate=True)
    assert drive() < 4 and runs.get(run.id).status == "suspended"
    assert drive() == 0
    settle(run, "resume")
    assert runs.get(run.id).status == "cancelled" and world.order == ["undo.hotel", "undo.flight"]


# --- in doubt --------------------------------------------------------------------------------------


def test_a_lost_answer_of_a_peer_that_deduplicates_is_asked_for_again_under_the_same_key() -> None:
    world.answers = ["lose"]
    run = ran(ONE["undo.flight"])
    later()
    assert runs.get(run.id).status == "failed" and len(world.undone) == 1
    assert len(world.calls) == 2 and len(set(world.calls)) == 1


def test_a_lost_answer_is_settled_by_looking_that_it_is_gone() -> None:
    world.answers = ["lose"]
    run = ran(ONE["undo.hotel"])
    assert run.status == "failed" and len(world.calls) == 1
    assert compensation(run, "undo.hotel").status == "committed"


def test_what_is_still_there_is_not_undone_twice_but_a_person_is_asked() -> None:
    world.answers = [ConnectionError("?")]
    run = ran(ONE["undo.hotel"])
    assert run.status == "suspended" and not Wait.objects.filter(kind="reconciliation").exists()
    later()
    assert case(run).name == "in doubt" and len(world.calls) == 1
    settle(run, "disprove")
    assert runs.get(run.id).status == "failed" and len(world.undone) == 1 and len(set(world.calls)) == 1


def test_a_blind_peer_asks_an_operator_and_the_answer_counts() -> None:
    world.answers = ["lose"]
    run = ran(ONE["undo.car"])
    assert case(run).name == "in doubt" and run.error is not None
    settle(run, "confirm", external_id="seen")
    assert runs.get(run.id).status == "failed" and len(world.calls) == 1
    assert Row.objects.get(kind="undo.car").status == "compensated"


# --- guards ----------------------------------------------------------------------------------------


def test_only_the_receipt_of_its_own_compensation_undoes_an_effect() -> None:
    world.answers = [Refused("no")]
    run = ran(BOTH)
    of, row = Row.objects.get(kind="undo.hotel"), compensation(run, "undo.hotel")
    with pytest.raises(IllegalTransition), locked(run.id) as tx:
        events.compensate(tx, of, by=row)
    settle(run, "accept")


def test_what_is_being_undone_is_not_done_again() -> None:
    world.answers = [Refused("no")]
    run = ran(trip("not-again", Flight, ends="undoes"))
    with pytest.raises(IllegalTransition, match="Undoing it has begun"), locked(run.id) as tx:
        events.redo(tx, Row.objects.get(kind="undo.flight"), by="olaf")
    settle(run, "accept")
    assert runs.get(run.id).status == "completed"


def test_a_policy_that_claims_the_compensations_kind_is_asked() -> None:
    load("careful", effects=["undo.car.compensate"])
    who = people()
    run = ran(ONE["undo.car"], requester=who.requester)
    assert len(pending(run)) == 1 and world.calls == []
    decide(run, who.reviewers[0], "approved")
    drive()
    assert runs.get(run.id).status == "failed" and len(world.undone) == 1


def test_a_compensation_that_people_reject_is_not_passed_over_in_silence() -> None:
    load("careful", effects=["undo.car.compensate"])
    who = people()
    run = ran(ONE["undo.car"], requester=who.requester)
    decide(run, who.reviewers[0], "rejected")
    drive()
    assert case(run).name == "not undone" and world.calls == []
    with pytest.raises(InvalidInput, match="refused for good"):
        settle(run, "resume")
    settle(run, "accept")
    assert runs.get(run.id).status == "failed" and world.calls == []


# --- crashes ---------------------------------------------------------------------------------------


def to_the_end(flow: Any, *, cancel: bool) -> Run:
    run = runs.start(flow, 1)
    for _ in range(12):
        drive()
        row = Run.objects.get(pk=run.id)
        if row.finished_at:
            return row
        found = Wait.objects.filter(run=row, status="open", kind="reconciliation").first()
        if found is not None:
            assert found.name == "in doubt", found.data
            of = Row.objects.get(pk=json.loads(found.data)["effect"])
            there = of.key in world.booked or of.key in [k for _, k in world.undone]
            more: Any = {"external_id": f"id-{of.key}"} if there else {}
            who, answer = people().operator, "confirm" if there else "disprove"
            reconciliation.resolve(found.pk, actor=who, resolution=answer, note="looked", **more)
        elif cancel and not row.cancel_requested_at and row.status == "suspended":
            runs.cancel(row.pk, actor=people().operator, reason="enough", compensate=True)
        clock.shift(timedelta(seconds=40))
    raise AssertionError(f"it does not end: {list(Wait.objects.filter(status='open').values())}")


ALL = (Flight, Hotel, Car)
ENDS = ("fails", "waits", "undoes")
FLOWS = {ends: trip(f"crash-{ends}", *ALL, ends=ends) for ends in ENDS}


@pytest.mark.parametrize("ends", ENDS)
def test_no_crash_while_it_undoes_repeats_or_skips_anything(ends: str) -> None:
    with counted() as passed:
        clean = to_the_end(FLOWS[ends], cancel=ends == "waits")
    assert {"intent_committed", "performing", "receipt_committed"} <= {
        p.partition(":")[0] for p in passed.since()
    }
    assert sum(p.startswith("performed:") for p in passed.since()) == len(ALL)
    for point in passed.since():
        world.clear()
        with crash_at(point):
            run = to_the_end(FLOWS[ends], cancel=ends == "waits")
        assert (run.status, run.error, run.output) == (clean.status, clean.error, clean.output), point
        assert world.order == ["undo.car", "undo.hotel", "undo.flight"], f"{point}: {world.order}"
        assert world.booked == {}, point
        undone = Row.objects.filter(run=run, compensates=None).values_list("status", flat=True)
        assert set(undone) == {"compensated"}, point
