"""Nothing needs a mouse: what is done here is done by keys alone."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.roads import RUN, letter
from tests.browser.screen import sign_in

MOST_TABS = 60


def tab_to(page: Page, wanted: Locator) -> None:
    """Presses Tab until this has the focus, and sees that it can be seen."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            outline = wanted.evaluate("element => getComputedStyle(element).outlineStyle")
            assert outline != "none", "the focus cannot be seen"
            return
    raise AssertionError(f"not reached by {MOST_TABS} tabs")


def test_sign_in_open_comment_and_approve(browse, site):
    title, _ = letter(site)
    page: Page = browse()
    page.goto("/")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("vera")
    page.keyboard.press("Tab")
    page.keyboard.type(site.passwords()["vera"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name=title)).to_be_visible()

    tab_to(page, page.get_by_role("link", name=title))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=title)).to_be_visible()
    tab_to(page, page.get_by_label("Comment"))
    page.keyboard.type("Read by keys alone")
    tab_to(page, page.get_by_role("button", name="Approve"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Decide", exact=True)).to_contain_text("Approved by vera")
    expect(page.get_by_role("region", name="Who decides")).to_contain_text("Read by keys alone")


def test_enter_in_a_field_decides_nothing(browse, site):
    """The first button of a form is pressed by Enter in any of its fields: it must not be Approve."""
    _, approval = letter(site)
    vera = browse("vera")
    vera.goto(f"/approvals/{approval['id']}/")
    vera.locator("#decision").evaluate(
        "form => { const field = document.createElement('input'); form.append(field); field.focus() }"
    )
    vera.keyboard.press("Enter")
    vera.reload()
    expect(vera.get_by_role("button", name="Approve")).to_be_visible()
    assert site.approval_now(approval)["decisions"] == []


def test_rows_are_walked_by_j_and_k(browse, site):
    letter(site)
    letter(site)
    vera = browse("vera")
    vera.goto("/")
    links = vera.locator("[data-row] a")
    vera.keyboard.press("j")
    expect(links.nth(0)).to_be_focused()
    vera.keyboard.press("j")
    expect(links.nth(1)).to_be_focused()
    vera.keyboard.press("k")
    expect(links.nth(0)).to_be_focused()
    vera.keyboard.press("Enter")
    expect(vera).to_have_url(re.compile("/approvals/"))


def test_a_letter_that_is_typed_is_no_command(browse, site):
    _, approval = letter(site)
    vera = browse("vera")
    vera.goto(f"/approvals/{approval['id']}/")
    vera.get_by_label("Comment").focus()
    vera.keyboard.type("gijk/")
    expect(vera.get_by_label("Comment")).to_have_value("gijk/")
    expect(vera).to_have_url(re.compile(approval["id"]))


def test_single_keys_are_switched_off_in_every_tab_and_stay_off(browse, site):
    letter(site)
    page: Page = browse()
    sign_in(page, site, "vera")
    page.goto("/runs/")
    search = page.get_by_role("searchbox")
    page.keyboard.press("/")
    expect(search).to_be_focused()
    search.blur()

    inbox = page.context.new_page()
    inbox.goto("/")
    tab_to(inbox, inbox.get_by_role("button", name="Turn them off"))
    inbox.keyboard.press("Enter")
    expect(inbox.get_by_role("button", name="Turn them on")).to_be_visible()
    inbox.keyboard.press("j")
    expect(inbox.locator("body")).to_be_focused()

    page.evaluate("window.dispatchEvent(new Event('online'))")  # as every so often, the page looks by itself
    expect(page.get_by_role("navigation", name="Main")).to_have_attribute("data-keys", "off")
    page.keyboard.type("/gi")
    expect(page.locator("body")).to_be_focused()
    expect(page).to_have_url(re.compile("/runs/"))

    inbox.get_by_role("button", name="Sign out").click()
    expect(inbox.get_by_label("Name")).to_be_visible()
    sign_in(inbox, site, "vera")
    inbox.get_by_role("button", name="Turn them on").click()
    expect(inbox.get_by_role("button", name="Turn them off")).to_be_visible()
    inbox.keyboard.press("j")
    expect(inbox.locator("[data-row] a").first).to_be_focused()


def test_the_content_is_one_key_away(browse):
    vera = browse("vera")
    vera.goto("/")
    vera.keyboard.press("Tab")
    expect(vera.get_by_role("link", name="Skip to the content")).to_be_focused()
    vera.keyboard.press("Enter")
    expect(vera.get_by_role("main")).to_be_focused()


def test_a_run_is_started_from_the_keyboard(browse):
    rita = browse("rita")
    rita.goto("/workflows/browser-letter/start/")
    tab_to(rita, rita.get_by_label("To"))
    rita.keyboard.type("the keyboard")
    rita.keyboard.press("Enter")
    expect(rita).to_have_url(re.compile(RUN))
