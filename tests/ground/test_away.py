"""The database's trouble is told as such, 503 with Retry-After, wherever in a request it came up."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, ProgrammingError
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import include, path

from approvals.models.trouble import is_trouble
from durable_app.urls import handler500 as handler500


class _Cause(Exception):
    def __init__(self, **codes: str) -> None:
        super().__init__("a secret of the database")
        vars(self).update(codes)


def caused(error: type[DatabaseError | InterfaceError], **codes: str) -> Exception:
    made = error("a secret of the database")
    made.__cause__ = _Cause(**codes)
    return made


def breaks(request: HttpRequest) -> HttpResponse:
    raise caused(OperationalError, sqlstate="57P01")


def faulty(request: HttpRequest) -> HttpResponse:
    raise caused(ProgrammingError, sqlstate="42P01")


urlpatterns = [path("breaks/", breaks), path("faulty/", faulty), path("", include("durable_app.urls"))]


def told(answer: Any, status: int) -> str:
    text = str(answer.content.decode())
    assert answer.status_code == status and "secret" not in text
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    return text


@pytest.fixture
def quiet(client: Client) -> Client:
    client.raise_request_exception = False
    return client


@pytest.mark.urls(__name__)
def test_a_view_that_lost_the_database_says_when_to_come_again(quiet: Client) -> None:
    answer = quiet.get("/breaks/")
    assert "does not answer just now" in told(answer, 503)
    assert answer["Retry-After"] == "5" and answer["Cache-Control"] == "no-store"


@pytest.mark.urls(__name__)
def test_it_is_told_over_asgi_too() -> None:
    client = AsyncClient(raise_request_exception=False)
    assert "does not answer" in told(asyncio.run(client.get("/breaks/")), 503)


@pytest.mark.urls(__name__)
def test_a_fault_of_the_code_stays_one(quiet: Client) -> None:
    answer = quiet.get("/faulty/")
    assert "Something broke here" in told(answer, 500) and not answer.has_header("Retry-After")


def test_a_session_that_cannot_be_read_is_the_database_s_trouble(quiet: Client) -> None:
    """Raised while a middleware is at work, before any view."""
    quiet.cookies["sessionid"] = "x" * 32
    with mock.patch.object(SessionStore, "load", side_effect=InterfaceError("the connection is lost")):
        told(quiet.get("/"), 503)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError("the connection is lost"), True),
        (caused(OperationalError, sqlstate="40P01"), True),
        (caused(OperationalError, sqlite_errorname="SQLITE_FULL"), True),
        (caused(OperationalError, sqlite_errorname="SQLITE_ERROR"), False),
        (caused(InternalError, sqlstate="25P03"), True),
        (caused(InternalError, sqlstate="25P02"), False),
        (caused(ProgrammingError, sqlstate="42P01"), False),
        (ValueError(), False),
        (None, False),
    ],
)
def test_what_counts_as_the_database_s_trouble(error: BaseException | None, expected: bool) -> None:
    assert is_trouble(error) is expected
