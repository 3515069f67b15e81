"""Back, reload, a double click, a second tab: nothing is done twice, and what is shown is so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.product import Site
from tests.browser.roads import RUN, letter, lose_push, open_approval, press, stop_looking

JAVASCRIPT = pytest.mark.parametrize("javascript", [True, False], ids=["script", "no script"])
STATUS_409 = "status of 409"


def decision(page: Page) -> Locator:
    return page.get_by_role("region", name="Decide", exact=True)


def said(site: Site, approval: dict[str, Any]) -> list[tuple[str, str]]:
    return [(d["reviewer"], d["outcome"]) for d in site.approval_now(approval)["decisions"]]


@JAVASCRIPT
def test_a_double_click_decides_once(browse, site, javascript):
    _, approval = letter(site)
    vera: Page = browse("vera", javascript=javascript, tolerated=(STATUS_409, "Response Status Error"))
    vera.goto(f"/approvals/{approval['id']}/")
    vera.get_by_role("button", name="Approve").dblclick()
    expect(decision(vera)).to_contain_text("Approved by vera")
    expect(vera.get_by_role("button", name="Approve")).to_have_count(0)
    assert said(site, approval) == [("vera", "approved")]


@JAVASCRIPT
def test_back_and_reload_after_a_decision_show_it_and_take_no_other(browse, site, javascript):
    title, approval = letter(site)
    vera: Page = browse("vera", javascript=javascript)
    vera.goto("/")
    vera.get_by_role("link", name=title).click()
    vera.get_by_role("button", name="Reject").click()
    expect(decision(vera)).to_contain_text("Rejected by vera")
    vera.reload()  # what a POST leads to is loaded again, and nothing is sent again
    expect(decision(vera)).to_contain_text("Rejected by vera")
    vera.get_by_role("link", name="Back to the inbox").click()
    expect(vera.get_by_role("heading", name=re.compile("wait"))).to_be_visible()
    expect(vera.get_by_role("link", name=title)).to_have_count(0)
    vera.go_back()
    expect(decision(vera)).to_contain_text("Rejected by vera")
    expect(vera.get_by_role("button", name="Approve")).to_have_count(0)
    assert said(site, approval) == [("vera", "rejected")]


def test_a_page_that_the_browser_had_kept_is_true_again_at_once(browse, site):
    """Chrome says that it was kept; what is shown may be of long ago."""
    _, approval = letter(site)
    vera, sam = browse("vera"), browse("sam")
    stop_looking(vera)
    lose_push(vera)
    vera.goto(f"/approvals/{approval['id']}/")
    press(sam, approval, "Approve")
    expect(vera.get_by_role("button", name="Approve")).to_be_visible()
    vera.evaluate("window.dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    expect(decision(vera)).to_contain_text("Approved by sam")
    expect(vera.get_by_role("button", name="Approve")).to_have_count(0)


def test_a_refusal_that_is_loaded_again_is_refused_again(browse, site):
    """Without a script the answer to a POST is a page; its reload sends the same once more."""
    _, approval = letter(site)
    vera: Page = browse("vera", javascript=False, tolerated=(STATUS_409,))
    vera.goto(f"/approvals/{approval['id']}/")
    vera.get_by_label("Comment").fill("I have a doubt")
    site.decide(approval, "approved", reviewer="sam")
    vera.get_by_role("button", name="Reject").click()
    for again in (False, True):
        if again:
            vera.reload()
        expect(vera.get_by_role("alert")).to_contain_text("sam had already approved this")
        expect(decision(vera)).to_contain_text("Approved by sam")
        expect(vera.get_by_label("Comment")).to_have_value("I have a doubt")
    assert said(site, approval) == [("sam", "approved")]


def test_of_two_tabs_one_decides_and_the_other_is_told(browse, site):
    _, approval = letter(site)
    one: Page = browse("vera")
    stop_looking(one)
    open_approval(one, approval)
    other = one.context.new_page()
    press(other, approval, "Approve")
    expect(decision(one)).to_contain_text("Approved by vera")
    expect(one.get_by_role("button", name="Approve")).to_have_count(0)
    assert said(site, approval) == [("vera", "approved")]


@JAVASCRIPT
def test_a_run_is_started_once_by_a_double_click_and_its_page_starts_none(browse, site, javascript):
    rita: Page = browse("rita", javascript=javascript)
    rita.goto("/workflows/browser-letter/start/")
    to = f"twice {javascript}"
    rita.get_by_label("To").fill(to)
    rita.get_by_role("button", name="Start").last.dblclick()
    expect(rita).to_have_url(re.compile(RUN))
    rita.reload()
    expect(rita).to_have_url(re.compile(RUN))
    found = site.manage("runs", "list")["items"]
    assert [run["input"]["to"] for run in found if run["workflow"] == "browser-letter"].count(to) == 1
