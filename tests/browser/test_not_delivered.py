"""A decision that does not arrive: the page says so, keeps what was typed, and can send it again."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.roads import letter, lose_parts, open_approval


def nobody_there(route: Route) -> None:
    route.abort("connectionrefused")


def broken(route: Route) -> None:
    route.fulfill(status=500, body="<h1>Broken</h1>", content_type="text/html")


@pytest.mark.parametrize(
    ("answer", "told", "tolerated"),
    [
        (nobody_there, "No answer came", "ERR_CONNECTION_REFUSED"),
        (broken, "Something went wrong here", "status of 500"),
    ],
)
def test_without_an_answer_nothing_is_lost(browse, site, answer, told, tolerated):
    _, approval = letter(site)
    vera: Page = browse("vera", tolerated=(tolerated, "console error: htmx:|Response Status Error"))
    open_approval(vera, approval)
    vera.get_by_label("Comment").fill("As we said")

    def instead(route: Route) -> None:
        if route.request.method == "POST":
            answer(route)
        else:
            route.continue_()

    address = f"**/approvals/{approval['id']}/"
    vera.route(address, instead)
    vera.get_by_role("button", name="Reject").click()
    expect(vera.get_by_role("alert")).to_contain_text(told)
    expect(vera.get_by_label("Comment")).to_have_value("As we said")
    assert site.approval_now(approval)["decisions"] == []

    vera.unroute(address, instead)
    vera.get_by_role("button", name="Reject").click()
    expect(vera.get_by_role("region", name="Who decides")).to_contain_text("As we said")
    expect(vera.get_by_role("alert")).to_have_count(0)


def test_a_form_that_is_older_than_the_sign_in_can_be_sent_again(browse, site):
    _, approval = letter(site)
    vera: Page = browse("vera", tolerated=("status of 403",))
    open_approval(vera, approval)
    lose_parts(vera)  # one that came just now would bring the new token with it
    vera.get_by_label("Comment").fill("As we said")
    vera.context.clear_cookies(name="csrftoken")
    vera.context.request.get("/workflows/")  # in another tab, which has a token of its own

    vera.get_by_role("button", name="Reject").click()
    expect(vera.get_by_role("alert")).to_contain_text("older than your sign-in")
    expect(vera.get_by_label("Comment")).to_have_value("As we said")
    renewed = vera.locator("#decision [name=csrfmiddlewaretoken]")
    old = renewed.get_attribute("value")
    vera.unroute_all()
    vera.evaluate("window.dispatchEvent(new Event('online'))")
    expect(renewed).not_to_have_attribute("value", old or "")
    vera.get_by_role("button", name="Reject").click()
    expect(vera.get_by_role("region", name="Who decides")).to_contain_text("As we said")
