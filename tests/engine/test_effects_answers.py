"""What the peer said: NotSent and its retries, Refused, and words that cannot be stored."""

from __future__ import annotations

from datetime import timedelta
from unittest import mock

import pytest

from approvals import Context, NotSent, Receipt, Refused, workflow
from approvals.errors import EffectRefused, StepFailed
from approvals.models import Wait
from approvals.services import runs
from approvals.testing import assert_invariants, crash_at, drive, peer
from tests.engine.make import case, kinds
from tests.engine.shop import (
    Blind,
    Once,
    Order,
    answers,
    buy_blind,
    buy_once,
    error,
    later,
    row,
    settle,
    status,
)

pytestmark = pytest.mark.usefixtures("engine")


DOWN = NotSent("the shop is closed")


@workflow(name="buy-or-not", version=1)
def buy_or_not(ctx: Context, order: Order) -> str:
    """Catches what authors may catch, and goes on: replay must find the same."""
    try:
        ctx.effect("first", Blind, order)
    except (StepFailed, EffectRefused) as told:
        ctx.sleep("a while", timedelta(seconds=5))
        return f"{type(told).__name__}: {told}"
    return "bought"


# --- NotSent ---------------------------------------------------------------------------------------


def test_not_sent_is_tried_again_on_timers_and_then_fails() -> None:
    with peer(Blind) as shop, answers(Blind, *[DOWN] * 9) as keys:
        run = runs.start(buy_or_not, Order())
        drive()
        assert status(run) == "suspended" and row(run).status == "intended" and row(run).sends == 0
        timer = Wait.objects.get(run=run.id, status="open")
        assert timer.kind == "timer"
        drive()
        assert len(keys) == 1, "the timer has not fired yet"
        later(seconds=2)
        assert len(keys) == 2
        later(seconds=1)
        assert len(keys) == 2, "the second pause is longer"
        later(seconds=2)
        assert len(keys) == 3 and len(set(keys)) == 1
        found = row(run)
        assert (found.status, found.attempts, found.sends) == ("withdrawn", 3, 0)
        at = kinds(run)
        assert at[at.index("effect.withdraw") - 1] == "effect.not_sent"
        later(seconds=6)
        assert runs.get(run.id).output == "StepFailed: 'first' could not be sent: the shop is closed"
        assert shop.requests == [] and len(keys) == 3
        assert_invariants()


def test_the_withdrawal_is_in_the_transaction_of_the_last_attempt() -> None:
    with peer(Once), answers(Once, DOWN):
        run = runs.start(buy_once, Order())
        with mock.patch("approvals.transitions.effects.withdraw", side_effect=RuntimeError("no")):
            drive()
        assert "effect.not_sent" not in kinds(run)
        assert row(run).status == "in_doubt", "a stopped run has nothing dispatched"
        assert_invariants()


def test_not_sent_uncaught_fails_the_run() -> None:
    with peer(Once), answers(Once, DOWN):
        run = runs.start(buy_once, Order())
        drive()
        assert (status(run), error(run), row(run).status) == ("failed", "StepFailed", "withdrawn")
        assert_invariants()


def test_not_sent_after_an_unresolved_send_is_doubt() -> None:
    with peer(Blind, "deduplicate") as shop, answers(Blind, "lose", DOWN):
        run = runs.start(buy_blind, Order())
        drive()
        assert row(run).status == "in_doubt" and status(run) == "suspended"
        assert "effect.withdraw" not in kinds(run) and "effect.not_sent" not in kinds(run)
        later(seconds=5)
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_a_peer_that_stays_away_after_a_crash_is_not_hammered_and_a_person_is_asked() -> None:
    with peer(Blind, "deduplicate") as shop, answers(Blind, "apply", *[DOWN] * 50) as keys:
        run = runs.start(buy_blind, Order())
        with crash_at("performed"):
            drive()
        drive()
        assert len(keys) <= 3
        for _ in range(6):
            later(seconds=60)
        assert case(run).name == "in doubt" and len(keys) <= 5 and len(shop.requests) == 1
        settle(run, "confirm", external_id="x")
        drive()
        assert status(run) == "completed"
        assert_invariants()


# --- Refused ---------------------------------------------------------------------------------------


def test_a_refusal_is_raised_alike_on_replay() -> None:
    with peer(Blind, "refuse"):
        run = runs.start(buy_or_not, Order())
        drive()
        assert row(run).status == "refused" and status(run) == "suspended"
        later(seconds=6)
        assert runs.get(run.id).output == "EffectRefused: 'first' was refused: the peer refused"
        assert_invariants()


def test_a_refusal_after_an_unresolved_send_is_not_believed() -> None:
    with peer(Blind, "deduplicate") as shop, answers(Blind, "lose", *[Refused("no such order")] * 9):
        run = runs.start(buy_blind, Order())
        drive()
        assert row(run).status == "in_doubt"
        for _ in range(4):
            later(seconds=60)
        assert row(run).status == "in_doubt" and case(run).name == "in doubt"
        assert "effect.refuse" not in kinds(run) and len(shop.requests) == 1
        settle(run, "confirm", external_id="x")
        drive()
        assert status(run) == "completed"
        assert_invariants()


@pytest.mark.parametrize("word", ["a\x00b", "half \ud800 pair", ""])
def test_any_word_of_a_peer_can_be_stored(word: str) -> None:
    with peer(Blind), answers(Blind, Refused(word)):
        run = runs.start(buy_blind, Order())
        drive()
        assert error(run) == "EffectRefused"
    with peer(Blind), answers(Blind, RuntimeError(word)):
        run = runs.start(buy_blind, Order())
        drive()
        assert case(run).name == "in doubt"
        assert_invariants()


@pytest.mark.parametrize(
    "receipt",
    [Receipt("a\x00b"), Receipt("x", checksum="\ud800"), Receipt("x", evidence={"a": object()}), "x"],
)
def test_a_receipt_that_cannot_be_stored_is_doubt_and_never_a_dispatched_effect(receipt: object) -> None:
    with peer(Blind), answers(Blind, lambda request, key: receipt):
        run = runs.start(buy_blind, Order())
        drive()
        assert row(run).status == "in_doubt" and case(run).name == "in doubt"
        assert_invariants()
