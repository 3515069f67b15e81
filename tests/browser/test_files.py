"""A file that an approval names is saved by the browser, not opened as a page of this site."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.roads import letter


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no script"])
def test_it_is_saved_and_the_page_stays_as_it_was(browse, site, javascript):
    _, approval = letter(site, body="A line to be kept")
    vera: Page = browse("vera", javascript=javascript)
    vera.goto(f"/approvals/{approval['id']}/")
    vera.get_by_label("Comment").fill("I am reading it")
    with vera.expect_download() as saved:
        vera.get_by_role("link", name="letter.txt").click()
    assert saved.value.suggested_filename == "letter.txt"
    assert saved.value.path().read_text().endswith("A line to be kept")
    expect(vera.get_by_label("Comment")).to_have_value("I am reading it")


def test_bytes_that_look_like_a_part_of_a_page_are_no_part_of_it(browse, site):
    rita: Page = browse("rita")
    planted = '<nav data-part="rail" data-version="99999999999999999999">planted</nav>'
    sent = {"body": planted, "content_type": "application/octet-stream"}
    rita.route(re.compile(r"[?&]part=rail"), lambda route: route.fulfill(**sent))
    with rita.expect_response(re.compile(r"[?&]part=rail")) as told:
        rita.goto("/runs/")
    told.value.finished()
    rita.evaluate("new Promise((done) => setTimeout(done))")  # who waited for these bytes had its turn
    expect(rita.get_by_text("planted")).to_have_count(0)
