"""Questions to people, and the one door of their answers (CASES 6, 8, 36, 37, 39, 45)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from approvals import Context, Effect, Receipt
from approvals.errors import (
    AlreadyDecided,
    ApprovalExpired,
    ApprovalRejected,
    ChangesRequested,
    DecisionRefused,
    InvalidInput,
    NotFound,
    PolicyDenied,
    StaleDigest,
    UnknownPolicy,
    WaitClosed,
)
from approvals.models import Approval, Decision, Entry, Run, Wait
from approvals.services import decisions, policies, runs
from approvals.testing import assert_invariants, clock, crash_at, decide, drive, pending, people
from tests.engine.make import case, commits, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("engine")

HOUR = timedelta(hours=1)
TWO = {
    "slug": "two",
    "rules": [{"stages": [{"needed": 2, "from": ["group:reviewers"]}]}],
    "exclude": ["requester"],
}
DUE = {
    "slug": "due",
    "rules": [{"stages": [{"needed": 1, "from": ["group:reviewers"]}]}],
    "respond_within": "1h",
}


@pytest.fixture(autouse=True)
def _checked(engine):
    policies.load(TWO)
    policies.load(DUE)
    policies.load({**DUE, "slug": "or-cancel", "on_expiry": "cancel"})
    policies.load({"slug": "auto", "rules": [{"when": "action.sku == 'A'", "automatic": True}]})
    yield
    assert_invariants()


class Order(BaseModel):
    sku: str
    quantity: int = 1


class Reason(BaseModel):
    why: str = Field(alias="warum", min_length=2)
    level: int = 1


class Shop(Effect[Order]):
    kind = "approvals.shop"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")

    def describe(self, request: Order) -> str:
        return f"Order {request.quantity} × {request.sku}"


@flow
def ask(ctx: Context, policy: str) -> list[Any]:
    told = ctx.approval("ask", policy=policy, action=Order(sku="A"), title="Order A", summary="Because")
    ctx.step("after", len, "")
    return [
        told.outcome,
        told.approved,
        bool(told),
        told.action.sku,
        told.comment,
        [d.reviewer for d in told.decisions],
    ]


@flow
def form(ctx: Context, n: int) -> str:
    told = ctx.approval("ask", policy="one-reviewer", action=n, title="t", form=Reason)
    return f"{told.outcome} {told.form and (told.form.why, told.form.level)}"


@flow
def require(ctx: Context, policy: str) -> str:
    try:
        ctx.approval("ask", policy=policy, action=Order(sku="B"), title="t").require()
    except (ApprovalRejected, ApprovalExpired, ChangesRequested, PolicyDenied) as error:
        ctx.sleep("a while", timedelta(seconds=5))
        return f"{type(error).__name__} {getattr(error, 'comment', '')}".strip()
    return "approved"


@flow
def three(ctx: Context, n: int) -> list[str]:
    asked = [ctx.request_approval(f"q{i}", policy="one-reviewer", action=i, title=f"q{i}") for i in range(3)]
    return [d.comment for d in ctx.wait_all(*asked)]


def test_a_decision_has_what_people_said_about_what_they_saw() -> None:
    who = people()
    run = ran(ask, "one-reviewer", requester=who.requester)
    (wait,) = pending(run)
    assert wait.action == {"sku": "A", "quantity": 1} and wait.title == "Order A"
    told = decisions.decide(
        wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest, comment="fine\x00\ud800"
    )
    assert (told.status, told.result, told.needed, told.got) == ("resolved", "approved", 1, 1)
    drive()
    outcome = runs.get(run.id).output
    assert outcome[:4] == ["approved", True, True, "A"] and outcome[4].startswith("fine")
    assert outcome[5] == ["vera-reviewers"]
    row = Decision.objects.get()
    assert (row.digest, row.revision, row.reviewer) == (wait.digest, 1, who.reviewers[0])


def test_asking_and_suspending_are_one_transaction() -> None:
    run = runs.start(ask, "one-reviewer")
    with commits() as made:
        drive()
    assert len(made) == 1 and kinds(run)[-2:] == ["wait.open", "run.suspend"]


@pytest.mark.parametrize("point", ["before_suspend", "suspended", "decided", "claimed", "before_complete"])
def test_an_approval_survives_a_crash_at_every_point(point: str) -> None:
    who = people()
    run = runs.start(ask, "one-reviewer", requester=who.requester)
    with crash_at(point):
        drive()
    drive()
    assert Approval.objects.count() == 1
    decide(run, who.reviewers[0], "approved")
    with crash_at(point):
        drive()
    drive()
    assert runs.get(run.id).output[0] == "approved"


def test_several_at_once_answered_in_reverse_order_go_each_to_its_own() -> None:
    who = people()
    run = ran(three, requester=who.requester)
    assert [w.name for w in pending(run)] == ["q0", "q1", "q2"]
    with pytest.raises(AssertionError):
        decide(run, who.reviewers[0], "approved")  # names no request
    for wait in reversed(pending(run)):
        decisions.decide(
            wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest, comment=f"on {wait.name}"
        )
        drive()
    assert runs.get(run.id).output == ["on q0", "on q1", "on q2"] and kinds(run).count("run.wake") == 1
    with pytest.raises(NotFound):
        decisions.decide(run.id, actor=who.reviewers[0], outcome="approved", digest="")


def test_the_answer_to_one_request_does_not_fit_another() -> None:
    who = people()
    run = ran(three, requester=who.requester)
    first, second, _ = pending(run)
    with pytest.raises(StaleDigest):
        decisions.decide(second.id, actor=who.reviewers[0], outcome="approved", digest=first.digest)
    with pytest.raises(StaleDigest):
        decisions.decide(
            first.id, actor=who.reviewers[0], outcome="approved", digest=first.digest, revision=2
        )
    assert not Decision.objects.exists()
    runs.cancel(run.id, actor=who.operator, reason="done")


# --- forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [None, {}, {"warum": "x"}, {"warum": 5}, {"warum": "good", "level": "x"}, "text"]
)
def test_a_form_that_does_not_fit_leaves_the_request_pending(bad: Any) -> None:
    who = people()
    run = ran(form, requester=who.requester)
    (wait,) = pending(run)
    with pytest.raises(InvalidInput):
        decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest, form=bad)
    assert not Decision.objects.exists() and len(pending(run)) == 1
    decide(run, who.reviewers[0], "approved", form={"warum": "good", "level": 2})
    drive()
    assert runs.get(run.id).output == "approved ('good', 2)"


def test_a_no_needs_no_form() -> None:
    who = people()
    run = ran(form, requester=who.requester)
    decide(run, who.reviewers[0], "rejected")
    drive()
    assert runs.get(run.id).output == "rejected None"


def test_an_approval_without_a_form_takes_none() -> None:
    who = people()
    run = ran(ask, "one-reviewer", requester=who.requester)
    with pytest.raises(InvalidInput):
        decide(run, who.reviewers[0], "approved", form={"a": 1})
    with pytest.raises(InvalidInput):
        decide(run, who.reviewers[0], "maybe")
    with pytest.raises(DecisionRefused):
        decide(run, who.reviewers[0], "approved", action={"sku": "Z"})
    assert not Decision.objects.exists()


# --- outcomes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("approved", "approved"),
        ("rejected", "ApprovalRejected why"),
        ("changes_requested", "ChangesRequested why"),
    ],
)
def test_require_raises_what_people_said_on_every_replay(outcome: str, expected: str) -> None:
    who = people()
    run = ran(require, "one-reviewer", requester=who.requester)
    decide(run, who.reviewers[0], outcome, comment="why")
    drive()
    clock.shift(timedelta(seconds=5))
    drive()
    assert runs.get(run.id).output == expected


def test_an_automatic_rule_decides_in_the_same_breath() -> None:
    run = ran(ask, "auto")
    assert run.output[:3] == ["approved", True, True] and run.output[5] == []
    assert Wait.objects.get().status == "resolved" and "run.suspend" not in kinds(run)


def test_a_policy_that_denies_raises_on_every_replay() -> None:
    run = ran(require, "auto")
    assert run.status == "suspended" and not Approval.objects.exists()
    clock.shift(timedelta(seconds=5))
    drive()
    assert runs.get(run.id).output == "PolicyDenied"


def test_an_unknown_policy_stops_the_run_and_a_loaded_one_lets_it_go_on() -> None:
    run = ran(ask, "none-such")
    assert '"code": "unknown_policy"' in case(run).data
    policies.load({"slug": "none-such", "rules": [{"automatic": True}]})
    from tests.engine.make import resume

    assert resume(run).output[0] == "approved"
    assert issubclass(UnknownPolicy, Exception)


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
