"""The list of what waits for an operator."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import clock
from approvals.models import Entry, Wait
from approvals.queries import desk
from approvals.services import reconciliation
from approvals.testing import People, people
from tests.admin import flows
from tests.admin.conftest import staff

PAGE = "/reconciliations/"
QUERIES = 8  # session, account, groups, permissions, time, cases, and two for the counts beside the words


@pytest.fixture
def who(engine: Any) -> People:
    return people()


def browser(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator(who: People) -> Client:
    return browser(staff(who.operator))


def words(answer: Any) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def more_cases(like: Any, count: int) -> None:
    """Cases of the same run; nothing moves them."""
    now = clock.now()
    for position in range(100, 100 + count):
        Wait.objects.create(
            run_id=like.run_id,
            position=position,
            kind="reconciliation",
            name="crashed",
            data="{}",
            opened_at=now,
        )


def test_open_cases_the_longest_waiting_first_with_what_can_be_done(operator: Client) -> None:
    doubt, gone = flows.in_doubt(), flows.contradicted()
    answer = operator.get(PAGE)
    told = words(answer)
    assert told.index("It is not known whether “order” (admin.blind) happened.") < told.index(
        "What “upload” (admin.findable) made is gone."
    )
    assert "It happened · It did not happen · Fail the run" in told
    assert "What is there now is right · The receipt is right · Do it again" in told
    assert "admin-blind v1" in told and "effect order (admin.blind)" in told and "stopped" in told
    assert "“It did not happen” can be said in" in told  # the call may still land
    for case in (doubt, gone):
        assert f'href="/runs/{case.run_id}/"' in answer.content.decode()
        address = f"/admin/approvals/reconciliation/{case.pk}/change/"
        assert f'href="{address}"' in answer.content.decode()
        assert operator.get(address).status_code == 200


def test_what_is_gone_for_good_cannot_be_done_again(operator: Client) -> None:
    flows.contradicted("changed")
    assert "Do it again" not in words(operator.get(PAGE))


def test_a_settled_case_is_there_no_more(operator: Client, who: People) -> None:
    case = flows.crashed()
    assert "raised KeyError" in words(operator.get(PAGE))
    reconciliation.resolve(case.pk, actor=who.operator, resolution="fail", note="not worth it")
    assert "Nothing waits for an operator." in words(operator.get(PAGE))


def test_an_operator_who_is_no_staff_is_told_the_command(who: People) -> None:
    case = flows.crashed()
    answer = browser(who.operator).get(PAGE)
    assert f"manage.py reconciliation show {case.pk}" in words(answer)
    assert "/admin/" not in answer.content.decode()


def test_to_others_there_is_no_such_page(who: People) -> None:
    flows.crashed()
    for user in (who.requester, staff(who.reviewers[0]), who.outsider):
        client = browser(user)
        for address in (PAGE, f"{PAGE}?part=list"):
            answer = client.get(address)
            assert answer.status_code == 404 and "KeyError" not in answer.content.decode()
        assert PAGE not in client.get("/runs/").content.decode()
    assert Client().get(PAGE)["Location"] == f"/sign-in/?next={PAGE}"


def test_looking_changes_nothing_and_nothing_can_be_sent(operator: Client) -> None:
    flows.in_doubt()
    before = list(Entry.objects.order_by("run", "seq").values_list())
    for ask in (operator.get, operator.head, operator.options):
        ask(PAGE)
    assert operator.post(PAGE, {"resolution": "fail"}).status_code == 405
    assert list(Entry.objects.order_by("run", "seq").values_list()) == before


def test_the_list_comes_alone_with_the_time_that_it_was_read_at(operator: Client) -> None:
    case = flows.crashed()
    before = clock.now().timestamp() * 1_000_000
    part = operator.get(f"{PAGE}?part=list").content.decode().strip()
    assert part.startswith('<section id="part-list" data-part="list" data-rows') and part.endswith(
        "</section>"
    )
    version = re.search(r'data-version="(\d+)"', part)
    assert version and before <= int(version[1]) <= clock.now().timestamp() * 1_000_000
    assert f'<li id="row-{case.pk}" data-row>' in part
    assert operator.get(f"{PAGE}?part=nope").status_code == 404


def test_what_code_said_is_escaped(operator: Client) -> None:
    case = flows.crashed()
    Wait.objects.filter(pk=case.pk).update(data='{"type": "<b>Odd</b>", "where": "x"}')
    assert "&lt;b&gt;Odd&lt;/b&gt;" in operator.get(PAGE).content.decode()


@pytest.mark.parametrize("count", [3, 30])
def test_a_page_costs_the_same_whatever_it_shows(operator: Client, count: int) -> None:
    more_cases(flows.crashed(), count - 1)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        answer = operator.get(PAGE)
    assert answer.content.count(b"data-row>") == count
    assert len(asked) == QUERIES


def test_many_come_in_pages(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    more_cases(flows.crashed(), 4)
    monkeypatch.setattr(desk, "PAGE", 2)
    address, seen = PAGE, []
    while address:
        text = operator.get(address).content.decode()
        seen += re.findall(r'<li id="row-([^"]+)"', text)
        further = re.search(r'href="(\?after=[^"]+)"', text)
        address = f"{PAGE}{further[1]}" if further else ""
    assert seen == [
        str(pk) for pk in Wait.objects.order_by("id").filter(status="open").values_list("pk", flat=True)
    ]
    assert "No more cases." in words(operator.get(f"{PAGE}?after={seen[-1]}"))
    assert operator.get(f"{PAGE}?after=nonsense").status_code == 404
