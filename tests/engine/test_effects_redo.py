"""What was there and is gone: an operator has it done again, under a new key and the same guard."""

from __future__ import annotations

from typing import Any

import pytest

from approvals import CHANGED, MATCH, Context, workflow
from approvals.errors import IllegalTransition
from approvals.services import runs
from approvals.testing import assert_invariants, crash_at, decide, drive, peer, pending, people
from tests.engine.make import case
from tests.engine.shop import Guarded, Order, Verifiable, bought, later, lose_it, reads, row, settle, status

pytestmark = pytest.mark.usefixtures("engine")


def test_redo_is_only_for_what_is_gone() -> None:
    with peer(Verifiable):
        run = bought()
        with reads(CHANGED):
            runs.signal(run.id, "go", 1)
            drive()
        with pytest.raises(IllegalTransition):
            settle(run, "redo")
        assert row(run).generation == 1 and case(run).status == "open"
        assert_invariants()


def test_redo_performs_again_under_a_new_key_and_replay_answers_the_first_receipt() -> None:
    with peer(Verifiable) as shop:
        run = bought()
        first = row(run).key
        lose_it(shop, first)
        runs.signal(run.id, "go", 1)
        drive()
        settle(run, "redo")
        with crash_at("performing"):
            drive()
        drive()
        later(seconds=60)
        assert status(run) == "completed"
        assert shop.keys == [f"{run.id}-1-2"] and row(run).generation == 2
        assert runs.get(run.id).output == f"peer:{first} None {first}"
        assert_invariants()


@pytest.mark.parametrize("crash", ["intent_committed", "performing", "performed", "receipt_committed"])
def test_redo_survives_a_crash(crash: str) -> None:
    with peer(Verifiable) as shop:
        run = bought()
        lose_it(shop, row(run).key)
        runs.signal(run.id, "go", 1)
        drive()
        settle(run, "redo")
        with crash_at(crash):
            drive()
        drive()
        later(seconds=60)
        assert status(run) == "completed" and shop.keys == [f"{run.id}-1-2"]
        assert_invariants()


@workflow(name="buy-guarded-then-wait", version=1)
def guarded_then_wait(ctx: Context, order: Order) -> str:
    receipt = ctx.effect("order", Guarded, order, title="Order it")
    ctx.wait(ctx.signal("go"))
    return receipt.external_id


class TestRedoGuarded:
    @pytest.fixture(autouse=True)
    def _verify(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guarded orders can be verified here."""

        def verify(self: Any, receipt: Any) -> Any:
            return MATCH

        monkeypatch.setattr(Guarded, "verify", verify)

    def gone(self, shop: Any) -> Any:
        who = people()
        run = runs.start(guarded_then_wait, Order(), requester=who.requester)
        drive()
        decide(run, who.reviewers[0], "approved")
        drive()
        lose_it(shop, row(run).key)
        runs.signal(run.id, "go", 1)
        drive()
        settle(run, "redo")
        drive()
        return run

    def test_it_asks_again(self) -> None:
        with peer(Guarded) as shop:
            run = self.gone(shop)
            assert shop.keys == [] and len(pending(run)) == 1 and row(run).status == "intended"
            decide(run, people().reviewers[1], "approved")
            drive()
            assert shop.keys == [f"{run.id}-1-2"] and status(run) == "completed"
            assert_invariants()

    def test_a_rejection_is_not_passed_over_in_silence(self) -> None:
        with peer(Guarded) as shop:
            run = self.gone(shop)
            decide(run, people().reviewers[1], "rejected")
            drive()
            assert shop.keys == [] and case(run).name == "not done again"
            settle(run, "resume")
            drive()
            assert status(run) == "completed", "the operator said that it may go on without"
            assert_invariants()


def test_redo_that_the_peer_refuses_goes_to_an_operator() -> None:
    with peer(Verifiable) as shop:
        run = bought()
        lose_it(shop, row(run).key)
        runs.signal(run.id, "go", 1)
        drive()
        shop.mode = "refuse"
        settle(run, "redo")
        drive()
        assert case(run).name == "not done again" and row(run).status == "refused"
        settle(run, "fail")
        assert status(run) == "failed"
        assert_invariants()
