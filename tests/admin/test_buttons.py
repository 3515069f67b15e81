"""Operating runs and deciding approvals from the admin: through the services alone."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from approvals.models import Approval, Decision, Entry, Run
from approvals.services import runs
from approvals.testing import assert_invariants, drive, peer

from . import flows
from .test_windows import url, words


def operate(client: Client, run: Any, do: str, reason: str = "the peer is down") -> Any:
    return client.post(f"/admin/approvals/run/{run.id}/operate/", {"do": do, "reason": reason})


def page(client: Client, run: Any) -> str:
    return words(client.get(f"/admin/approvals/run/{run.id}/change/"))


def test_pause_resume_and_cancel(operator: Client) -> None:
    run = flows.asked()
    assert operate(operator, run, "pause").status_code == 302
    assert runs.get(run.id).status == "paused"
    told = page(operator, run)
    assert "The run is paused" in told and "Resume" in told and "the peer is down" in told
    assert operate(operator, run, "resume", "").status_code == 302
    assert runs.get(run.id).status == "pending"
    drive()
    assert operate(operator, run, "cancel", "not needed").status_code == 302
    assert runs.get(run.id).status == "cancelled"
    assert Entry.objects.get(run=run.id, kind="run.cancel_asked").data.count("not needed") == 1
    assert "Operate" not in page(operator, run)
    assert_invariants()


@pytest.mark.parametrize(
    ("do", "reason", "told"),
    [
        ("pause", " ", "Say why."),
        ("cancel", "", "Say why."),
        ("resume", "typed before", "cannot be resumed"),
        ("explode", "typed before", "cannot be operated so"),
        ("", "typed before", "cannot be operated so"),
    ],
)
def test_what_cannot_be_done_is_refused(operator: Client, do: str, reason: str, told: str) -> None:
    run = flows.asked()
    answer = operate(operator, run, do, reason)
    assert answer.status_code == 422 and told in words(answer)
    if reason.strip():
        assert 'value="typed before"' in answer.content.decode()
    assert runs.get(run.id).status == "suspended"


def test_a_run_at_the_desk_is_not_paused(operator: Client) -> None:
    case = flows.crashed()
    answer = operate(operator, runs.get(case.run_id), "pause")
    assert answer.status_code == 422 and "resolve its case" in words(answer)


def test_a_run_that_is_over_is_left_alone(operator: Client) -> None:
    run = flows.decided()
    for do in ("pause", "resume", "cancel"):
        assert operate(operator, run, do).status_code == 422
    assert runs.get(run.id).status == "completed"


def test_only_operators_operate_and_reading_changes_nothing(browser: Any, who: Any) -> None:
    run = flows.asked()
    reviewer = browser(who.reviewers[0])
    assert "Operate" not in page(reviewer, run)
    assert operate(reviewer, run, "cancel").status_code == 403
    assert operate(browser(who.requester), run, "cancel").status_code == 403
    got = browser(who.operator).get(
        f"/admin/approvals/run/{run.id}/operate/", {"do": "cancel", "reason": "x"}
    )
    assert got.status_code == 200
    assert runs.get(run.id).status == "suspended"


# --- approvals -----------------------------------------------------------------------------------


def decide(client: Client, approval: Approval, outcome: str = "approved", **changes: Any) -> Any:
    shown = {"digest": approval.digest, "revision": approval.revision, "comment": "seen"}
    return client.post(url(approval, "decide"), {"outcome": outcome, **shown, **changes})


def test_a_reviewer_decides_on_what_the_page_showed(browser: Any, who: Any) -> None:
    run = flows.asked()
    approval = Approval.objects.get()
    reviewer = browser(who.reviewers[0])
    shown = reviewer.get(url(approval)).content.decode()
    assert f'name="digest" value="{approval.digest}"' in shown and 'name="revision" value="1"' in shown
    answer = decide(reviewer, approval)
    assert (answer.status_code, answer["Location"]) == (302, url(approval))
    decision = Decision.objects.get()
    assert (decision.channel, decision.comment, decision.reviewer_name) == (
        "admin",
        "seen",
        who.reviewers[0].username,
    )
    with peer(flows.Guarded) as shop:
        drive()
        assert len(shop.requests) == 1
    assert runs.get(run.id).status == "completed"
    again = decide(browser(who.reviewers[1]), approval, "rejected")
    assert again.status_code == 422
    assert "already decided" in words(again) and "approved by vera-reviewers" in words(again)


def test_the_requester_cannot_approve(browser: Any, who: Any) -> None:
    flows.asked()
    approval = Approval.objects.get()
    requester = browser(who.requester)
    assert "You cannot decide this: rita asked for it." in words(requester.get(url(approval)))
    answer = decide(requester, approval)
    assert answer.status_code == 422
    assert "rita may not decide this: rita asked for it (policy one-reviewer excludes" in words(answer)
    assert not Decision.objects.exists()


def test_nor_does_any_other_who_is_not_asked(browser: Any, who: Any, admin_client: Client) -> None:
    flows.asked()
    approval = Approval.objects.get()
    for client in (browser(who.operator), admin_client):
        assert b"Send my decision" not in client.get(url(approval)).content
        assert decide(client, approval).status_code == 422
    assert decide(browser(who.outsider), approval).status_code == 302  # to the log-in
    assert not Decision.objects.exists()


def test_another_digest_is_stale(browser: Any, who: Any) -> None:
    flows.asked()
    approval = Approval.objects.get()
    reviewer = browser(who.reviewers[0])
    answer = decide(reviewer, approval, digest="0" * 64)
    assert answer.status_code == 422
    told = answer.content.decode()
    assert "changed since it was shown" in told and "seen</textarea>" in told
    assert f'name="digest" value="{approval.digest}"' in told
    for wrong in ({"outcome": "maybe"}, {"revision": "x"}, {"digest": ""}):
        assert decide(reviewer, approval, **{"outcome": "approved", **wrong}).status_code == 422
    assert reviewer.get(url(approval, "decide"), {"outcome": "approved"}).status_code == 200
    assert not Decision.objects.exists()
    assert Run.objects.get().status == "suspended"
