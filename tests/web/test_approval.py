"""The page of an approval as it is read: what, why, what happened, who; and who may read it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import Check
from approvals.models import Approval, Decision, Entry
from approvals.services import policies, runs
from approvals.testing import clock, drive, peer
from approvals.web.approval import PARTS

from . import asking
from .asking import buttons, state, url, words

QUERIES = 10  # session and person 4, time, approval and decisions 2, steps, effects, the rail's count


def test_what_will_happen_and_why_and_what_then(vera: Client) -> None:
    approval = asking.ask("Ada", copies=3, tags=["a"], evidence=[Check("spelling", False, "2 mistakes")])
    told = words(vera.get(url(approval)))
    for part in (
        "Letter to Ada · Durable",
        "What will happen if approved Send a letter to Ada.",
        "Effect web.send · high risk · cannot be undone",
        "Target mail/Ada",
        f"action {approval.digest[:4]}…{approval.digest[-4:]}",
        "to Ada text",
        "copies 3 number",
        "urgent no yes or no",
        "tags list of 1 item 1 a text",
        "token •••••• not shown secret",
        "Policy one-reviewer v1 asks 1 of anyone who may review.",
        "In the run’s own words, checked by nobody It is due.",
        "spelling · 2 mistakes",
        "If rejected Nothing is sent.",
        "It waits for as long as it takes.",
        "send intended nothing was sent; it waits for this decision, and no worker is held",
        "0 of 1 approval · you may decide",
        "irreversible high risk no deadline",
    ):
        assert part in told
    assert "hunter2" not in told
    assert buttons(vera.get(url(approval))) == ["approved", "changes_requested", "rejected"]
    Approval.objects.update(
        reversible=True
    )  # what no effect class says otherwise; nobody promised to undo it
    assert "undone" not in words(vera.get(url(approval)))


def test_terms_of_the_policy_are_told_in_words(vera: Client) -> None:
    policies.load(
        asking.TWO | {"slug": "strict", "respond_within": "30m", "on_expiry": "cancel", "valid_for": "4h"}
    )
    approval = asking.ask_about({"policy": "strict"})
    told = words(vera.get(url(approval)))
    assert "the run is cancelled" in told and "due in 29 minutes" in told
    assert "2 more from group reviewers" in told


def test_an_approval_that_is_valid_for_a_while_says_so(vera: Client) -> None:
    policies.load({**asking.TWO, "slug": "brief", "effects": ["web.send"], "valid_for": "4h"})
    told = words(vera.get(url(asking.ask())))
    assert "Exactly this is sent, within 4 hours; later, people are asked again." in told


def test_a_question_authorises_nothing(vera: Client) -> None:
    told = words(vera.get(url(asking.ask_about({"title": "Tea?"}))))
    assert "What you are asked" in told and "it authorises no change outside by itself" in told


def test_why_i_may_not_decide(rita: Client, browser: Any, who: Any) -> None:
    approval = asking.ask()
    answer = rita.get(url(approval))
    assert buttons(answer) == [] and "<textarea" not in answer.content.decode()
    assert (
        "rita may not decide this: rita asked for it, and policy one-reviewer excludes the requester"
        in words(answer)
    )
    assert "olaf does not have permission:approvals.review" in words(browser(who.operator).get(url(approval)))


def test_what_has_happened_goes_on_after_the_decision(vera: Client, who: Any) -> None:
    approval = asking.ask()
    asking.decide(approval, who.reviewers[1], comment="Go\u202eod.")
    with peer(asking.Send):
        drive()
    answer = vera.get(url(approval))
    told = words(answer)
    assert buttons(answer) == [] and "What was asked" in told
    assert "Approved by sam-reviewers, just now." in told and "U+202E" in told
    assert re.search(r"send committed .* receipt peer:", told) and "the run is completed" in told
    assert "sam-reviewers approved just now by api" in told


def test_an_expired_one_says_so_before_anybody_has_noticed(vera: Client) -> None:
    policies.load({**asking.TWO, "slug": "quick", "respond_within": "1h"})
    approval = asking.ask_about({"policy": "quick"})
    clock.shift(timedelta(hours=1))
    for sweep in (False, True):
        if sweep:
            drive()
        answer = vera.get(url(approval))
        told = words(answer)
        assert buttons(answer) == [] and "Expired: nobody decided in time" in told
        assert "approved" not in told.lower()
    assert state(approval)[0] == "expired"


def test_a_run_that_was_cancelled_leaves_nothing_to_decide(vera: Client, who: Any) -> None:
    approval = asking.ask()
    runs.cancel(approval.wait.run_id, actor=who.operator, reason="no need")
    drive()
    answer = vera.get(url(approval))
    assert buttons(answer) == [] and "Closed without a decision" in words(answer)


def test_one_that_no_longer_holds_says_why(vera: Client, who: Any) -> None:
    approval = asking.ask()
    asking.decide(approval, who.reviewers[1])
    Approval.objects.filter(pk=approval.pk).update(invalidated="sam has left")
    told = words(vera.get(url(approval)))
    assert "void" in told and "It does not hold any more: sam has left" in told


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_asked_for_by_itself(vera: Client, part: str) -> None:
    approval = asking.ask()
    text = vera.get(url(approval, f"?part={part}")).content.decode().strip()
    assert re.match(
        rf'<section [^>]*id="part-{part}" data-part="{part}" data-topic="run:{approval.wait.run_id}"', text
    )
    assert text.endswith("</section>") and text.count("data-part=") == 1
    assert int(re.findall(r'data-version="(\d+)"', text)[0]) > 1_700_000_000_000_000
    for field in ("<textarea", '"hidden"', "<form"):
        assert field not in text


def test_what_is_typed_lies_in_no_part(vera: Client) -> None:
    html = vera.get(url(asking.ask_about({"form": True}))).content.decode()
    outside = re.sub(r"<section[^>]*data-part=.*?</section>", "", html, flags=re.DOTALL)
    for field in ('name="comment"', 'name="form.amount"', 'name="digest"'):
        assert field in outside


def test_the_version_grows(vera: Client) -> None:
    approval = asking.ask()
    seen = [
        int(re.findall(r'data-version="(\d+)"', vera.get(url(approval)).content.decode())[0]) for _ in "ab"
    ]
    clock.shift(timedelta(seconds=1))
    last = int(re.findall(r'data-version="(\d+)"', vera.get(url(approval)).content.decode())[0])
    assert seen[0] <= seen[1] < last


def test_strangers_and_the_signed_out_see_nothing(browser: Any, who: Any) -> None:
    approval = asking.ask()
    stranger = browser(who.outsider)
    assert stranger.get(url(approval)).status_code == 404
    assert asking.post(stranger, approval).status_code == 404
    assert stranger.get(url(approval, "?part=buttons")).status_code == 404
    assert stranger.get("/approvals/00000000-0000-0000-0000-000000000000/").status_code == 404
    answer = Client().get(url(approval))
    assert answer.status_code == 302 and answer["Location"].startswith("/sign-in/")
    assert Client().get(url(approval, "?part=buttons")).status_code == 401
    assert Client().post(url(approval), {"outcome": "approved"}).status_code == 302
    assert state(approval) == ("open", "", 0)


def test_whoever_operates_sees_it(browser: Any, who: Any) -> None:
    assert browser(who.operator).get(url(asking.ask())).status_code == 200


def test_looking_changes_nothing(vera: Client) -> None:
    """CASES 40: a scanner that follows every link decides nothing."""
    approval = asking.ask()
    before = Entry.objects.count()
    sent = {"outcome": "approved", "digest": approval.digest, "revision": "1"}
    assert vera.get(url(approval), sent).status_code == vera.head(url(approval), sent).status_code == 200
    for method in ("put", "patch", "delete", "options"):
        assert getattr(vera, method)(url(approval)).status_code == 405
    html = vera.get(url(approval)).content.decode()
    for link in re.findall(r'href="([^"]+)"', html):
        if link.startswith(("/", "?")) and not link.startswith("/static"):
            vera.get(link if link.startswith("/") else url(approval, link))
    assert Entry.objects.count() == before and not Decision.objects.exists()


def test_a_long_run_takes_no_more_queries_than_a_short_one(vera: Client, who: Any) -> None:
    approval = asking.ask()
    counts = []
    for more in (0, 200):
        first = Entry.objects.filter(run=approval.wait.run_id).order_by("-seq")[0]
        Entry.objects.bulk_create(
            Entry(
                run_id=approval.wait.run_id,
                seq=first.seq + number,
                position=number,
                kind="step.complete",
                name=f"step {number}",
                at=first.at,
            )
            for number in range(1, more + 1)
        )
        with CaptureQueriesContext(connection) as counted:
            answer = vera.get(url(approval))
        counts.append(len(counted))
    assert counts == [QUERIES, QUERIES]
    assert answer.content.decode().count('class="step"') <= 13 and "These are the latest." in words(answer)
