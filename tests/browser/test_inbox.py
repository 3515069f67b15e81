"""The inbox stays true by itself, and nothing moves under the pointer (CASES 44)."""

from __future__ import annotations

from uuid import uuid4

from playwright.sync_api import Locator, Page, expect

from tests.browser.roads import letter


def row(page: Page, title: str) -> Locator:
    return page.get_by_role("listitem").filter(has_text=title)


def test_what_is_new_is_announced_and_moves_nothing(browse, site):
    known, _ = letter(site)
    vera = browse("vera")
    vera.goto("/")
    expect(vera.get_by_role("status")).to_have_text("live")
    place = row(vera, known).bounding_box()

    title, _ = letter(site)
    news = vera.get_by_role("link", name="1 new: show it")
    expect(news).to_be_visible()
    expect(row(vera, title)).to_have_count(0)
    now = row(vera, known).bounding_box()
    assert now == place

    news.click()
    expect(row(vera, title)).to_be_visible()
    expect(vera.get_by_role("link", name=title)).to_be_focused()
    expect(news).to_be_hidden()


def test_an_empty_list_shows_what_comes_by_itself(browse, site):
    key = f"only-{uuid4().hex}"
    vera = browse("vera")
    vera.goto(f"/runs/?q={key}")
    expect(vera.get_by_role("status")).to_have_text("live")
    expect(vera.get_by_role("link", name=key)).to_have_count(0)

    site.manage(
        "runs", "start", "browser-letter", "--input", '{"to": "nobody"}', "--as", "rita", "--key", key
    )
    expect(vera.get_by_role("link", name=key)).to_be_visible()


def test_what_was_decided_elsewhere_says_so_in_its_place(browse, site):
    titles = [letter(site) for _ in range(3)]
    vera = browse("vera")
    vera.goto("/")
    expect(vera.get_by_role("status")).to_have_text("live")
    before = vera.get_by_role("listitem").all_inner_texts()
    places = [row(vera, title).bounding_box() for title, _ in titles]

    site.decide(titles[1][1], "approved", reviewer="sam")
    expect(row(vera, titles[1][0])).to_contain_text("No longer in this list.")
    assert len(vera.get_by_role("listitem").all_inner_texts()) == len(before)
    assert row(vera, titles[0][0]).bounding_box() == places[0]

    vera.reload()
    expect(row(vera, titles[2][0])).to_be_visible()
    expect(row(vera, titles[1][0])).to_have_count(0)
