"""The form that starts a run."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel, Field, SecretStr, field_validator

from approvals import Context, StoredFile, limits, workflow
from approvals.models import Run
from approvals.services import runs
from approvals.testing import People
from tests.web import doors
from tests.web.page import Page

QUERIES = 6  # session, account, groups, permissions, time, and one for the count beside the inbox


class Line(BaseModel):
    sku: str
    quantity: int = Field(1, ge=1, le=99)


class Order(BaseModel):
    """An order, as it was given by phone."""

    customer: str = Field(max_length=40)
    price: Decimal
    at: datetime
    gift: bool = True
    lines: list[Line] = []
    note: str = ""

    @field_validator("customer")
    @classmethod
    def _known(cls, name: str) -> str:
        if name == "nobody":
            raise ValueError("nobody is no customer")
        return name


class Letter(BaseModel):
    file: StoredFile
    token: SecretStr


@workflow(name="start-order", version=2)
def order(ctx: Context, order: Order) -> str:
    """Takes an order."""
    return order.customer


@workflow(name="start-letter", version=1)
def letter(ctx: Context, letter: Letter) -> int:
    return letter.file.size


@workflow(name="start-topic", version=1)
def topic(ctx: Context, topic: str) -> str:
    return topic


@workflow(name="start-numbers", version=1)
def numbers(ctx: Context, numbers: list[int]) -> int:
    return sum(numbers)


@workflow(name="start-bare", version=1)
def bare(ctx: Context, nothing: None) -> str:
    return "done"


@workflow(name="start-broken", version=1)
def broken(ctx: Context, order: Iterator[int]) -> str:
    return "never"


TYPED = {
    "input.customer": "Ada",
    "input.price": "12.50",
    "input.at": "2026-07-01T12:00",
    "input.at@": "Europe/Berlin",
}


@pytest.fixture
def rita(who: People, browser: Callable[..., Client]) -> Client:
    """The requester, who may start runs."""
    return browser(doors.account("requester"))


def address(name: str) -> str:
    return f"/workflows/{name}/start/"


def words(answer: Any) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def page_of(answer: Any) -> Page:
    return Page(answer.content.decode())


def sent(client: Client, name: str, typed: dict[str, Any] | None = None) -> Any:
    """The answer to the form of a workflow, with this typed into it."""
    return client.post(address(name), page_of(client.get(address(name))).filled(typed or {}))


def started(answer: Any) -> Any:
    """The run that an answer leads to."""
    assert answer.status_code == 303, words(answer)
    found = re.fullmatch(r"/runs/([0-9a-f-]{36})/", answer["Location"])
    assert found is not None
    return runs.get(UUID(found[1]))


def test_a_filled_form_starts_a_run_in_ones_own_name(rita: Client) -> None:
    run = started(
        sent(rita, "start-order", {**TYPED, "input.lines.0.sku": "A", "input.lines.0.quantity": "2"})
    )
    assert (run.workflow, run.version, run.requester) == ("start-order", 2, "requester")
    at = datetime.fromisoformat("2026-07-01T12:00+02:00")
    lines = [Line(sku="A", quantity=2)]
    assert run.input == Order(customer="Ada", price=Decimal("12.50"), at=at, lines=lines)


@pytest.mark.parametrize(
    ("name", "typed", "given"),
    [
        ("start-topic", {"input": "rivers\r\nand lakes"}, "rivers\nand lakes"),
        ("start-numbers", {"input": ["", "0", "1"], "input.0": "1", "input.1": "2"}, [1, 2]),
        ("start-bare", {}, None),
    ],
)
def test_an_input_that_is_no_model_is_asked_for_as_it_is(
    rita: Client, name: str, typed: dict[str, Any], given: Any
) -> None:
    assert started(sent(rita, name, typed)).input == given


def test_an_input_of_one_value_is_labelled_as_its_author_named_it(rita: Client) -> None:
    assert '<label for="input">Topic' in rita.get(address("start-topic")).content.decode()


def test_files_and_secrets_are_sent_and_stored(rita: Client) -> None:
    upload = SimpleUploadedFile("../a letter.txt", b"Dear all")
    answer = rita.get(address("start-letter"))
    assert b'enctype="multipart/form-data"' in answer.content
    typed = {**page_of(answer).filled({"input.token": "hunter2"}), "input.file": upload}
    run = started(rita.post(address("start-letter"), typed))
    assert run.input.file.read() == b"Dear all" and run.input.file.name == "a letter.txt"
    assert run.input.token.get_secret_value() == "hunter2"
    assert "hunter2" not in Run.objects.get(pk=run.id).input


def test_what_is_wrong_stands_beside_its_field_and_above_and_what_was_typed_is_kept(rita: Client) -> None:
    answer = sent(
        rita,
        "start-order",
        {**TYPED, "input.price": "much", "input.note": "<b>\r\nby hand", "input.gift": "off"},
    )
    assert answer.status_code == 422 and not Run.objects.exists()
    page = page_of(answer)
    assert "#input.price" in page.links and "input.price" in page.ids
    assert words(answer).count("“much” is not a decimal number, such as 12.50.") == 2
    again = page.data()
    assert again["input.customer"] == ["Ada"] and again["input.price"] == ["much"]
    assert again["input.note"] == ["<b>\r\nby hand"] and again["input.gift"] == ["off"]
    assert (
        started(rita.post(address("start-order"), {**again, "input.price": "1"})).input.note == "<b>\nby hand"
    )


def test_what_an_authors_validator_refuses_stands_beside_its_field(rita: Client) -> None:
    answer = sent(rita, "start-order", {**TYPED, "input.customer": "nobody", "input.lines.0.quantity": "100"})
    assert answer.status_code == 422
    for told in (
        "Lines 1, Sku : This is needed.",
        "Lines 1, Quantity : “100” was given. This should be less than or equal to 99.",
        "Customer : “nobody” was given. Nobody is no customer.",
    ):
        assert told in words(answer)

    answer = sent(rita, "start-order", {**TYPED, "input.customer": "nobody"})
    assert answer.status_code == 422
    assert words(answer).count("“nobody” was given. Nobody is no customer.") == 2


def test_a_file_that_came_with_something_wrong_is_not_called_wrong(rita: Client) -> None:
    answer = rita.post(address("start-letter"), {"input.file": SimpleUploadedFile("a.txt", b"Dear all")})
    assert "1 thing to mend Token : This is needed." in words(answer)


def test_files_and_secrets_must_be_given_again_and_this_is_said(rita: Client) -> None:
    upload = SimpleUploadedFile("a.txt", b"Dear all")
    answer = rita.post(
        address("start-letter"), {"input.file": upload, "input.old": "x", "input.token": "hunter2"}
    )
    assert answer.status_code == 422
    assert "files must be chosen and secrets typed again" in words(answer)
    assert "hunter2" not in answer.content.decode()


def test_a_file_that_is_too_large_is_refused_in_words(rita: Client) -> None:
    small = mock.Mock(wraps=limits.limits())
    small.file_bytes = 4
    upload = SimpleUploadedFile("a.txt", b"Dear all")
    with mock.patch("approvals.services.files.limits", return_value=small):
        answer = rita.post(address("start-letter"), {"input.file": upload, "input.token": "x"})
    assert answer.status_code == 422
    assert "The file has 8 bytes, and 4 are the limit." in words(answer)


def test_a_storage_that_cannot_be_reached_is_told(rita: Client) -> None:
    typed = {"input.file": SimpleUploadedFile("a.txt", b"Dear all"), "input.token": "x"}
    with mock.patch.object(StoredFile, "put", side_effect=OSError("gone")):
        answer = rita.post(address("start-letter"), typed)
    assert answer.status_code == 422 and "cannot be reached now" in words(answer)


def test_rows_are_added_without_javascript_and_nothing_is_started(rita: Client) -> None:
    form = page_of(rita.get(address("start-order"))).filled({**TYPED, "input.lines.0.sku": "A"})
    answer = rita.post(address("start-order"), {**form, "add": "input.lines"})
    assert answer.status_code == 200 and not Run.objects.exists()
    form = page_of(answer).filled({"input.lines.1.sku": "B"})
    assert started(rita.post(address("start-order"), form)).input.lines == [Line(sku="A"), Line(sku="B")]
    answer = rita.post(address("start-order"), {**form, "remove": "input.lines.0"})
    assert started(
        rita.post(address("start-order"), {**page_of(answer).data(), "form_id": str(uuid4())})
    ).input.lines == [Line(sku="B")]


def test_the_button_that_enter_presses_is_the_one_that_starts(rita: Client) -> None:
    buttons = [c for c in page_of(rita.get(address("start-order"))).controls if c.tag == "button"]
    mine = [
        button for button in buttons if button.attributes.get("name") or "unseen" in str(button.attributes)
    ]
    assert not mine[0].name


def test_the_same_form_sent_twice_starts_one_run(rita: Client) -> None:
    form = page_of(rita.get(address("start-order"))).filled(TYPED)
    first, second = (rita.post(address("start-order"), form) for _ in range(2))
    assert started(first).id == started(second).id
    assert Run.objects.count() == 1


def test_the_same_form_with_something_else_in_it_asks_before_it_starts_another(rita: Client) -> None:
    form = page_of(rita.get(address("start-order"))).filled(TYPED)
    first = started(rita.post(address("start-order"), form))
    answer = rita.post(address("start-order"), {**form, "input.customer": "Bob"})
    assert answer.status_code == 409 and f"/runs/{first.id}/" in page_of(answer).links
    assert started(rita.post(address("start-order"), page_of(answer).data())).input.customer == "Bob"


def test_a_key_of_ones_own_starts_one_run_and_another_input_is_a_conflict(rita: Client) -> None:
    typed = {**TYPED, "key": " order 1 "}
    first = started(sent(rita, "start-order", typed))
    assert first.key == "order 1" and started(sent(rita, "start-order", typed)).id == first.id
    answer = sent(rita, "start-order", {**typed, "input.customer": "Bob"})
    assert answer.status_code == 409 and "The key “order 1” is taken." in words(answer)
    assert page_of(answer).data()["input.customer"] == ["Bob"]


@pytest.mark.parametrize("key", ["k" * 201, "a\0b", "a\u202eb"])
def test_a_key_that_is_none_is_refused_beside_its_field(rita: Client, key: str) -> None:
    answer = sent(rita, "start-order", {**TYPED, "key": key})
    assert answer.status_code == 422 and b'id="key-wrong"' in answer.content and not Run.objects.exists()


def test_a_key_is_not_needed_and_neither_is_the_forms_number(rita: Client) -> None:
    assert started(rita.post(address("start-topic"), {"input": "A", "form_id": "mangled"})).key is None


def test_a_forms_number_is_shown_to_nobody(rita: Client) -> None:
    run = started(sent(rita, "start-topic", {"input": "A"}))
    assert run.key is not None and run.key.startswith("form-")
    for where in (f"/runs/{run.id}/", "/runs/"):
        answer = rita.get(where)
        assert answer.status_code == 200 and run.key not in answer.content.decode()


def test_who_may_not_start_it_is_told_who_may(browser: Callable[..., Client], who: People) -> None:
    for name, code, may in (
        ("stranger", "doors-open", "staff, and whoever has the right to start runs may"),
        ("reader", "doors-guarded", "members of starters may"),
    ):
        client = browser(doors.account(name))
        for answer in (client.get(address(code)), client.post(address(code), {"input": "A"})):
            assert answer.status_code == 403 and may in words(answer)
    assert not Run.objects.exists()


def test_what_somebody_does_not_see_is_not_there(browser: Callable[..., Client], who: People) -> None:
    client = browser(doors.account("stranger"))
    for name in ("doors-guarded", "doors-closed", "no-such", "a%00b", "x" * 300):
        assert client.get(address(name)).status_code == 404
        assert client.post(address(name), {"input": "A"}).status_code == 404


def test_who_is_signed_out_signs_in_first(engine: Any) -> None:
    for answer in (Client().get(address("start-topic")), Client().post(address("start-topic"))):
        assert answer.status_code == 302 and answer["Location"].startswith("/sign-in/?next=")


def test_nothing_is_started_by_looking_or_without_the_forms_own_token(
    browser: Callable[..., Client], who: People
) -> None:
    client = browser(doors.account("requester"), enforce_csrf_checks=True)
    assert client.get(address("start-topic"), {"input": "A"}).status_code == 200
    assert client.head(address("start-topic")).status_code == 200
    assert client.options(address("start-topic")).status_code == 405
    assert client.post(address("start-topic"), {"input": "A"}).status_code == 403
    assert not Run.objects.exists()


def test_mangled_and_oversized_forms_are_refused_and_start_nothing(rita: Client) -> None:
    where = address("start-topic")
    answers = [
        rita.post(where, {f"input.{number}": "x" for number in range(10_000)}),
        rita.post(where, {"input": "x" * 1_100_000}),
        rita.post(where, "{" * 2_000_000, content_type="application/json"),
        rita.post(
            where, b"--x\r\nContent-Disposition: nonsense", content_type="multipart/form-data; boundary=x"
        ),
        rita.post(where, {"input": "A", "input.unknown": "B"}),
        rita.post(where, b"input=%ff%fe%00&input%3f=json", content_type="application/x-www-form-urlencoded"),
        rita.post(address("start-numbers"), {"input": ["", "0", "-1", "9999999999"]}),
        rita.post(address("start-numbers"), {"input": '[1, "2x"]', "input?": "json"}),
        rita.post(address("start-numbers"), {"input": json.dumps([10**400] * 3000), "input?": "json"}),
    ]
    assert [answer.status_code for answer in answers[:3]] == [400, 400, 422]
    assert all(400 <= answer.status_code < 500 for answer in answers)
    assert not Run.objects.exists()


def test_an_input_that_cannot_be_kept_is_refused_in_words(rita: Client) -> None:
    answer = sent(rita, "start-topic", {"input": "x" * 999_990})
    assert answer.status_code in (400, 422) and not Run.objects.exists()
    loose = rita.post(
        address("start-order"), {**TYPED, "input.at": '"2026-07-01T12:00:00"', "input.at?": "json"}
    )
    assert loose.status_code == 422 and "without a time zone" in words(loose)


def test_a_workflow_whose_input_cannot_be_asked_for_says_so(rita: Client) -> None:
    answer = rita.get(address("start-broken"))
    assert answer.status_code == 409 and "cannot be started from here" in words(answer)
    assert rita.post(address("start-broken"), {"input": "1"}).status_code == 409


@pytest.mark.parametrize("rows", [3, 30])
def test_the_page_takes_as_many_queries_however_many_rows_there_are(rita: Client, rows: int) -> None:
    form = {"input": ["", *map(str, range(rows))], **{f"input.{row}": "x" for row in range(rows)}}
    with CaptureQueriesContext(connection) as asked:
        answer = rita.post(address("start-numbers"), form)
    assert words(answer).count("is not a whole number") == 2 * rows
    assert len(asked) == QUERIES


@pytest.mark.parametrize("kept", ["{", "[]", "1", "null", '{"name": 1}'])
def test_a_kept_file_that_is_none_is_refused_and_shown_again(rita: Client, kept: str) -> None:
    answer = rita.post("/workflows/start-letter/start/", {"input.file?": f"file:{kept}"})
    assert answer.status_code == 422
    assert not Run.objects.exists()
