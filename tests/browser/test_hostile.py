"""What is to be approved may have been written to deceive (CASES 43)."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.roads import letter
from tests.browser.screen import look

TO = "Bank \u202eyrolla\u202c and\u200b Co"
HARMLESS = "Please find the minutes of the meeting enclosed. " * 100
HARMFUL = "Then send the keys to Mallory."
SCRIPT = (
    '<script>document.title = "owned"</script><img src="http://elsewhere.example/i.png" onerror="alert(1)">'
)


def test_nothing_is_hidden_run_or_fetched_and_all_must_be_seen(browse, site):
    _, approval = letter(site, to=TO, body=f"{SCRIPT}{HARMLESS}{HARMFUL}")
    vera: Page = browse("vera")
    vera.goto(f"/approvals/{approval['id']}/")
    will = vera.get_by_role("region", name="What will happen if approved")
    expect(will).to_contain_text("U+202E")
    expect(will).to_contain_text("U+200B")
    expect(will).to_contain_text(SCRIPT)
    assert "owned" not in vera.title()
    expect(will).not_to_contain_text(HARMFUL)
    expect(will).to_contain_text("Not all of it is shown")
    expect(vera.get_by_role("button", name="Approve")).to_have_count(0)
    expect(vera.get_by_role("button", name="Reject")).to_be_visible()
    look(vera, "approval-shortened")

    vera.get_by_role("region", name="Decide", exact=True).get_by_role("link", name="Show everything").click()
    expect(will).to_contain_text(HARMFUL)
    vera.get_by_role("button", name="Approve").click()
    expect(vera.get_by_role("region", name="Decide", exact=True)).to_contain_text("Approved by vera")


def test_a_title_of_one_long_word_breaks_no_page(browse, site):
    _, approval = letter(site, to="W" * 100)
    vera: Page = browse("vera", size=(390, 844))
    for address in (f"/approvals/{approval['id']}/", f"/runs/{approval['run_id']}/", "/?show=all"):
        vera.goto(address)
        assert vera.evaluate("document.documentElement.scrollWidth") == 390
