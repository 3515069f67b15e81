"""The product in one go: start from the form, see it live, say yes, see it done; no page is ever reloaded."""

from __future__ import annotations

import re
import time

from playwright.sync_api import Page, expect

from tests.browser.roads import RUN, mark, marked, research_folder

WHOLE_ROAD_SECONDS = 120


def test_from_the_form_to_a_verified_publication(browse, site, tmp_path):
    began = time.monotonic()
    folder = research_folder(tmp_path)

    rita: Page = browse("rita")
    rita.goto("/")
    rita.get_by_role("link", name="Workflows").click()
    rita.get_by_role("link", name="Start research-and-publish").click()
    rita.get_by_label("Folder").fill(str(folder))
    rita.get_by_label("Title").fill("Suppliers of November")
    rita.get_by_role("button", name="Start", exact=True).click()

    expect(rita).to_have_url(re.compile(RUN))
    mark(rita)
    timeline = rita.get_by_role("region", name="Journal")
    expect(timeline).to_contain_text("upload draft")
    expect(rita.get_by_role("main")).to_contain_text("waiting for approval")

    vera: Page = browse("vera")
    vera.goto("/")
    vera.get_by_role("link", name="Suppliers of November").click()
    will = vera.get_by_role("region", name="What will happen if approved")
    expect(will).to_contain_text("suppliers-of-november")
    expect(vera.get_by_role("main")).to_contain_text("every record states a licence")
    vera.get_by_role("button", name="Approve").click()
    expect(vera.get_by_role("heading", name="The decision")).to_be_visible()
    expect(vera.get_by_role("region", name="Decide", exact=True)).to_contain_text("Approved by vera")

    expect(rita.get_by_role("region", name="How it ended")).to_contain_text("Done")
    for step in ("make public", "read back", "notify"):
        expect(
            timeline.get_by_role("listitem").filter(has_text=re.compile(f"(effect|step) {step}"))
        ).to_be_visible()
    output = rita.locator("#part-result")
    expect(output).to_contain_text(re.compile(r"outcome.*published", re.DOTALL))
    expect(output).to_contain_text(re.compile(r"verified.*(true|yes)", re.DOTALL | re.IGNORECASE))
    assert marked(rita), "the page was loaded again"
    assert time.monotonic() - began < WHOLE_ROAD_SECONDS
