"""Poison at the doors of people: every address of the pages, the operators' desk, and a command's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from approvals import Context
from approvals.models import Reconciliation, Run, Wait
from approvals.services import runs
from approvals.testing import assert_invariants, drive, people
from approvals.web.urls import urlpatterns
from tests.admin import flows
from tests.commands.conftest import manage  # noqa: F401  # a fixture
from tests.engine.make import flow
from tests.web import asking

pytestmark = pytest.mark.usefixtures("engine")

FORM = "application/x-www-form-urlencoded"
TYPED: dict[str, bytes] = {
    "nul": b"a\x00b",
    "surrogate": b"\xed\xa0\x80",
    "escaped surrogate": b'{"a": "\\ud800"}',
    "no utf-8": b"\xff\xfe",
    "nan": b"NaN",
    "2^53+1": b"9007199254740993",
    "10^5000": b"1" + b"0" * 5_000,
    "depth 10,000": b"[" * 10_000 + b"]" * 10_000,
    "900 kB": b"x" * 900_000,
}
# What can be typed at each address: in its query, and in its form.
QUERIES: dict[str, list[str]] = {
    "inbox": ["after", "part"],
    "approval": ["whole", "part"],
    "runs": ["q", "status", "workflow", "mine", "after", "part"],
    "run": ["before", "whole", "part"],
    "workflows": ["part"],
    "start": ["part"],
    "reconciliations": ["after", "part"],
    "sign-in": ["next"],
    "sign-out": [],
    "keys": [],
    "approval-file": [],
    "run-file": [],
}
FORMS: dict[str, list[str]] = {
    "approval": ["comment", "outcome", "digest", "revision", "seen", "form.reason", "form.amount"],
    "run": ["do", "reason", "seen"],
    "start": ["input", "key", "form_id"],
    "sign-in": ["username", "password", "next"],
    "sign-out": ["next"],
    "keys": ["keys"],
    "desk": ["resolution", "note", "external_id", "checksum"],
}
SENT: dict[str, dict[str, str]] = {
    "run": {"do": "cancel", "reason": "x"},
    "desk": {"resolution": "fail", "note": "x"},
}


@flow
def takes(ctx: Context, text: str) -> str:
    return text


@pytest.fixture
def doors() -> dict[str, str]:
    """The address of each door, with something behind it."""
    approval, run = asking.ask_about({"form": True}).pk, runs.start(takes, "x").id
    at: dict[str, tuple[Any, ...]] = {
        "approval": (approval,),
        "approval-file": (approval, "\x00\ud7ff"),
        "run": (run,),
        "run-file": (run, "0" * 5_000),
        "start": (takes.name,),
    }
    found = {str(p.name): reverse(str(p.name), args=at.get(str(p.name), ())) for p in urlpatterns}
    return {**found, "desk": f"/admin/approvals/reconciliation/{flows.crashed().pk}/resolve/"}


def _browser(**options: Any) -> Client:
    user, _ = get_user_model().objects.get_or_create(
        username="everybody", defaults={"is_superuser": True, "is_staff": True}
    )
    user.groups.set(people().reviewers[0].groups.all())
    client = Client(**options)
    client.force_login(user)
    return client


def _everything() -> list[tuple[Any, ...]]:
    found = Run.objects.order_by("pk").values_list("pk", "status", "cancel_requested_at", "seq")
    waits = Wait.objects.order_by("pk").values_list("pk", "status", "outcome")
    return [*found, *waits]


def _told(answer: Any, door: str, what: str) -> None:
    assert answer.status_code < 500, (door, what)
    assert b"Traceback" not in answer.content and b".py&quot;, line" not in answer.content, (door, what)


def test_every_address_is_tried() -> None:
    assert {p.name for p in urlpatterns} == set(QUERIES) and set(FORMS) <= {*QUERIES, "desk"}


@pytest.mark.parametrize("door", QUERIES)
def test_no_query_breaks_a_page(door: str, doors: dict[str, str]) -> None:
    before, client = _everything(), _browser()
    _told(client.get(doors[door]), door, "as it is")
    for name in QUERIES[door]:
        for what, text in TYPED.items():
            if what != "900 kB":  # no server passes such an address on
                _told(client.get(f"{doors[door]}?{name}={quote_from_bytes(text)}"), door, f"{name}: {what}")
    assert _everything() == before


@pytest.mark.parametrize("door", FORMS)
def test_no_form_breaks_its_page_and_what_is_refused_changes_nothing(
    door: str, doors: dict[str, str]
) -> None:
    client = _browser()
    for place, name in enumerate(FORMS[door]):
        for what, text in list(TYPED.items())[place % 3 :: 3]:
            before = _everything()
            sent = {n: quote_from_bytes(t.encode()) for n, t in SENT.get(door, {}).items()}
            sent[name] = quote_from_bytes(text)
            body = "&".join(f"{n}={t}" for n, t in sent.items())
            answer = client.post(doors[door], body, content_type=FORM)
            _told(answer, door, f"{name}: {what}")
            if answer.status_code >= 400:
                assert _everything() == before, (door, name, what)
            if door == "sign-out":
                client = _browser()
    drive()
    assert_invariants()


@pytest.mark.parametrize("door", FORMS)
@pytest.mark.parametrize(
    ("body", "strict", "status"),
    [
        (b"&".join(b"k%d=1" % n for n in range(50_000)), False, 400),
        (b"comment=" + b"x" * 5_000_000, False, 400),
        (b"outcome=approved", True, 403),
        (b"csrfmiddlewaretoken=" + b"a" * 64, True, 403),
        (b"csrfmiddlewaretoken=%00%ED%A0%80", True, 403),
    ],
    ids=["50,000 fields", "5 MB", "no token", "forged token", "no text as token"],
)
def test_a_form_that_is_none_is_refused_with_a_page(
    door: str, body: bytes, strict: bool, status: int, doors: dict[str, str]
) -> None:
    before = _everything()
    answer = _browser(enforce_csrf_checks=strict).generic("POST", doors[door], body, content_type=FORM)
    _told(answer, door, "")
    assert answer.status_code == status and b"<h1>" in answer.content and _everything() == before


def test_a_file_that_is_no_text_is_no_value(tmp_path: Path, manage: Callable[..., Any]) -> None:  # noqa: F811
    (tmp_path / "it").write_bytes(b'"\x00\xff"')
    ended = manage("runs", "start", takes.name, "--input", f"@{tmp_path / 'it'}")
    assert ended.code == 2 and "UTF-8" in ended.out + ended.err and not Run.objects.exists()


def test_a_case_s_note_is_kept_as_far_as_it_is_text() -> None:
    case = flows.crashed()
    path = f"/admin/approvals/reconciliation/{case.pk}/resolve/"
    answer = _browser().post(path, b"resolution=fail&note=saw+%ED%A0%80", content_type=FORM)
    assert answer.status_code == 302 and Reconciliation.objects.get(pk=case.pk).outcome == "fail"
