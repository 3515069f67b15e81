"""The session ends while a page is open: it says so, and keeps what was typed."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.roads import letter, open_approval
from tests.browser.screen import sign_in


def test_an_open_page_says_so_keeps_what_was_typed_and_goes_on_after_signing_in(browse, site):
    _, approval = letter(site)
    sam: Page = browse(tolerated=("status of 401", "WebSocket"))
    sign_in(sam, site, "sam")
    open_approval(sam, approval)
    sam.get_by_label("Comment").fill("As I was say")

    sam.context.clear_cookies()
    sam.evaluate("window.dispatchEvent(new Event('online'))")
    note = sam.get_by_role("alert").filter(has_text="You were signed out")
    expect(note).to_be_visible()
    expect(sam.get_by_label("Comment")).to_have_value("As I was say")

    with sam.context.expect_page() as opened:
        note.get_by_role("link", name="Sign in again").click()
    again = opened.value
    again.get_by_label("Name").fill("sam")
    again.get_by_label("Password").fill(site.passwords()["sam"])
    again.get_by_role("button", name="Sign in").click()
    expect(again).to_have_url(re.compile(approval["id"]))
    again.close()

    sam.evaluate("window.dispatchEvent(new Event('online'))")
    expect(note).to_have_count(0)
    expect(sam.get_by_label("Comment")).to_have_value("As I was say")
    sam.get_by_role("button", name="Approve").click()
    expect(sam.get_by_role("region", name="Decide", exact=True)).to_contain_text("Approved by sam")
