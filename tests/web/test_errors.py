"""Refusals that help: what was tried, what it may mean, where to go."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import get_template
from django.test import Client
from django.urls import include, path

from approvals.errors import PermissionRefused
from approvals.testing import people
from approvals.web.pages import page
from tests.live.browser import ask

ABSENT = "00000000-0000-7000-8000-000000000000"
NOT_STRICT = re.compile(r"<style|\sstyle=|\son\w+=|<script|https?://")


def breaks(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a secret of the code")


def refuses(request: HttpRequest) -> HttpResponse:
    raise PermissionDenied


@page("GET")
def refuses_as_a_service(request: HttpRequest) -> HttpResponse:
    raise PermissionRefused("Only <operators> may do that", needed="approvals.operate")


begun, goes_on = threading.Event(), threading.Event()


def lasts(request: HttpRequest) -> HttpResponse:
    begun.set()
    assert goes_on.wait(20)
    return HttpResponse(f"{get_user_model().objects.count()} people")


urlpatterns = [
    path("lasts/", lasts),
    path("breaks/", breaks),
    path("refuses/", refuses),
    path("refuses-as-a-service/", refuses_as_a_service),
    path("", include("durable_app.urls")),
]


@pytest.fixture
def rita(db: None) -> Client:
    client = Client()
    client.force_login(people().requester)
    return client


def told(answer: Any, status: int) -> str:
    """The page's text, which comes under the strict policy and brings nothing that it forbids."""
    assert answer.status_code == status
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    assert answer["X-Frame-Options"] == "DENY"
    text = str(answer.content.decode())
    assert not NOT_STRICT.search(text)
    assert "<h1>" in text and 'href="/' in text
    return text


def test_what_is_not_there_says_what_was_asked_and_what_that_may_mean(rita: Client) -> None:
    text = told(rita.get("/nonsense/<b>/"), 404)
    assert "<code>/nonsense/%3Cb%3E/</code>" in text
    assert "does not exist, or it is not yours to see" in text
    assert "signed in as rita" in text and 'href="/runs/"' in text


def test_a_stranger_learns_nothing_about_what_there_is(client: Client, db: None) -> None:
    text = told(client.get("/nonsense/"), 404)
    assert "You are not signed in." in text and 'href="/sign-in/"' in text
    assert 'href="/runs/"' not in text
    for address in (
        f"/runs/{ABSENT}/",
        f"/approvals/{ABSENT}/",
        "/reconciliations/",
        "/workflows/nope/start/",
    ):
        assert client.get(address)["Location"] == f"/sign-in/?next={address}"
        assert client.get(f"{address}?part=list").status_code == 401


MISSING = [f"/runs/{ABSENT}/", f"/approvals/{ABSENT}/", "/workflows/nope/start/", "/?part=nope"]


@pytest.mark.parametrize("address", MISSING)
def test_a_page_says_not_found_in_the_same_words(rita: Client, address: str) -> None:
    assert "not yours to see" in told(rita.get(address), 404)


@pytest.mark.urls(__name__)
def test_what_is_not_allowed_says_why_and_who_one_is(rita: Client) -> None:
    text = told(rita.get("/refuses-as-a-service/"), 403)
    assert "Only &lt;operators&gt; may do that" in text and "signed in as rita" in text
    assert "does not have the right" in told(rita.get("/refuses/"), 403)


@pytest.mark.urls(__name__)
def test_a_fault_is_told_without_a_word_of_the_code(rita: Client, caplog: pytest.LogCaptureFixture) -> None:
    rita.raise_request_exception = False
    text = told(rita.get("/breaks/"), 500)
    assert "Something broke here" in text and "RuntimeError" not in text and "secret" not in text
    assert "a secret of the code" in caplog.text


def test_a_fault_s_page_needs_neither_a_database_nor_a_request() -> None:
    assert "Something broke here" in get_template("500.html").render()


def test_a_name_that_is_not_ours_is_refused_with_a_page(client: Client) -> None:
    assert "ALLOWED_HOSTS" in told(client.get("/", headers={"Host": "evil.example"}), 400)


def test_a_form_that_is_too_large_is_refused_with_a_page(client: Client) -> None:
    sent = client.post("/sign-in/", "x" * 1_000_001, content_type="application/x-www-form-urlencoded")
    assert "too large" in told(sent, 400)


def test_a_form_without_its_sign_is_refused_with_a_page(db: None) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people().requester)
    assert "Nothing was changed" in told(client.post("/workflows/nope/start/"), 403)


def test_a_door_of_another_method_says_so_on_a_page(client: Client, db: None) -> None:
    text = told(client.get("/sign-out/"), 405)
    assert "takes POST only" in text and "Nothing was changed" in text and "where a button leads" in text
    assert client.head("/sign-out/").content == b""
    text = told(client.post("/workflows/"), 405)
    assert "takes GET and HEAD only" in text and "a page to open" in text and "a button leads" not in text


PART = b'--x\r\nContent-Disposition: form-data; name="username"\r\n\r\na\r\n'
FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (f"{FORM}; charset=rot13", b"username=a"),
        (f"{PARTS}; charset=rot13", PART + b"--x--\r\n"),
        (f"{PARTS}; charset=idna", PART + b"--x--\r\n"),
        (f"{PARTS}; charset=nope", PART + b"--x--\r\n"),
        ("multipart/form-data", PART),
        ("multipart/form-data; boundary=" + "x" * 300, PART),
        (FORM, b"a=1&" * 10_000),
        (PARTS, PART * 5_000 + b"--x--\r\n"),
        (PARTS, PART.replace(b'"username"', b'"f"; filename="g"') * 500 + b"--x--\r\n"),
        (PARTS, PART.replace(b'"username"', b'"a"' + b"; b=c" * 5_000) + b"--x--\r\n"),
    ],
    ids=["rot13", "rot13 parts", "idna", "unknown", "none", "boundary", "fields", "parts", "files", "head"],
)
def test_a_form_that_cannot_be_read_is_refused_with_a_page(
    client: Client, db: None, content_type: str, body: bytes
) -> None:
    text = told(client.generic("POST", "/sign-in/", body, content_type=content_type), 400)
    assert "could not be understood" in text


@pytest.mark.parametrize(
    ("content_type", "query"),
    [
        (b"text/plain; charset=a\x00b", b""),
        (b"text/plain; charset*=nope''%ff", b""),
        (b"text/plain; " + b"a=b;" * 3_000, b""),
        (b"", b"a=\xff\xfe"),
    ],
    ids=["nul", "charset", "long", "query"],
)
def test_a_request_that_django_cannot_even_make_is_refused_with_a_page(
    db: None, content_type: bytes, query: bytes
) -> None:
    status, headers, body = asyncio.run(ask(content_type, query))
    assert status == 400 and b"could not be understood" in body
    assert b"default-src 'self'" in headers[b"Content-Security-Policy"]


@pytest.mark.urls(__name__)
@pytest.mark.django_db(transaction=True)
def test_what_was_begun_is_finished_for_a_browser_that_left() -> None:
    """Cancelled half-way, a request keeps the connection that it has from the pool, for ever."""

    def gone() -> None:
        assert begun.wait(20)
        goes_on.set()

    status, _, body = asyncio.run(ask(path="/lasts/", leaves=gone))
    assert (status, body) == (200, b"0 people")
