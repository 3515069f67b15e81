"""Signals, decisions and deadlines that come at the same moment: one wins, and each is told the truth."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from approvals import Context, workflow
from approvals.engine import sweeper
from approvals.errors import AlreadyDecided, WaitClosed
from approvals.models import Approval, Decision, Wait
from approvals.services import decisions, policies, runs
from approvals.testing import assert_invariants, clock, drive, peer, pending
from tests.engine.make import kinds
from tests.engine.racing import Holder, as_named, both, held_run, swapped
from tests.engine.shop import Guarded, Order, buy_guarded, later, status

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.postgres]


@workflow(name="waits-for-word", version=1)
def waits_for_word(ctx: Context, n: int) -> Any:
    word = ctx.signal("go")
    ctx.now()  # opens it: a wait that opens with its suspension leaves nothing between the two
    return ctx.wait(word).payload


# --- signals ---------------------------------------------------------------------------------------


@swapped
def test_a_signal_comes_while_its_wait_is_opened(swap: bool) -> None:
    """CASES 1."""
    run = runs.start(waits_for_word, 1)
    holder = Holder(run)
    with held_run(run) as queue:
        queue.add(*both(holder.execute, lambda: runs.signal(run.id, "go", "word", message_id="m"), swap))
        queue.go()
    holder.done()
    drive()
    assert runs.get(run.id).output == "word" and kinds(run).count("wait.resolve") == 1
    assert_invariants()


@swapped
def test_a_signal_comes_between_is_there_one_and_i_suspend(swap: bool) -> None:
    """CASES 1."""
    run = runs.start(waits_for_word, 1)
    holder = Holder(run)
    with holder.up_to("before_suspend") as turn, held_run(run) as queue:

        def suspend() -> Any:
            holder.let_go.set()
            return turn.result(20)

        queue.add(*both(suspend, lambda: runs.signal(run.id, "go", "word", message_id="m"), swap))
        left, _ = as_named(queue, swap)
    assert type(left).__name__ == ("Yielded" if swap else "Suspended")
    holder.done()
    drive()
    assert runs.get(run.id).output == "word" and kinds(run).count("wait.resolve") == 1
    assert_invariants()


def test_twenty_senders_of_one_message_are_heard_once() -> None:
    run = runs.start(waits_for_word, 1)
    drive()
    with held_run(run) as queue:
        queue.add(*[lambda: runs.signal(run.id, "go", "word", message_id="m")] * 20)
        assert queue.go() == [None] * 20
    drive()
    assert runs.get(run.id).output == "word" and kinds(run).count("wait.resolve") == 1
    assert_invariants()


# --- decisions -------------------------------------------------------------------------------------


def asked(who: Any, **policy: Any) -> tuple[Any, Any]:
    """A run that waits for a decision, and what a reviewer sees."""
    if policy:
        policies.load({"slug": "races", "effects": ["shop.guarded"], **policy})
    run = runs.start(buy_guarded, Order(), requester=who.requester)
    drive()
    if policy:
        mine = Approval.objects.get(wait__run=run.id, policy__slug="one-reviewer").wait
        decisions.decide(mine.pk, actor=who.reviewers[0], outcome="approved", digest=pending(run)[0].digest)
    (one,) = pending(run)
    return run, one


def decide(one: Any, actor: Any, outcome: str = "approved") -> Callable[[], Any]:
    return lambda: decisions.decide(one.id, actor=actor, outcome=outcome, digest=one.digest)


STAGES = {"rules": [{"stages": [{"needed": 1, "from": ["group:reviewers"]}]}]}
TWO = {"rules": [{"stages": [{"needed": 2, "from": ["group:reviewers"]}]}]}


@swapped
def test_a_decision_and_its_deadline(who: Any, swap: bool) -> None:
    """CASES 6: the click came before the deadline, the lock after it. Time has decided; everybody hears the same."""
    with peer(Guarded) as shop:
        run, one = asked(who, **STAGES, respond_within="1h")
        with held_run(run) as queue:
            queue.add(decide(one, who.reviewers[0]))
            clock.shift(timedelta(hours=1))
            queue.add(sweeper.sweep)
            if swap:
                queue.add(decide(one, who.reviewers[1]))
            told = queue.go()
        for answer in (told[0], *told[2:]):
            assert isinstance(answer, WaitClosed) and answer.outcome == "expired", answer
        drive()
        assert status(run) == "failed" and shop.calls == [] and Decision.objects.count() == 1
        assert Wait.objects.get(pk=one.id).outcome == "expired"
        assert_invariants()


def test_a_decision_before_its_deadline_stands(who: Any) -> None:
    with peer(Guarded) as shop:
        run, one = asked(who, **STAGES, respond_within="1h")
        clock.shift(timedelta(minutes=59))
        with held_run(run) as queue:
            queue.add(decide(one, who.reviewers[0]))
            queue.go()
        later(minutes=5)
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


@swapped
def test_two_reviewers_of_two_at_once(who: Any, swap: bool) -> None:
    """CASES 37."""
    with peer(Guarded) as shop:
        run, one = asked(who, **TWO)
        with held_run(run) as queue:
            queue.add(*both(decide(one, who.reviewers[0]), decide(one, who.reviewers[1]), swap))
            first, second = queue.go()
        assert (first.status, first.got, second.status, second.got) == ("open", 1, "resolved", 2)
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert kinds(run).count("run.wake") == 1
        assert_invariants()


def test_a_double_click_is_one_decision_and_both_are_told_the_same(who: Any) -> None:
    """CASES 36."""
    run, one = asked(who)
    with peer(Guarded) as shop, held_run(run) as queue:
        queue.add(*[decide(one, who.reviewers[0])] * 5)
        answers = queue.go()
        assert len({repr(a) for a in answers}) == 1 and answers[0].result == "approved"
        assert Decision.objects.count() == 1
        drive()
        assert len(shop.requests) == 1
        assert_invariants()


@swapped
def test_approve_against_reject(who: Any, swap: bool) -> None:
    """CASES 36: the loser is told who won, and when."""
    with peer(Guarded) as shop:
        run, one = asked(who)
        yes, no = decide(one, who.reviewers[0]), decide(one, who.reviewers[1], "rejected")
        with held_run(run) as queue:
            queue.add(*both(yes, no, swap))
            won, lost = queue.go()
        winner = Decision.objects.get()
        assert won.result == winner.outcome == ("rejected" if swap else "approved")
        assert isinstance(lost, AlreadyDecided)
        assert (lost.outcome, lost.by, lost.at) == (winner.outcome, winner.reviewer_name, winner.at)
        drive()
        assert len(shop.requests) == (0 if swap else 1)
        assert status(run) == ("failed" if swap else "completed")
        assert_invariants()


@swapped
def test_a_decision_and_a_cancel(who: Any, swap: bool) -> None:
    with peer(Guarded) as shop:
        run, one = asked(who)
        cancel = lambda: runs.cancel(run.id, actor=who.requester, reason="no more")  # noqa: E731
        with held_run(run) as queue:
            queue.add(*both(decide(one, who.reviewers[0]), cancel, swap))
            decided, cancelled = as_named(queue, swap)
        assert cancelled is None
        if swap:
            assert isinstance(decided, WaitClosed)
        drive()
        assert status(run) == "cancelled" and shop.calls == []
        assert_invariants()
