"""Events of a wait: what each does where it may happen, and that it does nothing where it may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from approvals import clock, facts, services
from approvals.errors import IllegalTransition, LimitExceeded
from approvals.limits import Limits
from approvals.models import Approval, Decision, Effect, Entry, Message, Run, Wait
from approvals.services import reconciliation
from approvals.states import STATUSES, next_state
from approvals.testing import people
from approvals.transitions import Transaction, locked, runs, waits
from tests.transitions import make

pytestmark = pytest.mark.django_db


def approve(of: Wait, **columns: Any) -> Approval:
    (policy,) = facts.required(["one-reviewer"], "")
    made = Approval(
        wait=of,
        action="{}",
        digest=make.DIGEST,
        title="t",
        policy=policy,
        rule=0,
        needed=1,
        workflow_version=1,
        **columns,
    )
    made.save(force_insert=True)
    return made


def decision(approval: Approval, outcome: str = "approved") -> Decision:
    who = people().reviewers[0]
    return Decision(
        approval=approval, reviewer=who, reviewer_name=who.username, outcome=outcome, channel="web", revision=1,
        digest=make.DIGEST,
    )  # fmt: skip


def decided(tx: Transaction, approval: Approval, outcome: str = "approved") -> None:
    said, taken = waits.decisions(approval), decision(approval, outcome)
    waits.decide(tx, approval.wait, approval, taken, said, facts.reviewers([*said, taken]))


def stored(approval: Approval) -> Decision:
    made = decision(approval)
    made.at = clock.now()
    made.save(force_insert=True)
    return made


DO: dict[str, Callable[[Transaction, Any], Any]] = {
    "decide": lambda tx, w: decided(tx, w.approval),
    "withdraw": lambda tx, w: waits.withdraw(tx, w, w.approval, stored(w.approval), []),
    "expire": waits.expire,
    "cancel": runs.leave_wait,
    "invalidate": lambda tx, w: waits.invalidate(tx, w, w.approval, "the policy changed"),
}
PAIRS = [(status, event) for status in STATUSES["wait"] for event in DO]
LEGAL = [pair for pair in PAIRS if next_state("wait", *pair)]
ILLEGAL = [pair for pair in PAIRS if not next_state("wait", *pair)]


def approval_wait(status: str = "open", run_status: str = "suspended", **columns: Any) -> Wait:
    wait = make.wait(make.run(run_status, parked_left=1), status, kind="approval", **columns)
    wait.approval = approve(wait)
    return wait


@pytest.mark.parametrize(("status", "event"), LEGAL)
def test_a_legal_event_moves_the_wait_and_is_its_entry(status, event):
    wait = approval_wait(status)
    with locked(wait.run_id) as tx:
        DO[event](tx, wait)
    kinds = list(Entry.objects.order_by("seq").values_list("kind", flat=True))
    assert kinds[0] == f"wait.{event}"
    after = Wait.objects.get()
    # A decision that meets the quorum resolves in the same transaction.
    expected = "resolved" if event == "decide" else next_state("wait", status, event)
    assert after.status == expected and (after.closed_at is None) == (after.status == "open")


@pytest.mark.parametrize(("status", "event"), ILLEGAL)
def test_an_illegal_event_is_refused_and_changes_nothing(status, event):
    wait = approval_wait(status)
    people()
    before = make.everything()
    with pytest.raises(IllegalTransition), locked(wait.run_id) as tx:
        DO[event](tx, wait)
    assert make.everything() == before


@pytest.mark.parametrize("status", [s for s in STATUSES["wait"] if s != "open"])
def test_resolving_what_is_closed_does_nothing(status):
    wait = make.wait(make.run("suspended", parked_left=1), status)
    before = make.everything()
    with locked(wait.run_id) as tx:
        waits.resolve(tx, wait, "received", {})
        assert waits.apply_due(tx) == []
    assert make.everything() == before


def test_open_is_an_entry_with_what_replay_needs_and_happens_once():
    run = make.run()
    wait = Wait(position=3, kind="timer", name="late", due_at=clock.now())
    with locked(run.pk) as tx:
        waits.open_(tx, wait)
    entry = Entry.objects.get()
    told = json.loads(entry.data)
    assert (entry.kind, entry.position, entry.name) == ("wait.open", 3, "late")
    assert (told["id"], told["wait"], told["ordinal"]) == (str(wait.pk), "timer", 0) and told["due_at"]
    with pytest.raises(IllegalTransition), locked(run.pk) as tx:
        waits.open_(tx, wait)


def send(tx: Transaction, name: str = "w", payload: str = "1", message_id: str = "m") -> None:
    message = Message(name=name, message_id=message_id)
    waits.receive(tx, message, json.loads(payload), waits.waiting_for(tx, name))


def test_a_message_closes_the_oldest_open_wait_of_its_name_and_no_other():
    run = make.run("suspended", parked_left=1)
    newer = make.wait(run, position=2)
    older = make.wait(run, position=1, parked=Wait.KEEP)
    make.wait(run, position=3, name="other")
    with locked(run.pk) as tx:
        send(tx)
    assert set(Wait.objects.filter(status="resolved").values_list("pk", flat=True)) == {older.pk}
    assert Wait.objects.get(pk=newer.pk).status == "open"
    assert Message.objects.values_list("status", "wait").get() == ("consumed", older.pk)
    assert Run.objects.get().status == "pending"


def test_a_message_that_came_early_is_kept_and_closes_the_wait_when_it_opens():
    run = make.run()
    with locked(run.pk) as tx:
        send(tx, message_id="1")
        send(tx, message_id="2")
    for position in (1, 2):
        with locked(run.pk) as tx:
            waits.open_(tx, Wait(position=position, kind="signal", name="w"))
    assert [m.message_id for m in Message.objects.order_by("wait__position")] == ["1", "2"]
    assert set(Wait.objects.values_list("status", flat=True)) == {"resolved"}


def test_an_early_message_that_does_not_fit_closes_nothing_and_stands_in_nobodys_way():
    run = make.run()
    with locked(run.pk) as tx:
        send(tx, payload='"text"', message_id="1")
        send(tx, payload="2", message_id="2")
    wait = Wait(position=1, kind="signal", name="w", data=json.dumps({"schema": {"type": "integer"}}))
    with locked(run.pk) as tx:
        waits.open_(tx, wait)
    assert list(Message.objects.order_by("id").values_list("status", flat=True)) == ["late", "consumed"]
    assert json.loads(json.loads(Entry.objects.get(kind="wait.resolve").data)["value"])["id"] == "2"


def test_a_full_journal_takes_no_more_messages(monkeypatch):
    run = make.run(seq=10)
    monkeypatch.setattr(waits, "limits", lambda: Limits(journal_entries=10))
    with pytest.raises(LimitExceeded), locked(run.pk) as tx:
        send(tx)
    assert not Message.objects.exists()


def test_time_is_applied_in_the_order_of_the_deadlines_and_a_loser_is_not_applied():
    now = clock.now()
    run = make.run("suspended", parked_left=1)
    second = make.wait(run, kind="timer", position=1, due_at=now - timedelta(seconds=1), parked=Wait.CANCEL)
    first = make.wait(run, kind="timer", position=2, due_at=now - timedelta(seconds=2), parked=Wait.CANCEL)
    make.wait(run, kind="timer", position=3, due_at=now + timedelta(hours=1), parked=Wait.KEEP)
    with locked(run.pk) as tx:
        assert [w.pk for w in waits.apply_due(tx)] == [first.pk]
    assert Wait.objects.get(pk=first.pk).outcome == "fired"
    assert Wait.objects.get(pk=second.pk).status == "cancelled"
    assert Wait.objects.get(position=3).status == "open"
    assert Run.objects.get().status == "pending"


def test_a_timer_is_resolved_and_anything_else_expires():
    run = make.run()
    make.wait(run, kind="timer", position=1, due_at=clock.now())
    make.wait(run, kind="signal", position=2, due_at=clock.now())
    with locked(run.pk) as tx:
        waits.apply_due(tx)
    assert list(Wait.objects.order_by("position").values_list("status", "outcome")) == [
        ("resolved", "fired"),
        ("expired", "expired"),
    ]


@pytest.mark.parametrize(("left", "status"), [(2, "suspended"), (1, "pending")])
def test_a_run_is_woken_when_its_condition_is_met_and_not_before(left, status):
    run = make.run("suspended", parked_left=left)
    make.wait(run, parked=Wait.KEEP)
    make.wait(run, position=2, parked=Wait.KEEP)
    with locked(run.pk) as tx:
        waits.resolve(tx, Wait.objects.get(position=1), "received", {})
    assert Run.objects.values_list("status", "parked_left").get() == (status, left - 1)


@pytest.mark.parametrize("status", ["pending", "running", "paused"])
def test_a_wait_that_closes_wakes_nothing_but_a_suspended_run(status):
    run = make.run(status, parked_left=1)
    make.wait(run, parked=Wait.KEEP)
    with locked(run.pk) as tx:
        waits.resolve(tx, Wait.objects.get(), "received", {})
    assert Run.objects.get().status == status


def test_a_wait_that_is_not_parked_on_wakes_nothing():
    run = make.run("suspended", parked_left=1)
    make.wait(run, parked=Wait.KEEP)
    make.wait(run, position=2)
    with locked(run.pk) as tx:
        waits.resolve(tx, Wait.objects.get(position=2), "received", {})
    assert Run.objects.get().status == "suspended"


@pytest.mark.parametrize("outcome", ["rejected", "changes_requested"])
def test_a_no_withdraws_the_effect_that_asked_and_leaves_its_other_approvals(outcome):
    wait = approval_wait(parked=Wait.CANCEL)
    row = make.effect(wait.run, position=9)
    other = make.wait(wait.run, kind="approval", ordinal=1, parked=Wait.CANCEL)
    approve(other, effect=row)
    Approval.objects.update(effect=row)
    Run.objects.update(parked_left=2)
    approval = Approval.objects.get(pk=wait.pk)
    with locked(wait.run_id) as tx:
        decided(tx, approval, outcome)
    assert Effect.objects.get().status == "withdrawn"
    assert Wait.objects.get(pk=other.pk).status == "cancelled"
    assert Run.objects.get().status == "pending"


def test_an_approval_expires_with_an_outcome_that_is_no_decision():
    wait = approval_wait(due_at=clock.now())
    with locked(wait.run_id) as tx:
        waits.apply_due(tx)
    told = json.loads(json.loads(Entry.objects.get(kind="wait.expire").data)["value"])
    assert told["outcome"] == "expired" and told["decisions"] == []


BAD = {
    "unknown status": {"status": "odd"},
    "unknown kind": {"kind": "odd"},
    "closed without its time": {"status": "resolved", "closed_at": None},
    "open with a time": {"closed_at": "now"},
}


@pytest.mark.parametrize("columns", BAD.values(), ids=BAD)
def test_the_database_refuses_a_bad_wait(columns):
    wait = make.wait(make.run())
    with pytest.raises(IntegrityError), transaction.atomic():
        Wait.objects.filter(pk=wait.pk).update(
            **{k: clock.now() if v == "now" else v for k, v in columns.items()}
        )


def test_a_waits_identity_is_run_position_kind_and_ordinal():
    run = make.run()
    make.wait(run)
    make.wait(run, ordinal=1)
    make.wait(run, kind="timer")
    with pytest.raises(IntegrityError), transaction.atomic():
        make.wait(run)


def test_a_message_id_comes_once_per_run_and_name():
    run = make.run()
    with locked(run.pk) as tx:
        send(tx)
        send(tx, name="other")
    with pytest.raises(IntegrityError), locked(run.pk) as tx:
        send(tx)


def test_one_decision_per_person_and_revision_counts():
    wait = approval_wait()
    stored(wait.approval)
    with pytest.raises(IntegrityError), transaction.atomic():
        stored(wait.approval)


@pytest.mark.parametrize("service", ["resolve", "resume"])
def test_an_operators_answer_comes_after_what_time_has_decided(service):
    run = make.run("suspended" if service == "resolve" else "paused")
    due = make.wait(run, due_at=clock.now() - timedelta(hours=1))
    case = make.wait(run, kind="reconciliation", name="crashed", position=2, data="{}", parked=Wait.TOGETHER)
    if service == "resolve":
        reconciliation.resolve(case.pk, actor=None, resolution="resume", note="mended")
    else:
        services.runs.resume(run.pk, actor=None)
    assert Wait.objects.get(pk=due.pk).status == "expired"
