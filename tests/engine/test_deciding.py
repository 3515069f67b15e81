"""The one door of people's answers: deadlines, double clicks, and who may not (CASES 6, 8, 39, 45)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from approvals.errors import AlreadyDecided, DecisionRefused, WaitClosed
from approvals.models import Decision, Entry, Run, Wait
from approvals.services import decisions, policies, runs
from approvals.testing import clock, decide, drive, pending, people
from tests.engine.asking import DUE, TWO, ask, load, require
from tests.engine.make import kinds, ran

pytestmark = pytest.mark.usefixtures("checked")


HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _loaded(engine: object) -> None:
    load()


# --- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["decide", "sweeper"])
@pytest.mark.parametrize(("seconds", "outcome"), [(3590, "approved"), (3600, "expired"), (3610, "expired")])
def test_before_at_and_after_the_deadline_there_is_one_outcome_for_both_sides(
    seconds: int, outcome: str, by: str
) -> None:
    who = people()
    run = ran(require, "due", requester=who.requester)
    (wait,) = pending(run)
    clock.shift(timedelta(seconds=seconds))
    if by == "sweeper":
        drive()
    if outcome == "approved":
        decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
    else:
        with pytest.raises(WaitClosed) as refused:
            decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
        assert refused.value.outcome == "expired" and not isinstance(refused.value, AlreadyDecided)
        assert not Decision.objects.exists()
    clock.shift(2 * HOUR)
    drive()
    clock.shift(HOUR)
    drive()
    row = Wait.objects.get(pk=wait.id)
    assert row.outcome == outcome and row.status == ("resolved" if outcome == "approved" else "expired")
    assert runs.get(run.id).output == {"approved": "approved", "expired": "ApprovalExpired"}[outcome]
    assert Entry.objects.filter(run=run.id, kind__in=("wait.resolve", "wait.expire"), name="ask").count() == 1


def test_one_of_two_votes_does_not_outlive_the_deadline() -> None:
    policies.load({**DUE, "slug": "two-due", "rules": TWO["rules"]})
    who = people()
    run = ran(ask, "two-due", requester=who.requester)
    decide(run, who.reviewers[0], "approved")
    clock.shift(HOUR)
    drive()
    told = runs.get(run.id).output
    assert told[0] == "expired" and told[1] is False and told[5] == ["vera-reviewers"]


def test_expiry_may_cancel_the_run() -> None:
    run = ran(ask, "or-cancel")
    clock.shift(HOUR)
    drive()
    assert runs.get(run.id).status == "cancelled" and Wait.objects.get().outcome == "expired"


# --- races, in one process -------------------------------------------------------------------------


def test_a_double_click_is_one_decision_and_both_are_told_the_truth() -> None:
    who = people()
    run = ran(ask, "one-reviewer", requester=who.requester)
    (wait,) = pending(run)
    told = [
        decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
        for _ in range(3)
    ]
    assert told[0] == told[1] == told[2] and Decision.objects.count() == 1
    drive()
    assert (
        decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest) == told[0]
    )


def test_approve_against_reject_tells_the_loser_who_won_and_when() -> None:
    who = people()
    run = ran(ask, "one-reviewer", requester=who.requester)
    (wait,) = pending(run)
    decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
    before = Entry.objects.count()
    for actor in who.reviewers:
        with pytest.raises(AlreadyDecided) as lost:
            decisions.decide(wait.id, actor=actor, outcome="rejected", digest=wait.digest)
        assert (lost.value.by, lost.value.outcome) == ("vera-reviewers", "approved") and lost.value.at
    assert Decision.objects.count() == 1 and Entry.objects.count() == before
    drive()
    assert runs.get(run.id).output[0] == "approved"


def test_two_of_two_completes_exactly_once() -> None:
    who = people()
    run = ran(ask, "two", requester=who.requester)
    (wait,) = pending(run)
    first = decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
    assert (first.status, first.got, first.needed) == ("open", 1, 2) and runs.get(
        run.id
    ).status == "suspended"
    with pytest.raises(AlreadyDecided):  # the same person cannot change their mind by deciding again
        decisions.decide(wait.id, actor=who.reviewers[0], outcome="rejected", digest=wait.digest)
    decisions.decide(wait.id, actor=who.reviewers[1], outcome="approved", digest=wait.digest)
    drive()
    assert runs.get(run.id).output[5] == ["vera-reviewers", "sam-reviewers"]
    assert kinds(run).count("wait.resolve") == 1 and kinds(run).count("run.wake") == 1


def test_a_withdrawn_decision_does_not_count_and_may_be_taken_again() -> None:
    who = people()
    run = ran(ask, "two", requester=who.requester)
    (wait,) = pending(run)
    for actor in who.reviewers:
        with pytest.raises(DecisionRefused):
            decisions.withdraw(wait.id, actor=actor)
    decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
    decisions.withdraw(wait.id, actor=who.reviewers[0])
    with pytest.raises(DecisionRefused):
        decisions.withdraw(wait.id, actor=None)
    told = decisions.decide(wait.id, actor=who.reviewers[1], outcome="approved", digest=wait.digest)
    assert told.got == 1
    decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
    with pytest.raises(WaitClosed):
        decisions.withdraw(wait.id, actor=who.reviewers[0])
    drive()
    assert runs.get(run.id).output[0] == "approved"


@pytest.mark.parametrize("who", ["requester", "outsider", "operator", "nobody", "disabled"])
def test_there_is_one_door_and_it_refuses(who: str) -> None:
    everybody = people()
    run = ran(ask, "two", requester=everybody.requester)
    everybody.requester.groups.add(
        everybody.reviewers[0].groups.get()
    )  # in the group, and still the requester
    actor = {"disabled": everybody.reviewers[0], "nobody": None}.get(who) or getattr(everybody, who, None)
    if who == "disabled":
        everybody.reviewers[0].is_active = False
        everybody.reviewers[0].save()
    with pytest.raises(DecisionRefused):
        decide(run, actor, "approved")
    assert not Decision.objects.exists() and len(pending(run)) == 1
    runs.cancel(run.id, actor=everybody.operator, reason="done")


def test_history_names_people_who_are_gone() -> None:
    who = people()
    run = ran(ask, "two", requester=who.requester)
    for actor in who.reviewers:
        decide(run, actor, "approved")
    for person in (*who.reviewers, who.requester):
        person.delete()
    drive()
    assert runs.get(run.id).output[5] == ["vera-reviewers", "sam-reviewers"]
    assert runs.get(run.id).requester == "rita"
    assert set(Decision.objects.values_list("reviewer_name", flat=True)) == {
        "vera-reviewers",
        "sam-reviewers",
    }


def test_a_decision_on_a_run_that_is_over_changes_nothing() -> None:
    who = people()
    run = ran(ask, "one-reviewer", requester=who.requester)
    (wait,) = pending(run)
    runs.cancel(run.id, actor=who.operator, reason="enough")
    with pytest.raises(WaitClosed):
        decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
    assert not Decision.objects.exists() and Run.objects.get().status == "cancelled"
