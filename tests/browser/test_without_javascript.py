"""Everything can be done without JavaScript: start, approve, reject."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.roads import RUN, letter


def test_a_run_is_started_by_its_form_and_approved(browse, site):
    rita, vera = browse("rita", javascript=False), browse("vera", javascript=False)
    rita.goto("/workflows/")
    rita.get_by_role("link", name="Start browser-letter").click()
    rita.get_by_label("To").fill("the mayor")
    rita.get_by_label("Copies").fill("3")
    rita.get_by_role("button", name="Start", exact=True).click()
    expect(rita).to_have_url(re.compile(RUN))

    approval = site.approval(rita.url.split("/")[-2])
    assert approval["action"] == {"to": "the mayor", "body": "Good morning", "copies": 3}
    vera.goto("/")
    vera.locator(f'a[href="/approvals/{approval["id"]}/"]').click()
    vera.get_by_role("button", name="Approve").click()
    expect(vera.get_by_role("region", name="Decide", exact=True)).to_contain_text("Approved by vera")
    site.ended(approval["run_id"])
    rita.reload()
    expect(rita.get_by_role("region", name="How it ended")).to_contain_text("Done")


@pytest.mark.parametrize(
    ("button", "told"),
    [("Reject", "Rejected by vera"), ("Request changes", "Changes were asked for by vera")],
)
def test_a_comment_goes_with_a_no(browse, site, button, told):
    _, approval = letter(site)
    vera = browse("vera", javascript=False)
    vera.goto(f"/approvals/{approval['id']}/")
    vera.get_by_label("Comment").fill("Not like this")
    vera.get_by_role("button", name=button).click()
    expect(vera.get_by_role("region", name="Decide", exact=True)).to_contain_text(told)
    expect(vera.get_by_role("region", name="Who decides")).to_contain_text("Not like this")
    expect(vera.get_by_role("button", name="Approve")).to_have_count(0)


def test_whoever_is_late_is_told_and_keeps_the_comment(browse, site):
    _, approval = letter(site)
    vera, sam = (
        browse("vera", javascript=False, tolerated=("status of 409",)),
        browse("sam", javascript=False),
    )
    for page in (vera, sam):
        page.goto(f"/approvals/{approval['id']}/")
    vera.get_by_label("Comment").fill("Too late")
    sam.get_by_role("button", name="Approve").click()
    expect(sam.get_by_role("region", name="Decide", exact=True)).to_contain_text("Approved by sam")
    vera.get_by_role("button", name="Reject").click()
    expect(vera.get_by_role("alert")).to_contain_text("sam had already approved")
    expect(vera.get_by_label("Comment")).to_have_value("Too late")


def test_a_form_that_does_not_fit_says_where_and_keeps_what_was_typed(browse):
    rita = browse("rita", javascript=False, tolerated=("status of 422",))
    rita.goto("/workflows/browser-letter/start/")
    rita.locator("form.fill").evaluate("form => form.noValidate = true")
    rita.get_by_label("To").fill("the mayor")
    rita.get_by_label("Copies").fill("12")
    rita.get_by_role("button", name="Start", exact=True).click()
    expect(rita.get_by_role("alert")).to_contain_text("1 thing to mend")
    expect(rita.get_by_role("alert")).to_contain_text("Copies")
    expect(rita.get_by_label("To")).to_have_value("the mayor")
    expect(rita.get_by_label("Copies")).to_have_value("12")
