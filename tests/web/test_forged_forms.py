"""Every door that takes a POST, as the addresses tell: without this site's sign nothing happens, and it is said."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.views.decorators.csrf import csrf_exempt

from approvals.models import Decision, Entry, Run
from approvals.testing import People, people
from tests.web import asking

NO_FORM = re.compile(r"healthz|readyz|favicon|files/|^static")


def doors(patterns: Any = None, before: str = "") -> Iterator[str]:
    """Every address of the site, with examples where one has a variable part."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from doors(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route


def filled(route: str, known: dict[str, str]) -> str:
    """The address, its variable parts filled in."""
    plain = re.sub(r"<(?:\w+:)?(\w+)>", lambda found: known.get(found[1], "1"), route)
    plain = re.sub(r"\(\?P<(\w+)>[^)]*\)", lambda found: known.get(found[1], "1"), plain)
    return "/" + plain.replace("^", "").replace("$", "")


def counts() -> tuple[int, ...]:
    return Run.objects.count(), Entry.objects.count(), Decision.objects.count(), User.objects.count()


@pytest.fixture
def operator(who: People) -> Any:
    """Somebody who may do everything that can be done here."""
    who.operator.is_staff = who.operator.is_superuser = True
    who.operator.save()
    return who.operator


def test_no_view_is_exempt(db: None) -> None:
    def views(patterns: Any) -> Iterator[Any]:
        for pattern in patterns:
            yield from views(pattern.url_patterns) if isinstance(pattern, URLResolver) else [pattern.callback]

    exempt = [view for view in views(get_resolver().url_patterns) if getattr(view, "csrf_exempt", False)]
    assert exempt == [] and csrf_exempt(lambda request: None).csrf_exempt  # type: ignore[attr-defined]
    assert "django.middleware.csrf.CsrfViewMiddleware" in settings.MIDDLEWARE


@pytest.mark.parametrize("sign", ["", "forged", "of another session"])
def test_every_door_refuses_a_form_without_its_sign(operator: Any, sign: str) -> None:
    approval = asking.ask()
    known = {"wait_id": str(approval.pk), "run_id": str(approval.wait.run_id), "name": "web-letter"}
    known |= {"object_id": str(approval.wait.run_id), "file_id": "0" * 32, "app_label": "approvals"}
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)
    client.get("/workflows/")  # a cookie with a token of its own
    typed: dict[str, str] = {
        "outcome": "approved",
        "digest": approval.digest,
        "revision": "1",
        "do": "cancel",
    }
    typed |= {"reason": "x", "keys": "off", "input": "x", "comment": "what I typed"}
    if sign:
        typed["csrfmiddlewaretoken"] = token() if sign == "of another session" else "x" * 64
    before, seen = counts(), 0
    for route in doors():
        if NO_FORM.search(route):
            continue
        answer = client.post(filled(route, known), typed)
        assert answer.status_code == 403, (route, answer.status_code)
        told = html.unescape(answer.content.decode())
        assert "That form could not be accepted" in told and "Nothing was changed" in told, route
        assert "default-src 'self'" in answer["Content-Security-Policy"]
        seen += 1
    assert seen > 40  # the admin's are among them
    assert counts() == before and client.get("/").status_code == 200  # still signed in


def token() -> str:
    """One of somebody else's."""
    other = Client()
    other.force_login(people().outsider)
    page = other.get("/workflows/").content.decode()
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert found is not None
    return found[1]


def test_a_form_that_other_hosts_send_is_refused(operator: Any) -> None:
    """With a right token even: what Origin says is believed first."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)
    page = client.get("/").content.decode()
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert found is not None
    sent = {"csrfmiddlewaretoken": found[1], "keys": "off"}
    for origin in ("https://elsewhere.example", "null"):
        assert client.post("/keys/", sent, headers={"Origin": origin}).status_code == 403
    assert client.post("/keys/", sent, headers={"Origin": "http://testserver"}).status_code == 303
