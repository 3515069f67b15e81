"""The decision on its page: one door, every refusal told, nothing typed lost."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from hashlib import sha256
from threading import Thread
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client

from approvals.models import Approval, Decision
from approvals.services import policies, runs
from approvals.testing import assert_invariants, clock, drive, peer

from . import asking
from .asking import buttons, post, state, url, words

COMMENT = "Looked at it <b>twice</b>."
KEPT = "Looked at it &lt;b&gt;twice&lt;/b&gt;.</textarea>"


def test_approving_sends_exactly_that_once(vera: Client, who: Any) -> None:
    approval = asking.ask("Ada")
    answer = post(vera, approval, comment=COMMENT)
    assert (answer.status_code, answer["Location"]) == (303, url(approval))
    with peer(asking.Send) as ledger:
        drive()
        assert [request.to for request in ledger.requests] == ["Ada"]
    decision = Decision.objects.get()
    assert (decision.reviewer, decision.comment, decision.channel) == (who.reviewers[0], COMMENT, "web")
    assert_invariants()


@pytest.mark.parametrize("outcome", ["rejected", "changes_requested"])
def test_a_no_reaches_the_run_with_its_comment(vera: Client, outcome: str) -> None:
    approval = asking.ask_about({})
    assert post(vera, approval, outcome, comment="Not like this").status_code == 303
    drive()
    assert runs.get(approval.wait.run_id).output == {"outcome": outcome, "comment": "Not like this"}


def test_htmx_is_answered_with_the_page_as_it_is_now(vera: Client) -> None:
    approval = asking.ask()
    answer = vera.post(
        url(approval),
        {"outcome": "approved", "digest": approval.digest, "revision": "1"},
        headers={"HX-Request": "true"},
    )
    assert (
        answer.status_code == 200 and buttons(answer) == [] and "Approved by vera-reviewers" in words(answer)
    )
    assert 'tabindex="-1" autofocus>' in answer.content.decode()


def test_one_of_two_may_take_it_back_and_say_something_else(vera: Client, sam: Client) -> None:
    approval = asking.ask_two()
    assert post(vera, approval).status_code == 303
    answer = vera.get(url(approval))
    assert buttons(answer) == ["withdraw"] and "You approved this just now." in words(answer)
    assert "1 of 2 approvals · you have decided" in words(answer)
    assert buttons(sam.get(url(approval))) == ["approved", "changes_requested", "rejected"]
    assert post(vera, approval, "withdraw", digest=None, revision=None).status_code == 303
    told = words(vera.get(url(approval)))
    assert "0 of 2" in told and "vera-reviewers (you) approved · withdrawn" in told
    assert post(vera, approval, "rejected").status_code == 303
    assert state(approval) == ("resolved", "rejected", 2)


def test_there_must_be_something_to_withdraw(vera: Client, who: Any) -> None:
    approval = asking.ask_two()
    assert post(vera, approval, "withdraw").status_code == 403
    asking.decide(approval, who.reviewers[0])
    asking.decide(approval, who.reviewers[1])
    answer = post(vera, approval, "withdraw")
    assert answer.status_code == 409 and "sam-reviewers had already approved this" in words(answer)


def test_the_second_click_gets_the_first_ones_answer(vera: Client) -> None:
    """CASES 36."""
    approval = asking.ask()
    assert [post(vera, approval).status_code for _ in "ab"] == [303, 303]
    assert state(approval) == ("resolved", "approved", 1)


def test_whoever_comes_second_is_told_who_decided_what_and_when(vera: Client, sam: Client) -> None:
    """CASES 36, 44: the page heals, and what was typed is kept."""
    approval = asking.ask()
    post(sam, approval, "rejected")
    answer = post(vera, approval, comment=COMMENT)
    assert answer.status_code == 409
    assert re.search(
        r"sam-reviewers had already rejected this, at \d+ \w+ \d{4}, [\d:]+ UTC\.", words(answer)
    )
    assert buttons(answer) == [] and KEPT in answer.content.decode()
    assert state(approval) == ("resolved", "rejected", 1)


def test_what_changed_since_it_was_seen_is_shown_before_it_is_decided(vera: Client) -> None:
    approval = asking.ask()
    Approval.objects.filter(pk=approval.pk).update(digest="5" * 64, revision=2)
    answer = post(vera, approval, comment=COMMENT)
    assert answer.status_code == 409 and "What you saw is not what is asked now" in words(answer)
    html = answer.content.decode()
    assert (
        f'name="digest" value="{"5" * 64}"' in html and 'name="revision" value="2"' in html and KEPT in html
    )
    assert state(approval) == ("open", "", 0)


def test_a_late_click_is_told_that_it_expired(vera: Client) -> None:
    """CASES 6."""
    policies.load({**asking.TWO, "slug": "quick", "respond_within": "1h"})
    approval = asking.ask_about({"policy": "quick"})
    clock.shift(timedelta(hours=1))
    answer = post(vera, approval, comment=COMMENT)
    told = words(answer)
    assert answer.status_code == 409 and "It expired before you decided." in told
    assert "approved" not in told and KEPT in answer.content.decode()


def test_a_run_that_went_on_without_it_is_told(vera: Client, who: Any) -> None:
    approval = asking.ask()
    runs.cancel(approval.wait.run_id, actor=who.operator, reason="no need")
    drive()
    answer = post(vera, approval, comment=COMMENT)
    assert answer.status_code == 409 and "Nobody waits for this any more" in words(answer)


def test_who_may_not_decide_is_told_why(rita: Client, browser: Any, who: Any) -> None:
    """CASES 39: the requester, and whoever merely sees it."""
    approval = asking.ask()
    for client, reason in (
        (rita, "rita asked for it (policy one-reviewer excludes the requester)"),
        (browser(who.operator), "olaf does not have permission:approvals.review"),
    ):
        answer = post(client, approval, comment=COMMENT)
        assert answer.status_code == 403 and reason in words(answer) and KEPT in answer.content.decode()
    assert state(approval) == ("open", "", 0)


def test_a_reviewer_who_was_disabled_since_is_signed_out(vera: Client, who: Any) -> None:
    approval = asking.ask()
    who.reviewers[0].is_active = False
    who.reviewers[0].save()
    assert post(vera, approval)["Location"].startswith("/sign-in/")
    assert state(approval) == ("open", "", 0)


def test_a_form_without_its_token_is_refused(browser: Any, who: Any) -> None:
    approval = asking.ask()
    strict = browser(who.reviewers[0], enforce_csrf_checks=True)
    assert post(strict, approval).status_code == 403
    token = re.findall(
        r'name="csrfmiddlewaretoken" value="(\w+)"', strict.get(url(approval)).content.decode()
    )[-1]
    assert post(strict, approval, csrfmiddlewaretoken=token).status_code == 303


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"digest": "garbage"}, 409),
        ({"digest": "\x00"}, 409),
        ({"digest": None}, 409),
        ({"revision": "x"}, 422),
        ({"revision": ""}, 422),
        ({"revision": None}, 422),
        ({"revision": "-1"}, 422),
        ({"revision": "²"}, 422),
        ({"revision": "9" * 5000}, 422),
        ({"revision": "2"}, 409),
        ({"outcome": None}, 422),
        ({"outcome": "expired"}, 422),
        ({"outcome": "\x00"}, 422),
        ({"comment": "x" * 10_001}, 422),
        ({"form.reason": "x"}, 303),
        ({"comment": "a\x00b"}, 303),
        ({"comment": "\r\n" * 9_000}, 303),
        ({"comment": "\U0001f600" * 10_000}, 303),
    ],
)
def test_what_no_page_sends_is_refused_and_never_breaks(
    vera: Client, sent: dict[str, Any], status: int
) -> None:
    approval = asking.ask()
    answer = post(vera, approval, **sent)
    assert answer.status_code == status
    if status != 303:
        assert 'role="alert"' in answer.content.decode() and state(approval) == ("open", "", 0)
        assert buttons(answer) == ["approved", "changes_requested", "rejected"]


@pytest.mark.parametrize("body", [b"outcome=%ED%A0%80&digest=%FF", b"&&&===", b"\xff\xfe", b""])
def test_bytes_that_are_no_form_never_break_it(vera: Client, body: bytes) -> None:
    approval = asking.ask()
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
        answer = vera.generic("POST", url(approval), body, content_type=kind)
        assert 400 <= answer.status_code < 500
    assert state(approval) == ("open", "", 0)


def test_more_than_is_taken_is_refused(vera: Client) -> None:
    approval = asking.ask()
    assert post(vera, approval, comment="x" * 1_100_000).status_code in (400, 413)
    assert post(vera, approval, **{f"f{number}": "" for number in range(2_000)}).status_code == 400
    assert state(approval) == ("open", "", 0)


# --- a form of its own -----------------------------------------------------------------------------


def test_a_form_is_filled_in_with_its_types(vera: Client) -> None:
    approval = asking.ask_about({"form": True})
    told = words(vera.get(url(approval)))
    assert "To be filled in to approve" in told
    answer = post(vera, approval, **{"form.reason": "fraud", "form.amount": "7"})
    assert answer.status_code == 303
    assert json.loads(Decision.objects.get().form)["amount"] == 7
    assert "amount 7 number" in words(vera.get(url(approval)))


def test_an_invalid_form_keeps_what_was_typed(vera: Client) -> None:
    """CASES 41."""
    approval = asking.ask_about({"form": True})
    for sent in (
        {"form.reason": "fraud", "form.amount": "70"},
        {"form.reason": "fraud", "form.amount": "many"},
    ):
        answer = post(vera, approval, comment=COMMENT, **sent)
        html = answer.content.decode()
        assert answer.status_code == 422 and "the form is not filled in as it must be" in words(answer)
        assert KEPT in html and f'value="{sent["form.amount"]}"' in html
        assert re.search(r'<option value="[^"]*fraud[^"]*" selected>', html)
        assert 'aria-invalid="true"' in html
    assert post(vera, approval).status_code == 422
    assert state(approval) == ("open", "", 0)
    assert buttons(answer) == ["approved", "changes_requested", "rejected"]


def test_a_form_may_ask_for_a_file(vera: Client) -> None:
    approval = asking.ask_about({"form": "proof"})
    assert 'enctype="multipart/form-data"' in vera.get(url(approval)).content.decode()
    assert post(vera, approval).status_code == 422
    sent: dict[str, Any] = {"form.scan": SimpleUploadedFile("scan.txt", b"signed")}
    assert post(vera, approval, **sent).status_code == 303
    assert json.loads(Decision.objects.get().form)["scan"]["sha256"] == sha256(b"signed").hexdigest()
    assert "scan.txt · 6 bytes" in words(vera.get(url(approval)))


def test_a_form_that_nothing_can_fit_says_so(vera: Client) -> None:
    approval = asking.ask_about({"form": "unreadable"})
    answer = post(vera, approval, **{"form.word": "yes"})
    assert answer.status_code == 422 and "schema is not valid" in words(answer)
    assert state(approval) == ("open", "", 0) and post(vera, approval, "rejected").status_code == 303


def test_adding_a_row_decides_nothing_and_keeps_what_was_typed(vera: Client) -> None:
    approval = asking.ask_about({"form": True})
    answer = post(vera, approval, comment=COMMENT, add="form.notes", **{"form.notes": "", "form.amount": "3"})
    html = answer.content.decode()
    assert (
        answer.status_code == 200 and KEPT in html and 'value="3"' in html and 'name="form.notes.0"' in html
    )
    assert state(approval) == ("open", "", 0)


def test_a_no_needs_no_form(vera: Client) -> None:
    approval = asking.ask_about({"form": True})
    assert post(vera, approval, "rejected", **{"form.amount": "many"}).status_code == 303
    assert Decision.objects.get().form == ""


# --- races -----------------------------------------------------------------------------------------


def test_yes_and_no_at_once_give_one_decision(vera: Client, sam: Client) -> None:
    """CASES 36: both get the truth."""
    approval = asking.ask()
    codes: dict[str, int] = {}

    def press(client: Client, outcome: str) -> None:
        try:
            codes[outcome] = post(client, approval, outcome).status_code
        finally:
            connection.close()

    presses = [Thread(target=press, args=each) for each in ((vera, "approved"), (sam, "rejected"))]
    for each in presses:
        each.start()
    for each in presses:
        each.join()
    assert sorted(codes.values()) == [303, 409]
    status, outcome, count = state(approval)
    assert (status, codes[outcome], count) == ("resolved", 303, 1)
