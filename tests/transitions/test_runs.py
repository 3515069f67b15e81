"""Events of a run: what each does where it may happen, and that it does nothing where it may not."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from approvals import clock
from approvals.errors import IllegalTransition, LeaseLost, NotFound
from approvals.models import Effect, Entry, Outbox, Run, Wait
from approvals.states import STATUSES, next_state
from approvals.transitions import Held, NewEntry, Transaction, claim, create, locked, record, runs
from tests.transitions import make

pytestmark = pytest.mark.django_db


def _case(tx: Transaction) -> Wait:
    return Wait(position=1, kind="reconciliation", name="crashed", opened_at=tx.now)


DO = {
    "suspend": lambda tx: runs.suspend(tx, [(make.wait(tx.run).pk, Wait.KEEP)]),
    "yield": runs.yield_,
    "lose_lease": lambda tx: runs.lose_lease(tx, why="gone"),
    "wake": lambda tx: runs.wake(tx, losers=True),
    "strand": lambda tx: runs.strand(tx, _case(tx)),
    "stop": lambda tx: runs.stop(tx, _case(tx)),
    "pause": lambda tx: runs.pause(tx, actor="olaf", reason="hm"),
    "unwind": runs.unwind,
    "resume": lambda tx: runs.resume(tx, actor="olaf"),
    "complete": lambda tx: runs.complete(tx, output="2"),
    "fail": lambda tx: runs.fail(tx, type="Failed", message="no", code="failed"),
    "cancel": runs.cancel,
}
PAIRS = [(status, event) for status in STATUSES["run"] for event in DO]
LEGAL = [pair for pair in PAIRS if next_state("run", *pair)]
ILLEGAL = [pair for pair in PAIRS if not next_state("run", *pair)]


@pytest.mark.parametrize(("status", "event"), LEGAL)
def test_a_legal_event_moves_the_run_and_is_its_entry(status, event):
    run = make.run(status)
    with locked(run.pk) as tx:
        DO[event](tx)
    after = Run.objects.get(pk=run.pk)
    assert after.status == next_state("run", status, event)
    assert (after.worker_id is not None) == (after.status == "running")
    assert (after.finished_at is not None) == (after.status in ("completed", "failed", "cancelled"))
    kinds = list(Entry.objects.filter(run=run).order_by("seq").values_list("kind", flat=True))
    assert f"run.{event}" in kinds and after.seq == 1 + len(kinds)
    assert after.fence == run.fence


@pytest.mark.parametrize(("status", "event"), ILLEGAL)
def test_an_illegal_event_is_refused_and_changes_nothing(status, event):
    run = make.run(status)
    before = make.everything()
    with pytest.raises(IllegalTransition), locked(run.pk) as tx:
        DO[event](tx)
    assert make.everything() == before


def test_start_makes_a_pending_run_with_its_first_entry_once_per_key():
    def made() -> Run:
        now = clock.now()
        run = Run(workflow="odd", version=1, key="k", input="1", ready_at=now, created_at=now)
        run.seed = run.pk
        return run

    with transaction.atomic():
        assert create(made(), requester="rita")
        assert not create(made(), requester="rita")
    run = Run.objects.get()
    assert (run.status, run.seq, run.fence) == ("pending", 1, 0)
    assert list(Entry.objects.values_list("seq", "kind")) == [(1, "run.start")]


def test_claim_takes_ripe_runs_of_known_versions_the_longest_waiting_first():
    worker, now = make.worker(), clock.now()
    late = make.run("pending")
    early = make.run("pending", ready_at=now - timedelta(minutes=1))
    make.run("pending", ready_at=now + timedelta(minutes=1))
    make.run("pending", version=2)
    for status in ("suspended", "paused", "completed", "failed", "cancelled", "running"):
        make.run(status)
    assert [r.pk for r in claim(worker, [("odd", 1)], 1)] == [early.pk]
    (taken,) = claim(worker, [("odd", 1)], 9)
    assert (taken.pk, taken.status, taken.fence, taken.worker_id) == (late.pk, "running", 1, worker.pk)
    assert (
        claim(worker, [("odd", 1)], 9) == []
        and claim(worker, [], 9) == []
        and claim(worker, [("odd", 2)], 0) == []
    )


def test_the_fence_is_compared_with_status_and_worker():
    run = make.run()
    good = Held(run.pk, run.worker_id, 1)
    record(good, [NewEntry("step.complete", 1, "a")], position=1)
    entries = Entry.objects.count()
    for held in (
        Held(run.pk, run.worker_id, 2),
        Held(run.pk, make.worker().pk, 1),
        Held(clock.new_id(), run.worker_id, 1),
    ):
        with pytest.raises(LeaseLost):
            record(held, [NewEntry("step.complete", 2, "b")], position=2)
    for held in (Held(run.pk, run.worker_id, 2), Held(run.pk, make.worker().pk, 1)):
        with pytest.raises(LeaseLost), locked(run.pk, held=held):
            raise AssertionError("not reached")
    with locked(run.pk) as tx:
        runs.pause(tx, actor="o", reason="")
    with pytest.raises(LeaseLost):
        record(good, [NewEntry("step.complete", 2, "b")], position=2)
    assert Entry.objects.count() == entries + 1
    with pytest.raises(NotFound), locked(clock.new_id()):
        raise AssertionError("not reached")


@pytest.mark.parametrize("flag", ["cancel_requested_at", "pause_requested_at"])
def test_an_end_in_one_statement_is_refused_to_a_run_that_was_asked_to_stop(flag: str) -> None:
    run = make.run("running", **{flag: clock.now()})
    end = ("complete", {"finished_at": clock.Now(), "output": "1"})
    assert not record(
        Held(run.pk, run.worker_id, 1), [NewEntry("step.complete", 1, "a")], position=1, end=end
    )
    assert Run.objects.get().status == "running" and not Entry.objects.exists()


def test_a_position_that_is_new_forgets_lost_turns_and_only_grows():
    run = make.run(turns_lost=3, position=4)
    held = Held(run.pk, run.worker_id, 1)
    record(held, [NewEntry("now", 4)], position=4)
    assert Run.objects.values_list("position", "turns_lost").get() == (4, 3)
    record(held, [NewEntry("now", 5)], position=5)
    assert Run.objects.values_list("position", "turns_lost").get() == (5, 0)


@pytest.mark.parametrize("all_of", [False, True])
def test_suspend_yields_if_the_condition_is_met_already(all_of):
    run = make.run()
    done, waiting = make.wait(run, "resolved"), make.wait(run, position=2)
    ids = [(done.pk, Wait.KEEP)] + ([] if all_of else [(waiting.pk, Wait.CANCEL)])
    with locked(run.pk) as tx:
        assert not runs.suspend(tx, ids, all_of=all_of)
    assert Run.objects.get().status == "pending"
    assert Wait.objects.get(pk=waiting.pk).parked == Wait.NOT_PARKED


@pytest.mark.parametrize("flag", ["cancel_requested_at", "pause_requested_at"])
def test_suspend_yields_to_a_request_to_stop(flag: str) -> None:
    run = make.run("running", **{flag: clock.now()})
    with locked(run.pk) as tx:
        assert not runs.suspend(tx, [(make.wait(run).pk, Wait.KEEP)])
    assert Run.objects.get().status == "pending"


@pytest.mark.parametrize(
    ("all_of", "left", "modes"), [(True, 2, [Wait.TOGETHER] * 2), (False, 1, [Wait.KEEP, Wait.CANCEL])]
)
def test_suspend_stores_what_the_run_is_parked_on(all_of, left, modes):
    run = make.run()
    one, two = make.wait(run), make.wait(run, position=2)
    with locked(run.pk) as tx:
        assert runs.suspend(tx, [(one.pk, Wait.KEEP), (two.pk, Wait.CANCEL)], all_of=all_of)
    assert Run.objects.get().parked_left == left
    assert list(Wait.objects.order_by("position").values_list("parked", flat=True)) == modes


def test_wake_closes_the_losers_and_asks_a_child_to_cancel():
    run = make.run("suspended")
    kept = make.wait(run, parked=Wait.KEEP)
    lost = make.wait(run, kind="child", position=2, parked=Wait.CANCEL)
    other = make.wait(run, position=3)
    with locked(run.pk) as tx:
        runs.wake(tx, losers=True)
    assert list(Wait.objects.order_by("position").values_list("status", "parked")) == [
        ("open", 0),
        ("cancelled", 0),
        ("open", 0),
    ]
    assert {kept.pk, other.pk} == set(Wait.objects.filter(status="open").values_list("pk", flat=True))
    assert Outbox.objects.get().subject == lost.pk and Run.objects.get().verify_due


def test_lose_lease_puts_what_was_dispatched_in_doubt_in_the_same_transaction():
    run = make.run()
    make.effect(run, "dispatched")
    with locked(run.pk) as tx:
        runs.lose_lease(tx, why="gone")
    after = Run.objects.get()
    assert Effect.objects.get().status == "in_doubt"
    assert (after.turns_lost, after.verify_due, after.fence) == (1, True, 1)
    assert list(Entry.objects.order_by("seq").values_list("kind", flat=True)) == [
        "effect.doubt",
        "run.lose_lease",
    ]


@pytest.mark.parametrize("status", ["intended", "dispatched", "in_doubt", "contradicted"])
def test_a_run_with_an_unsettled_effect_does_not_complete(status):
    run = make.run()
    make.effect(run, status)
    before = make.everything()
    with pytest.raises(IllegalTransition), locked(run.pk) as tx:
        runs.complete(tx, output="1")
    assert make.everything() == before


@pytest.mark.parametrize("status", ["dispatched", "in_doubt"])
def test_a_run_in_doubt_is_not_cancelled(status):
    run = make.run(cancel_requested_at=clock.now())
    make.effect(run, status)
    before = make.everything()
    with pytest.raises(IllegalTransition), locked(run.pk) as tx:
        runs.cancel(tx)
    with locked(run.pk) as tx:
        assert not runs.honour_stop(tx)
    assert make.everything() == before


@pytest.mark.parametrize("event", ["complete", "fail", "cancel"])
def test_a_run_that_ends_leaves_nothing_open_and_tells_its_parent(event):
    run = make.run(parent_wait=clock.new_id(), parent_run=clock.new_id())
    make.wait(run)
    make.wait(run, kind="child", position=2)
    if event != "complete":
        make.effect(run, "intended")
    with locked(run.pk) as tx:
        DO[event](tx)
    assert not Wait.objects.filter(status="open").exists()
    assert set(Effect.objects.values_list("status", flat=True)) <= {"withdrawn"}
    assert sorted(Outbox.objects.values_list("kind", flat=True)) == ["cancel_child", "child_ended"]


def test_requests_to_stop_are_fields_and_the_first_one_stands():
    run = make.run()
    with locked(run.pk) as tx:
        runs.flag_cancel(tx, actor="rita", reason="first")
        runs.flag_cancel(tx, actor="olaf", reason="second")
    after = Run.objects.get()
    assert after.status == "running" and (after.cancel_by, after.cancel_reason) == ("rita", "first")
    assert Entry.objects.filter(kind="run.cancel_asked").count() == 1


def test_resume_unparks_what_is_found_again_by_replay():
    run = make.run("paused")
    make.wait(run, parked=Wait.CANCEL)
    with locked(run.pk) as tx:
        runs.resume(tx, actor="olaf")
    assert Wait.objects.get().parked == Wait.NOT_PARKED and Run.objects.get().parked_left == 0


BAD = {
    "unknown status": {"status": "odd"},
    "finished without its time": {"status": "completed", "finished_at": None},
    "a time without being finished": {"status": "pending", "worker": None, "finished_at": "now"},
    "running without a worker": {"status": "running", "worker": None},
    "held without running": {"status": "pending"},
}


@pytest.mark.parametrize("columns", BAD.values(), ids=BAD)
def test_the_database_refuses_a_bad_run(columns):
    run = make.run()
    changes = {k: clock.now() if v == "now" else v for k, v in columns.items()}
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(pk=run.pk).update(**changes)


def test_a_start_key_is_unique_in_its_workflow():
    make.run("pending", key="k")
    make.run("pending", key="k", workflow="other")
    with pytest.raises(IntegrityError), transaction.atomic():
        make.run("pending", key="k")


def test_who_asked_to_cancel_and_who_to_pause_are_kept_apart():
    run = make.run()
    with locked(run.pk) as tx:
        runs.flag_cancel(tx, actor="policy: odd", reason="a: b")
        runs.flag_pause(tx, actor="olaf", reason="later: perhaps")
    with locked(run.pk) as tx:
        runs.honour_stop(tx)
    told = json.loads(Entry.objects.get(kind="run.cancel").data)
    assert (told["actor"], told["reason"]) == ("policy: odd", "a: b")


def test_a_pause_that_is_honoured_later_says_who_asked_for_it():
    run = make.run()
    with locked(run.pk) as tx:
        runs.flag_pause(tx, actor="team: ops", reason="a: b")
        assert runs.honour_stop(tx)
    told = json.loads(Entry.objects.get(kind="run.pause").data)
    assert (told["actor"], told["reason"]) == ("team: ops", "a: b")
