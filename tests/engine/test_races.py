"""Two real connections and a lock that the test holds: who comes first is decided, not hoped for.

Everybody who wants the run queues behind the test's own lock, in the order in which they were started
(PostgreSQL says that each is waiting before the next starts); then the test lets go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import connection, connections, transaction

from approvals import Context, workflow
from approvals import faults as points
from approvals.engine import leases, sweeper
from approvals.engine.loop import Worker
from approvals.engine.turn import Turn
from approvals.errors import AlreadyDecided, IllegalTransition, Leave, RunConflict, WaitClosed
from approvals.models import Approval, Decision, Run, Wait
from approvals.services import decisions, policies, runs
from approvals.testing import assert_invariants, clock, drive, peer, pending, people, wait_for
from approvals.workflows import registry
from tests.engine.shop import Findable, Guarded, Order, buy_findable, buy_guarded, kinds, later, status

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.postgres]


@workflow(name="waits-for-word", version=1)
def waits_for_word(ctx: Context, n: int) -> Any:
    word = ctx.signal("go")
    ctx.now()  # opens it: a wait that opens with its suspension leaves nothing between the two
    return ctx.wait(word).payload


@workflow(name="does-nothing", version=1)
def does_nothing(ctx: Context, n: int) -> int:
    return n


@workflow(name="naps", version=1)
def naps(ctx: Context, n: int) -> int:
    ctx.sleep("an hour", timedelta(hours=1))
    return n


def waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


class Queue:
    """Those who wait behind the test's lock."""

    def __init__(self, pool: ThreadPoolExecutor, release: Callable[[], None]) -> None:
        self.pool, self.release = pool, release
        self.futures: list[Future[Any]] = []

    def add(self, *jobs: Callable[[], Any]) -> None:
        """Starts each, and goes on when it waits for a lock."""
        for job in jobs:
            before = waiting()
            future = self.pool.submit(answered, job)
            wait_for(lambda: waiting() > before or future.done(), seconds=10)  # noqa: B023
            self.futures.append(future)

    def go(self) -> list[Any]:
        """Lets go; what each came to: a value, or the exception."""
        assert waiting() == len([f for f in self.futures if not f.done()]) > 0
        self.release()
        return [f.result(20) for f in self.futures]


def answered(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except (Exception, Leave) as told:
        return told
    finally:
        connections.close_all()


@contextmanager
def held(sql: str, *values: Any) -> Iterator[Queue]:
    """Holds what the statement locks, on a connection of its own."""
    own = connections.create_connection("default")
    own.inc_thread_sharing()
    try:
        own.set_autocommit(False)
        with own.cursor() as cursor:
            cursor.execute(sql, values)
        with ThreadPoolExecutor(32) as pool:
            yield Queue(pool, own.rollback)
            own.rollback()
    finally:
        own.close()


def held_run(run: Any) -> Any:
    return held("SELECT id FROM approvals_run WHERE id = %s FOR UPDATE", run.id)


class Holder:
    """A worker's turn of one run, which can be held up at a crash point."""

    def __init__(self, run: Any) -> None:
        self.worker = Worker()
        self.worker.lease = leases.Lease(known=self.worker.known)
        (self.claimed,) = self.worker._claim(1)
        assert self.claimed.pk == run.id
        self.turn: Turn | None = None
        self.reached, self.let_go = threading.Event(), threading.Event()

    def execute(self) -> Any:
        self.turn = Turn(self.claimed, registry.resolve(self.claimed.workflow, self.claimed.version))
        self.turn.execute()
        return self.turn.leaving

    @contextmanager
    def up_to(self, point: str) -> Iterator[Future[Any]]:
        """Its turn runs in a thread and is held up at a point, until `let_go`."""
        reach = points.reach

        def held_up(at: str) -> None:
            reach(at)
            if at == point and threading.current_thread().name.startswith("holder"):
                self.reached.set()
                assert self.let_go.wait(20)

        with (
            mock.patch.object(points, "reach", held_up),
            ThreadPoolExecutor(1, thread_name_prefix="holder") as pool,
        ):
            future = pool.submit(answered, self.execute)
            try:
                assert self.reached.wait(10)
                yield future
            finally:
                self.let_go.set()

    def done(self) -> None:
        assert self.worker.lease is not None
        self.worker.lease.release()


@pytest.fixture
def who() -> Any:
    return people()


def both(first: Any, second: Any, swap: bool) -> tuple[Any, Any]:
    return (second, first) if swap else (first, second)


def as_named(queue: Queue, swap: bool) -> tuple[Any, Any]:
    """Lets go; the two answers in the order of the test's name."""
    first, second = queue.go()
    return both(first, second, swap)


swapped = pytest.mark.parametrize("swap", [False, True], ids=["as named", "swapped"])


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


# --- ends ------------------------------------------------------------------------------------------


@swapped
@pytest.mark.parametrize("flow", [does_nothing, buy_findable], ids=["touched nothing", "with an effect"])
def test_cancel_against_finish(who: Any, flow: Any, swap: bool) -> None:
    """CASES 18: one final state, for good."""
    with peer(Findable):
        run = runs.start(flow, 1 if flow is does_nothing else Order(), requester=who.requester)
        holder = Holder(run)
        with holder.up_to("before_complete") as turn, held_run(run) as queue:

            def finish() -> Any:
                holder.let_go.set()
                return turn.result(20)

            cancel = lambda: runs.cancel(run.id, actor=who.requester, reason="no more")  # noqa: E731
            queue.add(*both(finish, cancel, swap))
            _, told = as_named(queue, swap)
        assert status(run) == ("cancelled" if swap else "completed")
        assert told is None if swap else isinstance(told, IllegalTransition)
        holder.done()
        drive()
        later(hours=1)
        assert status(run) == ("cancelled" if swap else "completed")
        assert sum(k in ("run.complete", "run.cancel", "run.fail") for k in kinds(run)) == 1
        assert_invariants()


@swapped
def test_a_receipt_and_the_sweeper_that_takes_the_run(swap: bool) -> None:
    with peer(Findable) as shop:
        run = runs.start(buy_findable, Order())
        holder = Holder(run)
        with holder.up_to("performed") as turn, held_run(run) as queue:
            assert holder.worker.lease is not None
            clock.shift(timedelta(seconds=20))

            def commit() -> Any:
                holder.let_go.set()
                return turn.result(20)

            queue.add(*both(commit, sweeper.sweep, swap))
            queue.go()
        holder.worker.lease.drop_locks()
        drive()
        later(seconds=60)
        assert status(run) == "completed" and len(shop.calls) == 1
        assert ("effect.doubt" in kinds(run)) is swap
        assert_invariants()


# --- starts and claims -----------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [False, True], ids=["the first gives up", "the first commits"])
def test_twenty_simultaneous_starts_with_one_key(commits: bool) -> None:
    """CASES 50: they all wait for the one that holds the key."""
    started, go = threading.Event(), threading.Event()

    def first() -> Any:
        with transaction.atomic():
            mine = runs.start(does_nothing, 1, key="one")
            started.set()
            assert go.wait(30)
            transaction.set_rollback(not commits)
        return mine

    with ThreadPoolExecutor(22) as pool:
        mine = pool.submit(answered, first)
        assert started.wait(10)
        futures = [pool.submit(answered, lambda: runs.start(does_nothing, 1, key="one")) for _ in range(20)]
        other = pool.submit(answered, lambda: runs.start(does_nothing, 2, key="one")) if commits else None
        try:
            wait_for(lambda: waiting() >= 20, seconds=20)
        finally:
            go.set()
        found = {f.result(20).id for f in futures}
        assert other is None or isinstance(other.result(20), RunConflict)
        assert not commits or found == {mine.result(20).id}
    assert len(found) == 1 == Run.objects.count()
    drive()
    assert_invariants()


def test_a_run_that_is_being_claimed_is_passed_over() -> None:
    first, second = runs.start(does_nothing, 1), runs.start(does_nothing, 2)
    worker = Worker()
    worker.lease = leases.Lease(known=worker.known)
    with held_run(first):
        assert [r.pk for r in worker._claim(2)] == [second.id], "without waiting for the other"
    assert [r.pk for r in worker._claim(2)] == [first.id]
    worker.lease.drop_locks()


def test_claims_by_many_workers_give_no_run_to_two() -> None:
    for n in range(60):
        runs.start(does_nothing, n)
    barrier = threading.Barrier(6)

    def claims() -> list[Any]:
        worker = Worker()
        worker.lease = leases.Lease(known=worker.known)
        barrier.wait(10)
        found: list[Any] = []
        while batch := worker._claim(3):
            assert len(batch) <= 3
            found += [run.pk for run in batch]
        worker.lease.drop_locks()
        return found

    with ThreadPoolExecutor(6) as pool:
        found = [
            pk for future in [pool.submit(answered, claims) for _ in range(6)] for pk in future.result(20)
        ]
    assert len(found) == len(set(found)) == 60
    assert set(Run.objects.values_list("fence", flat=True)) == {1}


def test_a_worker_stopped_in_a_transaction_keeps_its_run_from_the_sweeper_and_no_other() -> None:
    """The sweeper of a worker waits for a lock for a while only."""
    stuck, free = runs.start(naps, 1), runs.start(naps, 2)
    drive()
    clock.shift(timedelta(hours=2))
    with mock.patch("approvals.engine.loop._LOCK_SECONDS", 1), held_run(stuck):
        worker = Worker(threads=1)
        worker.start()
        try:
            wait_for(lambda: status(free) == "completed", seconds=10)
            assert status(stuck) == "suspended"
        finally:
            worker.stop(5)
    drive()
    assert status(stuck) == "completed"
    assert_invariants()
