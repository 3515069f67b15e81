"""What fails a test here whatever it is about: it is seen when it happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.screen import Watch, violations

ADDRESS = "http://127.0.0.1/page/"
STRICT = {"content-security-policy": "default-src 'self'", "content-type": "text/html; charset=utf-8"}


@dataclass(frozen=True)
class Watched:
    page: Page
    watch: Watch

    def shows(self, body: str, headers: dict[str, str] | None = None) -> list[str]:
        """What is noted of a page with this body."""
        html = (
            f"<!doctype html><html lang=en><title>A page</title><link rel=icon href=data:><main>{body}</main>"
        )
        answer = {**STRICT, **(headers or {})}
        self.page.route(ADDRESS, lambda route: route.fulfill(body=html, headers=answer))
        self.page.goto(ADDRESS)
        self.page.evaluate("0")  # what the page has said by now has arrived
        return self.watch.noted


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context()
    watch = Watch("127.0.0.1", tolerated=("known and meant",))
    watch.over(context)
    yield Watched(context.new_page(), watch)
    context.close()


FREE = {"content-security-policy": "default-src * data: 'unsafe-inline'"}


@pytest.mark.parametrize(
    ("body", "headers", "told"),
    [
        ("<script>console.warn('careful')</script>", FREE, "console warning: careful"),
        ("<script>console.error('wrong')</script>", FREE, "console error: wrong"),
        ("<script>nothing.there()</script>", FREE, "uncaught: nothing is not defined"),
        ("<script>1</script>", {}, "Content Security Policy"),
        ("<p style='color: red'>red</p>", {}, "Content Security Policy"),
        ("<img src='http://elsewhere.example/i.png' alt=''>", FREE, "asked another host: http://elsewhere"),
    ],
)
def test_what_a_page_may_not_do_is_noted(watched, body, headers, told):
    assert any(told in noted for noted in watched.shows(body, headers))


def test_what_it_may_do_is_not(watched):
    talk = "<script>console.log('a word'); console.error('known and meant')</script>"
    assert watched.shows(talk, FREE) == []


def test_axe_finds_what_is_wrong(watched):
    watched.shows("<h1>Fine</h1>")
    assert violations(watched.page) == []
    watched.shows("<h1>Not fine</h1><input><button></button>")
    assert [told.split()[0] for told in violations(watched.page)] == ["button-name", "label"]
