"""A file that an approval names is saved by the browser, not opened as a page of this site."""

from __future__ import annotations

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
