"""No text becomes markup: each is planted with some, and every page that can be reached is looked at."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from django.test import Client

from approvals.models import Approval
from tests.web import asking
from tests.web.planted import PLANTED, plant, world

MOST_PAGES = 150
NUMBER = re.compile(r"onerror=x(\d+)x")
LIVE = re.compile(r"<img src=x|onerror=x\d+x(?:>|&gt;[\"'])")
NOT_FOLLOWED = re.compile(
    r"/(?:sign-out|admin/(?:logout|jsi18n|password_change|auth))/|/files/|/admin/.*\?|/delete/|/history/"
    r"|/workflows/(?!planted)[^/]+/start/"  # of other tests in this process
)


class Markup(HTMLParser):
    """What a page is made of: its tags, the names of their attributes, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.links: list[str] = []
        self.parts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        own = tag == "img" and str(given.get("src")).startswith("/static/")
        if tag in ("img", "iframe", "object", "embed", "base") and not own:
            self.wrong.append(tag)
        self.wrong += [
            name for name in given if name.startswith("on") or not re.fullmatch(r"[a-z0-9:-]+", name)
        ]
        for name in ("href", "src", "action", "formaction", "hx-get", "hx-post"):
            if re.match(r"\s*(?:javascript|data|vbscript):", given.get(name) or "", re.IGNORECASE):
                self.wrong.append(f"{name}={given[name]}")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if given.get("data-part"):
            self.parts.append(given["data-part"] or "")


def looked_at(answer: Any) -> tuple[Markup, set[int]]:
    """What is on a page, once nothing on it came alive; and the planted texts that it shows."""
    text = answer.content.decode()
    address = answer.request["PATH_INFO"]
    assert not LIVE.search(text), (address, LIVE.findall(text))
    page = Markup(text)
    assert not page.wrong, (address, page.wrong)
    return page, {int(number) for number in NUMBER.findall(html.unescape(unquote(text)))}


def crawled(client: Client) -> Iterator[set[int]]:
    """Every page that links lead to from the first one, and each of its parts by itself."""
    waiting, known = ["/", "/admin/"], {"/", "/admin/"}
    while waiting:
        address = waiting.pop(0)
        answer = client.get(address)
        assert answer.status_code in (200, 302), (address, answer.status_code)
        page, shown = looked_at(answer)
        yield shown
        for part in page.parts:
            yield looked_at(client.get(address, query_params={"part": part}))[1]
        for link in page.links:
            found = urldefrag(urljoin(address, link)).url
            if found.startswith("/") and found not in known and not NOT_FOLLOWED.search(found):
                known.add(found)
                waiting.append(found)
    assert 30 < len(known) < MOST_PAGES, len(known)


def refused(client: Client, approval: Approval) -> Iterator[set[int]]:
    """The pages that show again what was typed, or asked for."""
    odd = plant("what somebody types")
    start, run = "/workflows/planted/start/", f"/runs/{approval.wait.run_id}/"
    for answer in (
        client.get("/runs/", {"q": odd, "workflow": odd, "status": odd, "after": ""}),
        client.get("/", {"show": odd, "after": odd}),
        client.get(f"/{odd}/"),
        client.get(run, {"part": odd}),
        client.get("/runs/", {"after": odd}),
        client.post(run, {"do": odd, "reason": odd}),
        client.post(start, {"key": odd + "\0", "input": odd, "form_id": odd}),
        client.post(asking.url(approval), {"outcome": odd, "comment": odd, "digest": odd, "revision": odd}),
        asking.post(client, approval, comment=odd, digest="0" * 64),
        Client().post("/sign-in/", {"username": odd, "password": odd, "next": odd}),
        Client().get("/sign-in/", {"next": odd}),
    ):
        assert answer.status_code < 500
        yield looked_at(answer)[1]


def stored_links(client: Client, approval: Approval) -> Iterator[set[int]]:
    """Links that no `Link` would take, as they might lie in a database."""
    for url in (
        "javascript:x",
        "javascript://example.org/%0ax",
        " JaVaScRiPt:x",
        "data:text/html,x",
        "vbscript:x",
        "\tjavascript:x",
        plant("stored link"),
    ):
        stored = [{"type": "link", "title": "Click", "url": url}]
        Approval.objects.filter(pk=approval.pk).update(evidence=json.dumps(stored))
        yield looked_at(client.get(asking.url(approval)))[1]


def told_who_may(requester: Any) -> Iterator[set[int]]:
    """What somebody reads who may not start it."""
    client = Client()
    client.force_login(requester)
    for address in ("/workflows/", "/workflows/planted/start/"):
        yield looked_at(client.get(address))[1]


def test_what_anybody_wrote_is_text_on_every_page(engine: Any) -> None:
    viewer, approval = world()
    client = Client()
    client.force_login(viewer)
    shown = set().union(*crawled(client), *refused(client, approval), *stored_links(client, approval))
    shown |= set().union(*told_who_may(approval.wait.run.requester))
    assert {what for what, number in PLANTED.items() if number not in shown} == set()
