"""The inbox: three lists, in an order that holds, in a fixed number of queries."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Decision, Entry, Wait
from approvals.queries import inbox as inboxes
from approvals.testing import clock

from . import asking
from .asking import words

QUERIES = 9  # session and person 4, time, rows and decisions 2, counts 2 (the rail shows one of them)


def shown(answer: Any) -> list[str]:
    return re.findall(r'<li id="row-([0-9a-f-]+)"', answer.content.decode())


def rows(client: Client, query: str = "") -> list[str]:
    return shown(client.get(f"/{query}"))


def test_what_waits_for_me_with_what_i_need_to_choose(vera: Client) -> None:
    approval = asking.ask("Ada")
    answer = vera.get("/")
    told = words(answer)
    assert shown(answer) == [str(approval.pk)]
    for expected in (
        "(1) Inbox · Durable",
        "1 decision waits for you",
        "Letter to Ada",
        "Send a letter to Ada.",
        "web-letter v1",
        "for rita",
        "irreversible",
        "high risk",
        "0 of 1 approved",
        "no deadline",
    ):
        assert expected in told


def test_the_due_come_first_then_the_oldest(vera: Client) -> None:
    old, late, soon, new = (asking.ask(name) for name in ("old", "late", "soon", "new"))
    for approval, hours in ((late, 5), (soon, 0.5)):
        Wait.objects.filter(pk=approval.pk).update(due_at=approval.wait.opened_at + timedelta(hours=hours))
    answer = vera.get("/")
    assert shown(answer) == [str(a.pk) for a in (soon, late, old, new)]
    assert re.search(r'class="due soon">due <time [^>]*>in \d+ minutes', answer.content.decode())
    clock.shift(timedelta(hours=1))
    expired = words(vera.get("/"))
    assert "expired" in expired and "in 3 hours" in expired


def test_the_requester_is_not_asked_but_sees_it_wait(rita: Client) -> None:
    approval = asking.ask()
    answer = rita.get("/")
    assert shown(answer) == [] and "Nothing waits for you" in words(answer)
    assert "See what waits for others" in words(answer)
    assert rows(rita, "?show=all") == [str(approval.pk)]


def test_what_i_decided_waits_for_others_until_it_is_settled(vera: Client, sam: Client, who: Any) -> None:
    approval = asking.ask_two()
    asking.decide(approval, who.reviewers[0])
    assert rows(vera) == [] and rows(sam) == [str(approval.pk)]
    assert "1 of 2 approved" in words(vera.get("/?show=all"))
    asking.decide(approval, who.reviewers[1], "rejected")
    assert rows(sam) == rows(vera, "?show=all") == []
    told = words(vera.get("/?show=decided"))
    assert "rejected" in told and "sam-reviewers, vera-reviewers" in told.replace(
        "vera-reviewers, sam-reviewers", "sam-reviewers, vera-reviewers"
    )


def test_the_newest_decision_comes_first(vera: Client, who: Any) -> None:
    first, second = asking.ask("A"), asking.ask("B")
    asking.decide(second, who.reviewers[1])
    asking.decide(first, who.reviewers[1])
    assert rows(vera, "?show=decided") == [str(first.pk), str(second.pk)]


@pytest.mark.parametrize("show", ["mine", "all", "decided"])
def test_pages_follow_one_another_without_gap_or_repeat(
    vera: Client, who: Any, monkeypatch: Any, show: str
) -> None:
    monkeypatch.setattr(inboxes, "PAGE", 2)
    asked = [asking.ask(str(number)) for number in range(5)]
    for approval, hours in zip(asked[:3], (3, 1, 3), strict=True):
        Wait.objects.filter(pk=approval.pk).update(due_at=asked[0].wait.opened_at + timedelta(hours=hours))
    if show == "decided":
        for approval in asked:
            asking.decide(approval, who.reviewers[1])
    seen: list[str] = []
    address = f"/?show={show}"
    for page in (2, 2, 1):
        answer = vera.get(address)
        found = shown(answer)
        assert len(found) == page
        seen += found
        following = re.search(r'href="(\?show=\w+&amp;after=[^"]+)"', answer.content.decode())
        address = "/" + following[1].replace("&amp;", "&") if following else ""
    assert address == ""
    by_due = [asked[number] for number in (1, 0, 2, 3, 4)]
    assert seen == [str(a.pk) for a in (asked[::-1] if show == "decided" else by_due)]


@pytest.mark.parametrize(
    "after", ["x", ".", "1.2", "9" * 30 + ".", "9" * 5000 + "." + "0" * 32, "\x00.\x00", "." + "z" * 32]
)
@pytest.mark.parametrize("show", ["mine", "decided"])
def test_a_mangled_cursor_is_no_page(vera: Client, after: str, show: str) -> None:
    assert vera.get("/", {"show": show, "after": after}).status_code == 404


def test_a_hundred_are_not_counted_to_the_last(vera: Client) -> None:
    asking.copy(asking.ask(), 99)
    answer = vera.get("/")
    for expected in ("(99+) Inbox", "99+ decisions wait for you", "Waiting for me 99+", "All waiting 99+"):
        assert expected in words(answer)
    assert words(answer).count("99+ waiting for you") == 1


def test_an_unknown_tab_is_the_first(vera: Client) -> None:
    approval = asking.ask()
    assert rows(vera, "?show=nonsense") == [str(approval.pk)]


@pytest.mark.parametrize(
    ("show", "told"),
    [
        ("mine", "Nothing waits for you"),
        ("all", "Nothing waits for anybody"),
        ("decided", "Nothing was decided yet"),
    ],
)
def test_an_empty_list_says_what_to_do(vera: Client, show: str, told: str) -> None:
    answer = vera.get(f"/?show={show}")
    assert told in words(answer)
    assert re.search(r'<li class="empty">.*?<a class="go" href="[^"]+">', answer.content.decode(), re.DOTALL)


def test_a_part_is_only_that_part(vera: Client) -> None:
    asking.ask()
    answer = vera.get("/?show=all&part=list")
    text = answer.content.decode().strip()
    assert text.startswith("<ul") and text.endswith("</ul>") and "data-rows" in text
    assert int(re.findall(r'data-version="(\d+)"', text)[0]) > 1_700_000_000_000_000
    assert vera.get("/?part=nonsense").status_code == 404


def test_an_outsider_sees_nothing_and_nobody_signs_in(browser: Any, who: Any) -> None:
    asking.ask()
    outsider = browser(who.outsider)
    for show in ("mine", "all", "decided"):
        assert rows(outsider, f"?show={show}") == []
    answer = Client().get("/")
    assert answer.status_code == 302 and answer["Location"].startswith("/sign-in/")


def test_looking_changes_nothing(vera: Client) -> None:
    asking.ask()
    before = Entry.objects.count()
    assert vera.get("/").status_code == vera.head("/").status_code == 200
    for method in ("post", "put", "delete", "patch"):
        assert getattr(vera, method)("/").status_code == 405
    assert Entry.objects.count() == before and not Decision.objects.exists()


def test_thirty_rows_take_no_more_queries_than_three(vera: Client, who: Any) -> None:
    first, decided = asking.ask("open"), asking.ask("decided")
    asking.decide(decided, who.reviewers[1])
    counts = []
    for more in (2, 27):
        asking.copy(first, more)
        asking.copy(decided, more)
        for show in inboxes.WHICH:
            with CaptureQueriesContext(connection) as counted:
                assert len(shown(vera.get(f"/?show={show}"))) == (3 if more == 2 else 30)
            counts.append(len(counted))
    assert counts == [QUERIES] * 6


def test_names_that_others_chose_are_text_with_every_character_visible(vera: Client) -> None:
    asking.ask("<script>\u202eevil")
    told = vera.get("/").content.decode()
    assert "<script>" not in told.replace('<script defer src="', "")
    assert '&lt;script&gt;<span class="odd" title="RIGHT-TO-LEFT OVERRIDE">U+202E</span>evil' in told
