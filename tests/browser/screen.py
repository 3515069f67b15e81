"""What a person does in a browser, and what is looked at whatever the test: console, hosts, accessibility."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import BrowserContext, ConsoleMessage, Error, Page, Request, expect

from durable_app.environment import BASE_DIR
from tests.browser.product import Site

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
LAPTOP, PHONE = (1280, 800), (390, 844)
SCREENSHOTS = BASE_DIR / "var" / "screenshots"


@dataclass
class Watch:
    """Notes what no page may do: complain, fail, break its content policy, ask another host."""

    host: str
    tolerated: tuple[str, ...] = ()
    noted: list[str] = field(default_factory=list)

    def over(self, context: BrowserContext) -> None:
        """Watches all pages of a context."""
        context.on("console", self._console)
        context.on("weberror", lambda problem: self._note(f"uncaught: {problem.error}"))
        context.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:  # a broken content policy is told here too
            self._note(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in {"data", "blob"} and parts.netloc != self.host:
            self._note(f"asked another host: {request.url}")

    def _note(self, what: str) -> None:
        if not any(re.search(pattern, what) for pattern in self.tolerated):
            self.noted.append(what)


def sign_in(page: Page, site: Site, name: str) -> None:
    """Signs in by the form, as a person does."""
    page.goto("/sign-in/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(site.passwords()[name])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Main")).to_contain_text(name)


def look(page: Page, name: str, *, sizes: Iterable[tuple[int, int]] = (LAPTOP, PHONE)) -> None:
    """Writes screenshots of a page, light and dark, wide and narrow, and holds each against axe's rules."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    before, found = page.viewport_size, []
    for width, height in sizes:
        page.set_viewport_size({"width": width, "height": height})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}-{width}.png", full_page=True)
            found += [f"{scheme}, {width} px: {told}" for told in violations(page)]
    page.emulate_media(color_scheme="light")
    if before:
        page.set_viewport_size(before)
    assert not found, "\n".join([f"{name} has accessibility violations:", *found])


def violations(page: Page) -> list[str]:
    """What axe finds, one line for each element."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: {node['html'][:200]} {_figures(node)}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def _figures(node: dict[str, list[dict[str, str]]]) -> str:
    return "; ".join(check["message"] for check in node.get("any", []))


def keep(page: Page, name: str) -> None:
    """A screenshot of a page whose test failed, if it can still be drawn."""
    path = SCREENSHOTS / "failed" / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.png"
    with suppress(Error):
        page.screenshot(path=path, full_page=True)
