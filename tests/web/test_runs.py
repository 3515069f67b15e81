"""The list of runs: the newest first, what each waits for, filtered and paged by a form that needs no JavaScript."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Entry, Run
from approvals.queries import runs_pages
from approvals.services import runs
from approvals.testing import People, drive, people

from . import run_flows as flows
from .page import Page

Browser = Callable[..., Client]
PAGE = "/runs/"
QUERIES = 9  # session, account, groups, permissions, time, runs, their open waits, and two for the counts


@pytest.fixture
def operator(browser: Browser, who: People) -> Client:
    return browser(who.operator)


def words(answer: Any) -> str:
    """What a reader sees of the list itself."""
    text = answer.content.decode()
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text[text.index('id="part-list"') :])).split())


def listed(answer: Any) -> list[str]:
    """The ids of the rows, in order."""
    return re.findall(r'<li id="row-([0-9a-f-]+)"', answer.content.decode())


def some(count: int, **columns: Any) -> list[Run]:
    """Rows as a start leaves them."""
    rows = [
        Run(workflow="runpage-story", version=3, input="{}", seed=like.id, ready_at=like.created_at,
            created_at=like.created_at, **columns)
        for like in [runs.start(flows.story, flows.Order(), requester=people().requester)]
        for _ in range(count)
    ]  # fmt: skip
    return Run.objects.bulk_create(rows)


def test_each_row_says_what_it_is_and_what_it_waits_for_the_newest_first(operator: Client) -> None:
    made = [flows.asking(key="november"), flows.waiting(), flows.doubtful()]
    failed = runs.start(flows.failing, flows.Order(), requester=people().requester)
    drive()
    answer = operator.get(PAGE)
    assert listed(answer) == [str(run.id) for run in reversed([*made, failed])]
    told = words(answer)
    for expected in (
        "november runpage-story v3",
        "by rita 0 of 1 · counting 0 waiting for approval started",
        "waiting for a message",
        "waiting for an operator",
        "failed ended",
    ):
        assert expected in told
    assert "hunter2" not in answer.content.decode()


def test_people_see_the_runs_that_are_theirs_to_see(who: People, browser: Browser, operator: Client) -> None:
    hidden = runs.start(flows.steps, flows.Order(), requester=who.operator)
    mine = runs.start(flows.steps, flows.Order(), requester=who.requester)
    assert listed(operator.get(PAGE)) == [str(mine.id), str(hidden.id)]
    assert listed(browser(who.requester).get(PAGE)) == [str(mine.id)]
    assert listed(browser(who.outsider).get(PAGE)) == []
    assert listed(browser(who.outsider).get(PAGE, {"q": str(hidden.id)})) == []


def test_strangers_sign_in_and_a_list_changes_nothing(operator: Client) -> None:
    flows.waiting()
    before = list(Run.objects.values()), Entry.objects.count()
    assert Client().get(PAGE).status_code == 302
    assert Client().get(PAGE, {"part": "list"}).status_code == 401
    for method, status in (("GET", 200), ("HEAD", 200), ("POST", 405), ("PUT", 405), ("DELETE", 405)):
        assert operator.generic(method, PAGE).status_code == status
    assert (list(Run.objects.values()), Entry.objects.count()) == before


def test_filters_by_status(operator: Client) -> None:
    asking, waiting, case = flows.asking(), flows.waiting(), flows.doubtful()
    done = runs.start(flows.odd, flows.Order())
    drive()
    new = runs.start(flows.story, flows.Order())

    def found(status: str) -> set[str]:
        return set(listed(operator.get(PAGE, {"status": status})))

    assert found("approval") == {str(asking.id)}
    assert found("operator") == {str(case.id)}
    assert found("waiting") == {str(asking.id), str(waiting.id), str(case.id)}
    assert found("completed") == {str(done.id)}
    assert found("working") == {str(new.id)}
    assert found("paused") == set()
    assert len(found("no such status")) == 5


def test_searches_by_key_id_the_end_of_an_id_and_requester(who: People, operator: Client) -> None:
    one = flows.waiting(key="Invoice 7/2026")
    other = runs.start(flows.odd, flows.Order(), requester=who.operator)

    def found(**given: str) -> list[str]:
        return listed(operator.get(PAGE, given))

    assert found(q="invoice 7") == [str(one.id)] == found(q=str(one.id)) == found(q=f"…{str(one.id)[-8:]}")
    assert found(q="rita") == [str(one.id)]
    assert found(workflow="runpage-odd") == [str(other.id)] == found(mine="1")
    assert found(q="olaf", workflow="runpage-story") == []


def test_what_is_old_is_found_by_its_whole_key_or_id_and_by_no_part(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_pages, "SEARCHED", 2)
    old, *_ = flows.waiting(key="Invoice 7/2026"), flows.waiting(), flows.waiting()

    def found(typed: str) -> list[str]:
        return listed(operator.get(PAGE, {"q": typed}))

    assert found("Invoice 7/2026") == [str(old.id)] == found(str(old.id))
    assert found("invoice 7") == [] and len(found("runpage")) == 2
    assert "Searched in the newest 2 runs" in words(operator.get(PAGE, {"q": "invoice 7"}))


@pytest.mark.parametrize("typed", ["%", "_", "a\x00b", "\ud800", "' OR 1=1", "9" * 5_000, "\u202e"])
def test_whatever_is_typed_is_only_searched_for(operator: Client, typed: str) -> None:
    flows.waiting()
    encoded = typed.encode("utf-8", "surrogatepass")
    for name in ("q", "status", "workflow"):
        answer = operator.get(PAGE, {name: encoded})
        assert answer.status_code == 200
        if name != "status":
            assert listed(answer) == []


def test_what_is_no_place_in_the_list_is_not_found(operator: Client) -> None:
    assert operator.get(PAGE, {"after": "yesterday"}).status_code == 404
    assert operator.get(PAGE, {"part": "nothing"}).status_code == 404


def test_pages_lead_through_all_runs_once_and_keep_the_filter(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_pages, "PAGE_ROWS", 2)
    made = [str(row.pk) for row in some(5, key=None)]
    address, seen = f"{PAGE}?workflow=runpage-story&q=runpage", []
    while address:
        answer = operator.get(address)
        seen += listed(answer)
        older = [link for link in Page(answer.content.decode()).links if "after=" in link]
        assert all("workflow=runpage-story" in link and "q=runpage" in link for link in older)
        address = f"{PAGE}{older[0]}" if older else ""
    assert len(seen) == 6
    assert len(set(seen)) == 6
    assert set(made) <= set(seen)
    assert seen == sorted(seen, reverse=True)
    assert "There is nothing older" in words(operator.get(f"{PAGE}?after={seen[-1]}"))


def test_an_empty_list_says_what_to_do(operator: Client) -> None:
    nothing = operator.get(PAGE)
    assert "No run has been started yet" in words(nothing)
    assert "/workflows/" in Page(nothing.content.decode()).links
    flows.waiting()
    none = operator.get(PAGE, {"status": "failed"})
    assert "No run is like that" in words(none)
    assert PAGE in Page(none.content.decode()).links


def test_the_form_keeps_what_was_asked_and_works_as_a_plain_one(operator: Client) -> None:
    page = Page(operator.get(PAGE, {"q": "nov", "status": "failed", "mine": "1"}).content.decode())
    posted = {name: values for name, values in page.data().items() if name != "csrfmiddlewaretoken"}
    assert posted["q"] == ["nov"]
    assert posted["status"] == ["failed"]
    assert posted["mine"] == ["1"]


def test_the_list_is_a_part_of_its_own_whose_version_grows(operator: Client) -> None:
    run = flows.waiting()
    versions = []
    for _ in range(2):
        answer = operator.get(PAGE, {"part": "list", "status": "waiting"}).content.decode()
        assert answer.strip().startswith('<ul class="rows" id="part-list"')
        assert f'id="row-{run.id}"' in answer
        assert "<html" not in answer
        versions += [int(v) for v in re.findall(r'data-version="(\d+)"', answer)]
    assert len(versions) == 2
    assert versions[0] <= versions[1]


@pytest.mark.parametrize("count", [3, 30])
def test_the_same_few_queries_for_any_number_of_runs(operator: Client, count: int) -> None:
    some(count)
    flows.waiting()
    operator.get(PAGE)
    with CaptureQueriesContext(connection) as asked:
        operator.get(PAGE)
    assert len(asked) == QUERIES
