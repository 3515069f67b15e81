"""When nobody knows what the peer did: look-ups, redispatch, deadlines, and an operator's word."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from unittest import mock

import pytest
from django.db import OperationalError

from approvals import Context, Effect, Receipt, Unknown, workflow
from approvals.errors import IllegalTransition, InvalidInput
from approvals.limits import limits
from approvals.services import runs
from approvals.testing import assert_invariants, crash_at, decide, drive, peer, pending, people
from approvals.transitions import effects as events
from tests.engine.make import case, kinds
from tests.engine.shop import (
    Blind,
    Findable,
    GuardedBlind,
    Order,
    answers,
    buy_blind,
    buy_findable,
    buy_guarded_blind,
    later,
    lose_it,
    row,
    settle,
    status,
)

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grace of ten minutes: a second of a loaded machine decides nothing."""
    given = replace(limits(), effect_grace_seconds=600)
    monkeypatch.setattr(events, "limits", lambda: given)


def test_an_unknown_exception_is_settled_at_once_by_look_up() -> None:
    with peer(Findable, "lose") as shop:
        run = runs.start(buy_findable, Order())
        assert drive() == 1, "in the same turn"
        assert status(run) == "completed" and len(shop.requests) == 1
        assert [k for k in kinds(run) if k[:8] in ("effect.d", "effect.c")] == [
            "effect.dispatch",
            "effect.doubt",
            "effect.confirm",
        ]
        assert_invariants()


def test_a_blind_peer_asks_an_operator_and_confirm_needs_evidence() -> None:
    with peer(Blind, "lose") as shop:
        run = runs.start(buy_blind, Order())
        drive()
        told = json.loads(case(run).data)
        assert case(run).name == "in doubt" and told["doubt"].startswith("ConnectionError")
        assert told["effect"] == str(row(run).pk) and "not_before" in told
        with pytest.raises(InvalidInput):
            settle(run, "confirm")
        settle(run, "confirm", external_id="x9", checksum="c9", evidence={"seen": "by me"})
        drive()
        found = row(run)
        assert (found.external_id, found.checksum, json.loads(found.evidence)) == (
            "x9",
            "c9",
            {"seen": "by me"},
        )
        assert runs.get(run.id).output == "A×1 x9" and len(shop.calls) == 1
        assert_invariants()


@pytest.mark.usefixtures("long_grace")
def test_an_operator_cannot_disprove_before_deadline_and_grace() -> None:
    with peer(Blind, "late") as shop:
        run = runs.start(buy_blind, Order())
        drive()
        with pytest.raises(IllegalTransition):
            settle(run, "disprove")
        assert case(run).status == "open" and row(run).status == "in_doubt"
        later(seconds=500)
        with pytest.raises(IllegalTransition):
            settle(run, "disprove")
        later(seconds=150)
        shop.waiting.clear()
        shop.mode = "apply"
        settle(run, "disprove")
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1 and len(set(shop.calls)) == 1
        assert_invariants()


def test_an_operator_fails_a_run_in_doubt() -> None:
    with peer(Blind, "lose"):
        run = runs.start(buy_blind, Order())
        drive()
        settle(run, "fail")
        drive()
        assert status(run) == "failed"
        assert_invariants()


@pytest.mark.usefixtures("long_grace")
def test_nothing_there_is_believed_only_after_a_second_look_past_the_grace() -> None:
    """CASES 23: the peer's work lands after the caller died and the first look-up said no."""
    with peer(Findable, "late") as shop:
        run = runs.start(buy_findable, Order())
        with crash_at("performing"):
            drive()
        drive()
        assert status(run) == "suspended" and row(run).status == "in_doubt"
        later(seconds=500)
        assert row(run).status == "in_doubt" and shop.calls == []
        shop.apply(Order(), row(run).key)  # lands now, before the grace is over
        later(seconds=150)
        assert status(run) == "completed" and shop.calls == [] and len(shop.requests) == 1
        assert_invariants()


def test_nothing_there_twice_is_performed_again_under_the_same_key() -> None:
    with peer(Findable) as shop:
        run = runs.start(buy_findable, Order())
        with crash_at("performing"):
            drive()
        drive()
        assert status(run) == "suspended"
        later(seconds=36)
        assert status(run) == "completed"
        assert shop.calls == [f"{run.id}-1-1"]
        assert_invariants()


def test_a_look_up_that_cannot_tell_asks_a_person() -> None:
    with peer(Findable, "lose") as shop:
        with mock.patch.object(Findable, "lookup", side_effect=Unknown("away")):
            run = runs.start(buy_findable, Order())
            drive()
        told = json.loads(case(run).data)
        assert case(run).name == "in doubt" and "away" in told["reason"]
        settle(run, "confirm", external_id="x")
        drive()
        assert status(run) == "completed" and len(shop.calls) == 1
        assert_invariants()


def test_a_peer_that_never_keeps_anything_is_not_called_for_ever() -> None:
    with peer(Findable), answers(Findable, *[RuntimeError("boom")] * 99) as keys:
        run = runs.start(buy_findable, Order())
        drive()
        for _ in range(8):
            later(seconds=40)
        assert case(run).name == "in doubt" and 2 <= len(keys) <= 5
        settle(run, "disprove")
        drive()
        assert len(keys) <= 6 and status(run) == "suspended"
        assert_invariants()


def test_a_peer_that_deduplicates_is_performed_again_at_once() -> None:
    with peer(Blind, "deduplicate") as shop:
        run = runs.start(buy_blind, Order())
        with crash_at("performed"):
            drive()
        drive()
        assert status(run) == "completed" and len(shop.calls) == 2 and len(set(shop.calls)) == 1
        assert len(shop.requests) == 1
        assert_invariants()


def test_redispatch_needs_the_whole_guard_again() -> None:
    """The reviewer is gone when the worker that had called died: a person is asked, nothing is sent."""
    who = people()
    with peer(GuardedBlind, "deduplicate") as shop:
        run = runs.start(buy_guarded_blind, Order(), requester=who.requester)
        drive()
        decide(run, who.reviewers[0], "approved")
        with crash_at("performed"):
            drive()
        who.reviewers[0].is_active = False
        who.reviewers[0].save()
        drive()
        assert case(run).name == "in doubt" and "disabled" in json.loads(case(run).data)["reason"]
        assert len(shop.calls) == 1
        later(seconds=40)
        settle(run, "disprove")  # (say that it was undone by hand)
        lose_it(shop, row(run).key)
        drive()
        assert len(pending(run)) == 1 and len(shop.calls) == 1
        decide(run, who.reviewers[1], "approved")
        drive()
        assert status(run) == "completed" and len(shop.calls) == 2
        assert_invariants()


# --- deadlines -------------------------------------------------------------------------------------


def test_a_call_whose_deadline_has_passed_is_not_sent() -> None:
    with peer(Blind) as shop, mock.patch.object(Blind, "deadline", timedelta(0)):
        run = runs.start(buy_blind, Order())
        drive()
        assert shop.calls == [] and row(run).status == "intended"
        assert kinds(run).count("effect.not_sent") == 1
    with peer(Blind) as shop:
        later(seconds=2)
        assert status(run) == "completed" and len(shop.calls) == 1
        assert_invariants()


def test_a_body_is_told_how_long_it_has() -> None:
    told = []

    class Timed(Effect[Order]):
        kind = "shop.timed"
        deadline = timedelta(seconds=7)

        def perform(self, request: Order, key: str) -> Receipt[Order]:
            told.append(self.seconds_left())
            raise ConnectionError("?")

        def lookup(self, request: Order, key: str) -> Receipt[Order]:
            told.append(self.seconds_left())
            return Receipt("x")

    @workflow(name="timed", version=1)
    def timed(ctx: Context, order: Order) -> str:
        return ctx.effect("order", Timed, order).external_id

    assert Timed().seconds_left() == 0
    run = runs.start(timed, Order())
    drive()
    assert status(run) == "completed" and len(told) == 2 and all(6 < t <= 7 for t in told)


# --- doubt and the end of a run --------------------------------------------------------------------


@pytest.mark.parametrize("lands", [True, False])
def test_a_cancelled_run_settles_its_doubt_first_and_sends_nothing(lands: bool) -> None:
    who = people()
    with peer(Findable, "late") as shop:
        run = runs.start(buy_findable, Order(), requester=who.requester)
        drive()
        runs.cancel(run.id, actor=who.requester, reason="no more")
        assert drive() < 5, "no spinning while the grace runs"
        assert status(run) == "suspended" and row(run).status == "in_doubt"
        if lands:
            shop.land()
        shop.mode = "apply"
        later(seconds=60)
        assert status(run) == "cancelled"
        assert row(run).status == ("committed" if lands else "withdrawn") and len(shop.calls) == 1
        assert_invariants()


def test_a_cancel_asked_for_while_the_worker_is_dead_looks_up_and_does_not_run_the_workflow() -> None:
    with peer(Findable) as shop:
        run = runs.start(buy_findable, Order())
        with crash_at("performed"):
            drive()
        runs.cancel(run.id, actor=people().operator, reason="no more")
        with mock.patch.object(buy_findable, "fn", side_effect=AssertionError("workflow code ran")):
            drive()
        assert status(run) == "cancelled" and row(run).status == "committed" and len(shop.requests) == 1
        assert_invariants()


def test_a_cancelled_run_asks_about_a_blind_peer_and_ends_with_the_answer() -> None:
    with peer(Blind, "lose") as shop:
        run = runs.start(buy_blind, Order())
        drive()
        runs.cancel(run.id, actor=people().operator, reason="no more")
        assert drive() < 5
        assert status(run) == "suspended"
        settle(run, "confirm", external_id="x")
        drive()
        assert status(run) == "cancelled" and row(run).status == "committed" and len(shop.calls) == 1
        assert_invariants()


def test_a_pause_while_the_grace_runs_does_not_spin_and_goes_on_after_it() -> None:
    who = people()
    with peer(Findable, "late") as shop:
        run = runs.start(buy_findable, Order())
        drive()
        runs.pause(run.id, actor=who.operator, reason="wait")
        assert drive() < 5
        later(seconds=60)
        assert status(run) == "paused" and len(shop.calls) == 1
        shop.mode = "apply"
        shop.waiting.clear()
        runs.resume(run.id, actor=who.operator)
        later(seconds=60)
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_database_that_does_not_say_whether_to_send_leaves_no_doubt() -> None:
    """Nothing went out: a blind peer is asked anew, and no person."""
    asked = mock.patch.object(events, "may_still_be_sent", side_effect=OperationalError("gone"))
    with peer(Blind) as shop:
        run = runs.start(buy_blind, Order())
        with asked:
            drive()
        assert shop.calls == [] and row(run).status == "intended" and "did not say" in row(run).reason
        later(seconds=60)
        assert status(run) == "completed" and len(shop.requests) == 1
        assert "effect.doubt" not in kinds(run)
        assert_invariants()
