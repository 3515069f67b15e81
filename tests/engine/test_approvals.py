"""Questions to people: what is asked, forms, outcomes (CASES 6, 36, 37)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from approvals import Context
from approvals.errors import DecisionRefused, InvalidInput, NotFound, StaleDigest, UnknownPolicy
from approvals.models import Approval, Decision, Wait
from approvals.services import decisions, policies, runs
from approvals.testing import clock, crash_at, decide, drive, pending, people
from tests.engine.asking import ask, load, require
from tests.engine.make import case, commits, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")


@pytest.fixture(autouse=True)
def _loaded(engine: object) -> None:
    load()
    policies.load({"slug": "auto", "rules": [{"when": "action.sku == 'A'", "automatic": True}]})


class Reason(BaseModel):
    why: str = Field(alias="warum", min_length=2)
    level: int = 1


@flow
def form(ctx: Context, n: int) -> str:
    told = ctx.approval("ask", policy="one-reviewer", action=n, title="t", form=Reason)
    return f"{told.outcome} {told.form and (told.form.why, told.form.level)}"


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
