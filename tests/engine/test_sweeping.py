"""What the sweeper finds and settles, and that nothing keeps it from the rest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from approvals import Context, clock, outbox, workflow
from approvals.engine import leases, probes, sweeper
from approvals.engine.loop import Worker
from approvals.errors import IllegalTransition
from approvals.models import Outbox, Run, Wait
from approvals.models import Worker as Row
from approvals.services import reconciliation, runs
from approvals.testing import assert_invariants, crash_at, drive, peer, people, wait_for
from approvals.testing import clock as time_machine
from approvals.transitions import locked
from approvals.transitions import runs as run_events
from approvals.transitions import waits as wait_events
from approvals.types import Receipt
from tests.engine.make import case, kinds
from tests.engine.shop import Blind, Findable, Order, buy_blind, buy_findable, row, settle, status
from tests.transitions import make

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def _rested() -> Iterator[None]:
    """No run rests here because of another test."""
    sweeper._failing.clear()
    yield
    sweeper._failing.clear()


@workflow(name="sweeping.naps", version=1)
def naps(ctx: Context, seconds: int) -> int:
    ctx.sleep("a nap", timedelta(seconds=seconds))
    return seconds


def cancel(run: Any) -> None:
    runs.cancel(run.id, actor=people().operator, reason="no more")


def worked(passes: int) -> None:
    """A worker sweeps and claims so often, whether there is anything or not."""
    worker = Worker(threads=1)
    worker.lease = leases.Lease(known=worker.known)
    for _ in range(passes):
        sweeper.sweep()
        for run in worker._claim(1):
            worker.take(run)
    worker.lease.release()


# --- cancelling what is in doubt ------------------------------------------------------------------


def no_progress_in_doubt() -> Any:
    """A run with a call in doubt, stopped because its workers were lost again and again."""
    run = runs.start(buy_findable, Order())
    with crash_at("performed"):
        drive()
    for _ in range(5):
        with crash_at("claimed"):
            drive()
    drive()
    assert case(run).name == "no progress" and row(run).status == "in_doubt"
    return run


def test_a_run_that_is_to_be_cancelled_waits_at_its_case() -> None:
    with peer(Findable):
        run = no_progress_in_doubt()
        cancel(run)
        before = len(kinds(run))
        worked(5)
        assert status(run) == "suspended" and len(kinds(run)) == before
        settle(run, "resume")
        drive()
        assert status(run) == "cancelled" and row(run).status in ("committed", "verified")
        assert_invariants()


def test_a_run_of_a_version_that_nobody_knows_waits_at_its_case_too() -> None:
    with peer(Findable):
        run = runs.start(buy_findable, Order())
        with crash_at("performed"):
            drive()
        Run.objects.filter(pk=run.id).update(version=9)
        time_machine.shift(timedelta(seconds=70))
        drive()
        drive()
        time_machine.shift(timedelta(seconds=70))
        drive()
        assert case(run).name == "version unknown"
        cancel(run)
        before = len(kinds(run))
        worked(3)
        time_machine.shift(timedelta(seconds=70))
        worked(3)
        assert len(kinds(run)) == before


@pytest.mark.parametrize("at", ["running", "pending", "paused"])
def test_an_operator_fails_only_a_run_that_stands_still(at: str) -> None:
    with peer(Findable):
        run = no_progress_in_doubt()
        worker = make.worker() if at == "running" else None
        Run.objects.filter(pk=run.id).update(status=at, worker=worker)
        with pytest.raises(IllegalTransition):
            settle(run, "fail")
        assert case(run).status == "open"
        Run.objects.filter(pk=run.id).update(status="suspended", worker=None)
        settle(run, "fail")
        assert status(run) == "failed"


def test_what_waits_for_an_operator_keeps_no_other_from_being_cancelled() -> None:
    with peer(Blind, "lose"):
        stuck = runs.start(buy_blind, Order())
        drive()
        assert case(stuck).name == "in doubt"
        cancel(stuck)
        held = runs.start(naps, 60)
        with locked(held.id) as tx:
            run_events.flag_cancel(tx, actor="olaf", reason="no more")
        with mock.patch.object(sweeper, "BATCH", 1):
            assert sweeper.sweep() == 1
        assert (status(held), status(stuck)) == ("cancelled", "suspended")
        assert not run_events.to_cancel().exists()


# --- look-ups --------------------------------------------------------------------------------------


@contextmanager
def looked_up(answer: Callable[[], Any]) -> Iterator[Any]:
    """A run in doubt whose operator asked to look; then the peer answers like this."""
    with peer(Findable, "lose"):
        with mock.patch.object(Findable, "lookup", side_effect=OSError("away")):
            run = runs.start(buy_findable, Order())
            drive()
        with mock.patch.object(Findable, "lookup", side_effect=lambda *asked: answer()):
            reconciliation.ask_to_look(case(run).pk, actor=None)
            yield run


def test_a_peer_that_hangs_keeps_no_sweeper() -> None:
    gate, entered = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        gate.wait(20)

    with looked_up(hang) as run:
        worker = Worker(threads=1)
        worker.start()
        try:
            assert entered.wait(5)
            napping = runs.start(naps, 0)
            wait_for(lambda: status(napping) == "completed", seconds=5)
            assert "probe" not in json.loads(case(run).data)
            gate.set()
            wait_for(lambda: json.loads(case(run).data).get("probe"), seconds=5)
        finally:
            gate.set()
            worker.stop(5)
        assert json.loads(case(run).data)["probe"]["found"] is None and not Outbox.objects.exists()


def test_a_sweep_runs_no_author_code_and_a_worker_without_threads_does() -> None:
    with looked_up(lambda: Receipt("X1")) as run:
        sweeper.sweep()
        assert Outbox.objects.get().attempts == 0
        drive()
        assert json.loads(case(run).data)["probe"]["found"]["external_id"] == "X1"


def test_many_clicks_ask_once() -> None:
    asked: list[int] = []
    with looked_up(lambda: asked.append(1)) as run:
        for _ in range(3):
            reconciliation.ask_to_look(case(run).pk, actor=None)
        assert Outbox.objects.count() == 1
        drive()
        assert asked == [1]
        reconciliation.ask_to_look(case(run).pk, actor=None)
        drive()
        assert asked == [1, 1]


@pytest.mark.parametrize("answer", ["not a receipt", 7])
def test_a_nonsensical_answer_is_shown_and_ends_the_look_up(answer: Any) -> None:
    with looked_up(lambda: answer) as run:
        assert probes.work_off() == 1
        assert "problem" in json.loads(case(run).data)["probe"] and not Outbox.objects.exists()


def test_a_case_that_was_settled_meanwhile_is_not_looked_up() -> None:
    with looked_up(lambda: pytest.fail("nobody needs to know")) as run:
        settle(run, "fail")
        assert probes.work_off() == 1 and not Outbox.objects.exists()


# --- one that fails keeps no others --------------------------------------------------------------


def test_a_run_whose_deadline_cannot_be_applied_keeps_no_other() -> None:
    bad, good = runs.start(naps, 1), runs.start(naps, 2)
    drive()
    time_machine.shift(timedelta(seconds=3))
    apply, tried = wait_events.apply_due, []

    def fails(tx: Any) -> Any:
        if tx.run.pk == bad.id:
            tried.append(1)
            raise RuntimeError("its policy cannot be read")
        return apply(tx)

    with mock.patch.object(wait_events, "apply_due", fails), mock.patch.object(sweeper, "BATCH", 1):
        for _ in range(10):
            sweeper._apply_due()
    assert (status(bad), status(good)) == ("suspended", "pending") and len(tried) == 2
    sweeper._failing = {key: (times, 0.0) for key, (times, _) in sweeper._failing.items()}
    drive()
    assert status(bad) == "completed" and not sweeper._failing
    assert_invariants()


def test_a_known_version_keeps_no_unknown_one_from_being_shown() -> None:
    known, unknown = runs.start(naps, 1), runs.start(naps, 1)
    Run.objects.filter(pk=unknown.id).update(version=9)
    time_machine.shift(timedelta(seconds=61))
    lease = leases.Lease(known=[("sweeping.naps", 1), ("odd", 1)])
    with mock.patch.object(sweeper, "BATCH", 1):
        assert sweeper._strand() == 1
    lease.release()
    assert status(known) == "pending" and case(unknown).name == "version unknown"


def test_a_version_that_is_known_again_wakes_its_runs_and_no_others() -> None:
    back, gone = runs.start(naps, 1), runs.start(naps, 1)
    Run.objects.filter(pk=gone.id).update(version=9)
    time_machine.shift(timedelta(seconds=61))
    other = leases.Lease(known=[("odd", 1)])
    assert sweeper._strand() == 2 and sweeper._heal() == 0
    assert {case(back).name, case(gone).name} == {"version unknown"}
    other.release()
    knows = leases.Lease(known=[("sweeping.naps", 1)])
    assert (sweeper._heal(), sweeper._heal()) == (1, 0)
    knows.release()
    assert (status(back), status(gone)) == ("pending", "suspended")
    assert Wait.objects.get(run=back.id).outcome == "known again" and case(gone).status == "open"
    Run.objects.filter(pk=gone.id).update(version=1)
    drive()
    time_machine.shift(timedelta(seconds=2))
    drive()
    assert (status(back), status(gone)) == ("completed", "completed")
    assert_invariants()


def test_an_outbox_row_that_fails_is_kept_and_tried_less_and_less_often() -> None:
    outbox.put(Outbox.Kind.CHILD_ENDED, clock.new_id())
    outbox.put(Outbox.Kind.CANCEL_CHILD, clock.new_id())
    assert sweeper._outbox() == 2
    pauses = []
    for attempt in range(1, 4):
        found = Outbox.objects.get()
        assert (found.kind, found.attempts) == ("child_ended", attempt)
        pauses.append((found.due_at - clock.now()).total_seconds())
        assert sweeper._outbox() == 0, "it is not due"
        time_machine.shift(found.due_at - clock.now() + timedelta(seconds=1))
        assert sweeper._outbox() == 1
    assert [round(p) for p in pauses] == [2, 4, 8]


# --- its own sign of life ------------------------------------------------------------------------


def test_a_sweep_is_noted_and_not_each_time() -> None:
    worker = Worker(threads=1)
    worker.lease = leases.Lease(known=worker.known)
    worker._note_sweep()
    noted = Row.objects.get().swept_at
    assert noted is not None
    worker._note_sweep()
    assert Row.objects.get().swept_at == noted
    worker._noted_sweep -= 5
    worker._note_sweep()
    again = Row.objects.get().swept_at
    assert again is not None and again > noted
    worker.lease.release()
