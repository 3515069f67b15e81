"""The list of workflows."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import workflow
from approvals.models import Run
from approvals.workflows import registry
from tests.web import doors

PAGE = "/workflows/"
QUERIES = 6  # session, account, groups, permissions, time, and one for the count beside the inbox


@pytest.fixture
def only_doors(engine: Any) -> Any:
    """No other workflows than those of `doors`."""
    codes = (doors.guarded, doors.closed, doors.open_to_all)
    with mock.patch.dict(registry._workflows, {code.name: {1: code} for code in codes}, clear=True):
        yield


@pytest.fixture
def at(browser: Callable[..., Client]) -> Callable[[str], Client]:
    """The browser of somebody whom `doors` knows."""
    return lambda name: browser(doors.account(name))


def words(answer: Any) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


@pytest.mark.parametrize(
    ("name", "listed", "startable"),
    [
        ("stranger", ["doors-open"], []),
        ("requester", ["doors-open"], ["doors-open"]),
        ("starter", ["doors-guarded", "doors-open"], ["doors-guarded"]),
        (
            "superuser",
            ["doors-closed", "doors-guarded", "doors-open"],
            ["doors-closed", "doors-guarded", "doors-open"],
        ),
    ],
)
def test_the_workflows_that_somebody_sees_and_those_they_may_start(
    only_doors: None, at: Callable[[str], Client], name: str, listed: list[str], startable: list[str]
) -> None:
    answer = at(name).get(PAGE)
    shown = re.findall(r"doors-\w+", words(answer))
    assert sorted(set(shown)) == listed
    assert sorted(set(re.findall(r'href="/workflows/([\w-]+)/start/"', answer.content.decode()))) == startable


def test_who_may_start_it_is_said_to_whoever_may_not(only_doors: None, at: Callable[[str], Client]) -> None:
    told = words(at("reader").get(PAGE))
    assert "Started by members of starters." in told
    assert "Started by staff, and whoever has the right to start runs." in told


def test_each_is_told_by_the_first_paragraph_of_its_docstring(engine: Any, rita: Client) -> None:
    with mock.patch.dict(registry._workflows, clear=True):

        @workflow(name="told", version=7)
        def told(ctx: Any, text: str) -> str:
            """Tells <b>what</b> it does
            in two lines.

            And more.
            """
            return text

        shown = words(rita.get(PAGE))
    assert "told version 7 Tells <b>what</b> it does in two lines." in shown and "And more" not in shown


def test_an_empty_list_says_how_to_register_one(engine: Any, rita: Client) -> None:
    with mock.patch.dict(registry._workflows, clear=True):
        assert "WORKFLOW_MODULES" in words(rita.get(PAGE))


def test_who_is_signed_out_signs_in_first(engine: Any) -> None:
    answer = Client().get(PAGE)
    assert (answer.status_code, answer["Location"]) == (302, "/sign-in/?next=/workflows/")


def test_only_reading_is_possible(rita: Client) -> None:
    assert [rita.post(PAGE).status_code, rita.delete(PAGE).status_code] == [405, 405]
    assert rita.head(PAGE).status_code == 200 and not Run.objects.exists()


@pytest.mark.parametrize("count", [3, 30])
def test_the_page_takes_as_many_queries_however_many_there_are(
    only_doors: None, at: Callable[[str], Client], count: int
) -> None:
    client = at("requester")
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(registry._workflows))
        for number in range(count):
            workflow(name=f"many-{number}", version=1)(doors.open_to_all.fn)
        with CaptureQueriesContext(
            connection,
        ) as asked:
            answer = client.get(PAGE)
    assert answer.content.count(b"/start/") >= 2 * count
    assert len(asked) == QUERIES
