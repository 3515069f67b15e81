"""A phone, 390 pixels wide: nothing wider than the screen, and a thumb reaches what decides."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import PAGES, Visit, addresses
from tests.browser.roads import letter
from tests.browser.screen import PHONE

LEAST_TARGET, DECIDING = 24, 44  # pixels; WCAG 2.2 AA asks for the first, a thumb for the second
TOO_WIDE = """() => [...document.querySelectorAll("body *")]
    .filter(element => element.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .filter(element => !element.closest("pre, .diff, [data-scrolls], .rail, .unseen"))
    .map(element => element.outerHTML.slice(0, 120))"""
TOO_SMALL = """least => [...document.querySelectorAll("button, .button, .rail a, nav a, summary, select, input")]
    .filter(element => element.checkVisibility() && !element.closest(".unseen") && element.type !== "hidden")
    .filter(element => !element.matches(".unseen, [type=checkbox], [type=radio]"))
    .filter(element => element.getBoundingClientRect().height < least)
    .map(element => element.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("visit", PAGES, ids=lambda visit: visit.name)
def test_nothing_is_wider_than_the_screen_or_too_small_to_touch(browse, site, visit: Visit):
    page: Page = browse(visit.person, size=PHONE, tolerated=visit.tolerated)
    page.goto(addresses(site)[visit.name])
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not wide, page.evaluate(TOO_WIDE)
    assert page.evaluate("document.documentElement.clientWidth") == PHONE[0], "the page was zoomed out"
    assert page.evaluate(TOO_SMALL, LEAST_TARGET) == []


def test_the_decision_is_in_reach_without_scrolling(browse, site):
    _, approval = letter(site, body="A long letter. " * 100)
    vera: Page = browse("vera", size=PHONE)
    vera.goto(f"/approvals/{approval['id']}/")
    for name in ("Approve", "Request changes", "Reject"):
        button = vera.get_by_role("button", name=name)
        expect(button).to_be_in_viewport(ratio=1)
        box = button.bounding_box()
        assert box
        assert box["height"] >= DECIDING
    vera.get_by_text("Comment, who decides").tap()
    vera.get_by_label("Comment").fill("From a train")
    vera.get_by_role("button", name="Approve").tap()
    expect(vera.get_by_role("region", name="Decide", exact=True)).to_contain_text("Approved by vera")
