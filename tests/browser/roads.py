"""Ways that more than one test goes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from playwright.sync_api import Page, Route, WebSocketRoute, expect

from tests.browser.product import Site

RUN = r"/runs/[0-9a-f-]{36}/$"


def research_folder(base: Path) -> Path:
    """A small dataset for research-and-publish: two records, one of them without a licence."""
    folder = base / "suppliers"
    folder.mkdir()
    (folder / "suppliers.csv").write_text("name,version,licence\nNorth Cell,1.0,MIT\nIberia Anode,2.1,\n")
    (folder / "letter.txt").write_text("Dear reader,\nthis is a text.\n")
    return folder


def letter(site: Site, **given: Any) -> tuple[str, dict[str, Any]]:
    """A letter that nobody else writes, asked for by rita: its title, and the approval that is open."""
    approval = site.ask("browser-letter", {"to": f"reader {uuid4().hex[:8]}", **given})
    return str(approval["title"]), approval


def open_approval(page: Page, approval: Mapping[str, Any]) -> None:
    """The page of an approval, in touch with the server."""
    page.goto(f"/approvals/{approval['id']}/")
    expect(page.get_by_role("status")).to_have_text("live")


def press(page: Page, approval: Mapping[str, Any], button: str) -> None:
    """Decides an approval on its page, and sees it decided."""
    page.goto(f"/approvals/{approval['id']}/")
    page.get_by_role("button", name=button).click()
    expect(page.get_by_role("heading", name="The decision")).to_be_visible()


def lose_push(page: Page) -> None:
    """From now on no websocket of this page opens."""

    def close(socket: WebSocketRoute) -> None:
        socket.close()

    page.route_web_socket("**/ws/live/", close)


def stop_looking(page: Page) -> None:
    """The page does not look by itself every few seconds: it knows what it is told, or nothing."""
    page.add_init_script("window.setInterval = () => 0")


def lose_parts(page: Page) -> None:
    """From now on this page learns nothing by asking either."""

    def nothing_new(route: Route) -> None:
        route.fulfill(status=204)

    page.route(re.compile(r"[?&]part="), nothing_new)


def mark(page: Page) -> None:
    """Leaves a mark that does not survive loading the page again."""
    page.evaluate("window.isStillTheSamePage = true")


def marked(page: Page) -> bool:
    """Whether it is still the page that was marked."""
    return bool(page.evaluate("window.isStillTheSamePage === true"))
