"""Every hint may be lost: an open page finds out by itself."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.roads import letter, lose_push, open_approval, press, stop_looking

POLL_WITHOUT_SOCKET, POLL = 6_000, 16_000  # milliseconds, on the page's own clock
NOTE_WHAT_IS_SHOWN = """
    window.wasApprove = false;
    new MutationObserver(() => {
        const buttons = [...document.querySelectorAll("#part-buttons button")];
        window.wasApprove ||= buttons.some(button => button.textContent === "Approve");
    }).observe(document.body, {childList: true, subtree: true});
"""


def the_decision_is_shown(page: Page) -> None:
    expect(page.get_by_role("region", name="Decide", exact=True)).to_contain_text("Approved by sam")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


def test_a_page_whose_socket_never_opens_looks_by_itself(browse, site):
    _, approval = letter(site)
    vera, sam = browse("vera"), browse("sam")
    lose_push(vera)
    vera.clock.install()
    vera.goto(f"/approvals/{approval['id']}/")
    expect(vera.get_by_role("status")).to_have_text("reconnecting…")
    press(sam, approval, "Approve")
    vera.clock.run_for(POLL_WITHOUT_SOCKET)
    the_decision_is_shown(vera)


def test_a_page_whose_socket_says_nothing_looks_by_itself(browse, site):
    _, approval = letter(site)
    vera, sam = browse("vera"), browse("sam")

    def swallow(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        server.on_message(lambda told: socket.send(told) if "joined" in json.loads(told) else None)

    vera.route_web_socket("**/ws/live/", swallow)
    vera.clock.install()
    open_approval(vera, approval)
    press(sam, approval, "Approve")
    vera.clock.run_for(POLL)
    the_decision_is_shown(vera)


def test_a_page_whose_socket_comes_back_asks_what_it_missed(browse, site):
    _, approval = letter(site)
    vera, sam = browse("vera"), browse("sam")
    sockets: list[WebSocketRoute] = []
    is_away = False

    def connect(socket: WebSocketRoute) -> None:
        if is_away:
            socket.close()
            return
        sockets.append(socket)
        socket.connect_to_server()

    stop_looking(vera)
    vera.route_web_socket("**/ws/live/", connect)
    open_approval(vera, approval)
    is_away = True
    sockets[-1].close()
    expect(vera.get_by_role("status")).to_have_text("reconnecting…")
    press(sam, approval, "Approve")
    is_away = False
    the_decision_is_shown(vera)
    expect(vera.get_by_role("status")).to_have_text("live")


def test_an_older_answer_never_replaces_a_newer_one(browse, site):
    _, approval = letter(site)
    vera, sam = browse("vera"), browse("sam")
    open_approval(vera, approval)
    old = vera.request.get(f"/approvals/{approval['id']}/?part=buttons").text()
    assert "Approve" in old
    press(sam, approval, "Approve")
    the_decision_is_shown(vera)

    newer = re.sub(r'data-version="\d+"', f'data-version="{10**17}"', old).replace("Approve", "Newer")
    answers = [old, newer]
    vera.route(
        re.compile(r"[?&]part=buttons"),
        lambda route: route.fulfill(
            body=answers.pop(0) if answers else newer, content_type="text/html; charset=utf-8"
        ),
    )
    vera.evaluate(NOTE_WHAT_IS_SHOWN)
    while answers:  # requests are coalesced: two events may well be one of them
        with vera.expect_response(re.compile(r"[?&]part=buttons")):
            vera.evaluate("window.dispatchEvent(new Event('online'))")
    expect(vera.get_by_role("button", name="Newer")).to_be_visible()  # so answers do arrive
    assert vera.evaluate("window.wasApprove") is False
