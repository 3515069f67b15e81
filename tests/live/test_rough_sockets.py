"""What no page sends, sent to the real server: the socket is closed politely, and the log has no word of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from approvals.live import NOT_UNDERSTOOD
from approvals.services import runs
from approvals.testing import people
from tests.live.conftest import Page, Site, suspended
from tests.live.flows import anybodys, insiders

INVALID_TEXT, TOO_LARGE = 1007, 1009

ROUGH: dict[str, tuple[Callable[[ClientConnection], None], int]] = {
    "huge": (lambda s: s.send("x" * 20_000_000), TOO_LARGE),  # some kilobytes on the wire: it is deflated
    "huge in pieces": (lambda s: s.send("x" * 1_000_000 for _ in range(20)), TOO_LARGE),
    "large": (lambda s: s.send("[" * 1_000_000), NOT_UNDERSTOOD),
    "topics by the thousand": (lambda s: s.send(json.dumps({"topics": ["lists"] * 5_000})), NOT_UNDERSTOOD),
    "binary": (lambda s: s.send(b"\x00\xff" * 100), NOT_UNDERSTOOD),
    "no UTF-8": (lambda s: s.send(b"\xff\xfe", text=True), INVALID_TEXT),
    "no JSON": (lambda s: s.send("topics"), NOT_UNDERSTOOD),
    "another type": (lambda s: s.send('{"type": "changed", "changed": ["lists"]}'), NOT_UNDERSTOOD),
    "a large number": (lambda s: s.send('{"topics": %s}' % ("9" * 3_900)), NOT_UNDERSTOOD),
    "nothing": (lambda s: s.send(""), NOT_UNDERSTOOD),
}
HARMLESS = [
    '{"topics": []}',
    '{"topics": ["\\ud800", "run:\\u0000", NaN, {"a": 1}]}',
    '{"topics": ["lists"], "type": 1}',
]


def sent(page: Page, send: Callable[[ClientConnection], None]) -> None:
    """Sends it, and listens until the socket is closed."""
    send(page.socket)
    while True:
        page.hear()


def test_it_is_closed_with_a_reason_and_the_others_go_on(site: Site, tmp_path: Path) -> None:
    team = people()
    team.operator.groups.add(Group.objects.get_or_create(name="insiders")[0])
    hidden, own = suspended(insiders), suspended(anybodys)
    stranger, inside = site.page(team.outsider), site.page(team.operator)
    topics = [f"run:{hidden.id}", f"run:{own.id}"]
    assert stranger.follow(*topics) == [f"run:{own.id}"] and inside.follow(*topics) == sorted(topics)
    for what, (send, code) in ROUGH.items():
        page = site.page(team.outsider)
        page.follow("lists")
        with pytest.raises(ConnectionClosed) as closed:
            sent(page, send)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == code, (what, closed.value)
    odd = site.page(team.outsider)
    for frame in HARMLESS:
        odd.socket.send(frame)
        assert "joined" in odd.hear(), frame

    runs.signal(hidden.id, "go", 1)
    inside.hear_of(f"run:{hidden.id}")
    runs.signal(own.id, "go", 1)
    told: set[str] = set()
    while f"run:{own.id}" not in told:
        told |= set(stranger.hear().get("changed", []))
    assert told == {f"run:{own.id}"}
    log = (tmp_path / "up.log").read_text()
    assert "Traceback" not in log and " ERROR " not in log and "Exception" not in log, log
