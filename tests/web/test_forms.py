"""Forms from schemas: what is shown, what a browser sends of it, and what comes back."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.template.loader import render_to_string
from pydantic import BaseModel, Field, HttpUrl, Secret, SecretStr

from approvals import StoredFile
from approvals.errors import InvalidInput
from approvals.web import forms
from approvals.workflows.values import codec_for
from tests.web.asked import Colour, Line, Nested, Plain, Tree, page_of, read, schema_of, shown
from tests.web.page import Page


class Everything(BaseModel):
    name: str = Field(max_length=10, min_length=2, pattern=r"^[a-z]+$", description="What it is called.")
    amount_minor: int = Field(ge=1, lt=10, title="Cents")
    share: float = Field(gt=0)
    lines: list[Line] = []
    at: datetime
    maybe: Line | None = None
    secret: SecretStr
    file: StoredFile
    price: Decimal = Field(max_digits=4, decimal_places=2)
    colour: Colour
    notes: str = ""


EVERYTHING: dict[str, Any] = {
    "form.name": "abc",
    "form.amount_minor": "3",
    "form.share": "0.5",
    "form.at": "2026-07-01T12:00",
    "form.secret": "hunter2",
    "form.price": "12.50",
    "form.colour": "blue",
}


def upload(data: bytes = b"bytes") -> dict[str, Any]:
    return {"form.file": SimpleUploadedFile("a.txt", data)}


def keep(upload: Any) -> dict[str, Any]:
    return {"name": upload.name, "storage_name": "files/x", "sha256": "0" * 64, "size": upload.size}


def test_what_is_typed_arrives_with_its_types() -> None:
    filled = read(Everything, EVERYTHING, files=upload(), keep=keep)
    assert filled.problems == {}
    assert filled.tree == {
        "name": "abc",
        "amount_minor": 3,
        "share": 0.5,
        "lines": [],
        "at": "2026-07-01T12:00Z",
        "maybe": None,
        "secret": "hunter2",
        "file": {"name": "a.txt", "storage_name": "files/x", "sha256": "0" * 64, "size": 5},
        "price": "12.50",
        "colour": "blue",
        "notes": "",
    }


def test_a_description_does_not_run_into_what_follows() -> None:
    class Order(BaseModel):
        customer: str = Field(max_length=80, description="As on the invoice")

    helped = {one.name: one.help for one in forms.fields(schema_of(Order)).all()}
    assert helped["form.customer"] == ("As on the invoice.", "At most 80 characters.")


def test_constraints_are_said_in_words_and_checked_by_browsers() -> None:
    field = forms.fields(schema_of(Everything))
    by_name = {one.name: one for one in field.all()}
    name, cents, share = by_name["form.name"], by_name["form.amount_minor"], by_name["form.share"]
    assert name.help == (
        "What it is called.",
        "At least 2 characters; at most 10 characters.",  # its pattern is said by the author's words
    )
    checks = {"required": "required", "maxlength": "10", "minlength": "2", "pattern": ".*(?:^[a-z]+$).*"}
    assert dict(name.attributes) == checks
    assert (cents.label, cents.type) == ("Cents", "number")
    assert (dict(cents.attributes)["min"], dict(cents.attributes)["max"]) == ("1", "9")
    assert dict(share.attributes)["step"] == "any" and share.help == ("More than 0.",)
    assert by_name["form.notes"].widget == "area" and not by_name["form.notes"].needed
    assert by_name["form.secret"].type == "password"
    assert field.is_multipart and not forms.fields(schema_of(Plain)).is_multipart


def test_every_control_has_a_label_and_an_id_of_its_own() -> None:
    html = render_to_string("approvals/web/_fields.html", {"field": forms.fields(schema_of(Everything))})
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    for control in page.controls:
        if control.type in ("hidden", "button") or "aria-label" in control.attributes:
            continue
        assert f'for="{control.attributes.get("id")}"' in html or control.type == "checkbox", control
    assert "style=" not in html and "onclick" not in html


def test_everything_that_is_needed_is_asked_for_at_once() -> None:
    problems = read(Everything, {"form.at@": ""}).problems
    needed = ("name", "amount_minor", "share", "at", "secret", "price", "colour")
    assert problems == {
        **{f"form.{name}": "This is needed." for name in needed},
        "form.file": "A file is needed.",
    }


@pytest.mark.parametrize(
    ("annotation", "typed", "told"),
    [
        (int, "1.5", "“1.5” is not a whole number, such as 42."),
        (int, "9" * 401, "This has 401 characters; a number may have 400."),
        (float, "nan", "“nan” is not a number, such as 2.5."),
        (float, "1e999", "“1e999” is too large."),
        (Decimal, "1_0", "“1_0” is not a decimal number, such as 12.50."),
        (Decimal, "sNaN", "“sNaN” is not a decimal number, such as 12.50."),
        (date, "2026-02-30", "“2026-02-30” is not a date, such as 2026-11-29."),
        (time, "25:00", "“25:00” is not a time of day, such as 18:30."),
        (datetime, "tomorrow", "“tomorrow” is not a date and time, such as 2026-11-29 18:30."),
        (
            datetime,
            "2026-02-30T10:00",
            "“2026-02-30T10:00” is not a date and time, such as 2026-11-29 18:30.",
        ),
        (timedelta, "soon", "“soon” is not a duration, such as 90s, 1h 30m, 2d or 01:30:00."),
        (UUID, "12", "“12” is not a UUID, such as 01939b1e-7c1d-7000-8000-0123456789ab."),
        (Colour, "green", "“green” is none of the choices."),
        (bool, "perhaps", "This is answered with yes or no."),
        (dict[str, int], '{"a": 1, "a": 2}', "The key “a” stands twice."),
        (dict[str, int], '{"a": NaN}', "JSON has no NaN."),
        (
            dict[str, int],
            "[" * 100_000,
            "This JSON is nested too deeply, or holds a number that is too long.",
        ),
        (dict[str, int], "9" * 5000, "This JSON is nested too deeply, or holds a number that is too long."),
        (
            int | str,
            "so",
            'This is not JSON: Expecting value at line 1, column 1. Texts stand in double quotes: "so".',
        ),
        (Secret[int], "12a", "This is not what is needed here: integer."),
    ],
)
def test_what_was_found_and_what_is_needed(annotation: Any, typed: str, told: str) -> None:
    assert read(annotation, {"form": typed}).problems == {"form": told}


@pytest.mark.parametrize(
    ("typed", "zone", "sent"),
    [
        ("2026-07-01T12:00", "UTC", "2026-07-01T12:00Z"),
        ("2026-07-01T12:00:30", "+02:00", "2026-07-01T12:00:30+02:00"),
        ("2026-07-01 12:00", "-0330", "2026-07-01T12:00-03:30"),
        ("2026-07-01T12:00", "Europe/Berlin", "2026-07-01T12:00+02:00"),
        ("2026-12-01T12:00", "Europe/Berlin", "2026-12-01T12:00+01:00"),
        ("2026-12-01T12:00", "America/St_Johns", "2026-12-01T12:00-03:30"),
        ("2026-12-01T12:00+05:00", "UTC", "2026-12-01T12:00+05:00"),
    ],
)
def test_a_moment_is_an_instant_of_the_zone_that_was_named(typed: str, zone: str, sent: str) -> None:
    filled = read(datetime, {"form": typed, "form@": zone})
    assert (filled.tree, filled.problems) == (sent, {})
    assert codec_for(datetime).accept(filled.tree, what="it").utcoffset() is not None


@pytest.mark.parametrize(
    ("typed", "zone", "told"),
    [
        ("2026-10-25T02:30", "Europe/Berlin", "That hour comes twice in Europe/Berlin"),
        ("2026-03-29T02:30", "Europe/Berlin", "That hour is skipped in Europe/Berlin"),
        ("2026-03-29T02:30", "Europe/Nowhere", "“Europe/Nowhere” is no time zone known here"),
        ("2026-03-29T02:30", "../../etc/passwd", "“../../etc/passwd” is no time zone known here"),
        ("2026-03-29T02:30", "Europe", "“Europe” is no time zone known here"),
        ("2026-03-29T02:30", "+99:00", "“+99:00” is further from UTC than clocks go"),
        ("2026-03-29T02:30", "", "Its time zone is needed"),
    ],
)
def test_a_moment_that_is_none_or_two_is_asked_again(typed: str, zone: str, told: str) -> None:
    assert read(datetime, {"form": typed, "form@": zone}).problems["form"].startswith(told)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h 30m", timedelta(minutes=90)),
        ("2 days", timedelta(days=2)),
        ("1d2h3m4.5s", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("01:30:00", timedelta(minutes=90)),
        ("PT5M", timedelta(minutes=5)),
        ("-P1D", timedelta(days=-1)),
    ],
)
def test_durations_are_written_as_people_say_them(typed: str, meant: timedelta) -> None:
    filled = read(timedelta, {"form": typed})
    assert codec_for(timedelta).accept(filled.tree, what="it") == meant


def test_choices_that_look_alike_keep_their_types() -> None:
    class Odd(BaseModel):
        odd: Literal["1", 1, True]

    sent = [value for value, _ in shown(Odd).named("form.odd")[0].options]
    assert [read(Odd, {"form.odd": text}).tree.get("odd") for text in sent] == [None, "1", 1, True]


def test_an_offered_row_that_nobody_touched_is_no_row_and_an_added_one_is() -> None:
    schema = schema_of(Nested)
    page = shown(Nested)
    assert [control.sent() for control in page.named("form.lines")] == [[""], ["0?"]]
    assert forms.tree(schema, page.data()).tree["lines"] == []
    touched = forms.tree(schema, page.filled({"form.lines.0.sku": "A"})).tree["lines"]
    assert touched == [{"sku": "A", "quantity": 1, "note": None}]

    added = forms.changed({**page.data(), "add": ["form.lines"]})
    assert added is not None
    post, focus = added
    again = page_of(forms.fields(schema, post=post, focus=focus))
    assert [control.name for control in again.controls if "autofocus" in control.attributes] == [
        "form.lines.1.sku"
    ]
    assert forms.tree(schema, again.data()).problems["form.lines.1.sku"] == "This is needed."


def test_rows_are_removed_where_they_stand_and_the_others_stay_as_typed() -> None:
    values = {"value": 1, "below": [{"value": number, "below": []} for number in (10, 20, 30)]}
    page = shown(Tree, values)
    removed = forms.changed({**page.filled({"form.below.2.value": "33"}), "remove": ["form.below.1"]})
    assert removed is not None
    again = page_of(forms.fields(schema_of(Tree), post=removed[0], focus=removed[1]))
    assert [row["value"] for row in forms.tree(schema_of(Tree), again.data()).tree["below"]] == [10, 33]


def test_rows_within_rows_are_added_where_they_belong() -> None:
    page = shown(Tree, {"value": 1, "below": [{"value": 2}]})
    added = forms.changed({**page.data(), "add": ["form.below.0.below"]})
    assert added is not None
    again = page_of(forms.fields(schema_of(Tree), post=added[0]))
    filled = forms.tree(schema_of(Tree), again.filled({"form.below.0.below.0.value": "3"}))
    assert filled.problems == {} and filled.tree["below"][0]["below"][0]["value"] == 3


def test_nothing_is_added_beside_the_form() -> None:
    assert forms.changed({"add": ["other.lines"]}) is None
    assert forms.changed({"remove": ["formal.lines.1"]}) is None
    assert forms.changed({"add": [""]}) is None


def test_what_is_left_out_may_be_wrong_and_what_is_given_may_not() -> None:
    typed = {"form.maybe.quantity": "many"}
    assert read(Nested, {**typed, "form.line.sku": "A", "form.loose.name": "B"}).tree["maybe"] is None
    problems = read(
        Nested, {**typed, "form.maybe!": "on", "form.line.sku": "A", "form.loose.name": "B"}
    ).problems
    assert problems == {
        "form.maybe.sku": "This is needed.",
        "form.maybe.quantity": "“many” is not a whole number, such as 42.",
    }


def test_browsers_do_not_insist_on_what_may_be_left_out() -> None:
    named = {control.name: control for control in shown(Nested).controls}
    assert "required" in named["form.line.sku"].attributes
    assert "required" not in named["form.maybe.sku"].attributes
    assert "required" not in named["form.lines.0.sku"].attributes


def test_an_unknown_field_is_refused_and_not_dropped() -> None:
    sent = {"form.old": ["typed"], "form.lines.7.sku": ["lost"], "form?.x": ["y"], "formal": ["not ours"]}
    problems = forms.tree(schema_of(Nested), {**shown(Nested).data(), **sent}).problems
    assert problems["form"].startswith("This form has no such fields: form.lines.7.sku, form.old, form?.x.")
    mangled = {"form.lines": ["", "0", "x" * 9]}
    told = forms.tree(schema_of(Nested), {**shown(Nested).data(), **mangled}).problems
    assert told["form.lines"] == "The rows of this list came in an unknown form."
    files = {"form.line": SimpleUploadedFile("x", b"")}
    assert forms.tree(schema_of(Plain), shown(Plain).data(), files).problems


def test_secrets_and_files_are_never_shown_again() -> None:
    values = {"secret": "hunter2", "name": "abc"}
    shown_twice = (
        forms.fields(schema_of(Everything), values),
        forms.fields(schema_of(Everything), post={"form.secret": ["hunter2"], "form.secret?": ["json"]}),
    )
    for field in shown_twice:
        assert "hunter2" not in render_to_string("approvals/web/_fields.html", {"field": field})


def test_a_stored_file_stays_unless_another_is_sent() -> None:
    class Holds(BaseModel):
        file: StoredFile

    held = {"name": "old.txt", "storage_name": "files/old", "sha256": "1" * 64, "size": 3}
    sent = shown(Holds, {"file": held}).data()
    assert forms.tree(schema_of(Holds), sent).tree == {"file": held}
    assert forms.tree(schema_of(Holds), sent, upload(), keep=keep).tree["file"]["name"] == "a.txt"


def test_files_are_kept_only_where_nothing_else_is_wrong() -> None:
    kept: list[Any] = []
    filled = read(Everything, {**EVERYTHING, "form.amount_minor": "x"}, files=upload(), keep=kept.append)
    assert list(filled.problems) == ["form.amount_minor"] and kept == []

    def refuse(upload: Any) -> dict[str, Any]:
        raise InvalidInput("It is too large.")

    assert read(Everything, EVERYTHING, files=upload(), keep=refuse).problems == {
        "form.file": "It is too large."
    }
    assert read(Everything, EVERYTHING, files=upload()).problems == {
        "form.file": "Files cannot be sent here."
    }


def test_what_pydantic_refuses_stands_beside_its_field() -> None:
    class Deep(BaseModel):
        lines: list[Line]
        pair: tuple[int, str]
        url: HttpUrl = Field(alias="web address")
        tags: dict[str, int] = {}

    typed = {
        "form.lines": ["", "0?", "1"],
        "form.lines.1.sku": "A",
        "form.lines.1.quantity": "100",
        "form.lines.1.note": "",
        "form.pair": '["x", "y"]',
        "form.web%20address": "nowhere",
        "form.tags": '{"a": "b"}',
    }
    filled = read(Deep, typed)
    assert filled.problems == {}
    with pytest.raises(InvalidInput) as refused:
        codec_for(Deep).accept(filled.tree, what="it")
    blamed = filled.blame(refused.value)
    assert blamed["form.lines.1.quantity"] == "“100” was given. This should be less than or equal to 99."
    assert {"form.pair", "form.web%20address", "form.tags"} < {*blamed}


def test_what_a_json_schema_refuses_stands_beside_its_field() -> None:
    """Forms of approvals are checked against their schema, which names a JSON path."""
    filled = read(Nested, {"form.line.sku": "A", "form.line.quantity": "100", "form.loose.name": "B"})
    refused = InvalidInput("The form does not fit", field="$.line.quantity", problem="100 is greater than 99")
    assert filled.blame(refused) == {"form.line.quantity": "“100” was given. 100 is greater than 99."}
    assert filled.blame(InvalidInput("No.")) == {"form": "No."}


def test_an_input_that_is_nothing_asks_for_nothing() -> None:
    assert "There is nothing to fill in." in shown(None).text
    assert forms.tree(schema_of(None), {}).tree is None


def test_schemas_of_any_kind_make_a_form() -> None:
    """What is odd, broken or endless becomes a text of JSON, never an error."""
    endless = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    odd: list[dict[str, Any]] = [
        {},
        endless,
        {"type": ["string", "null"]},
        {"$ref": "elsewhere.json"},
        {"anyOf": []},
        {"anyOf": [{"type": "null"}]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "properties": {"a.b": True, "": {}, "é?": {"type": "string"}}},
        {"type": "array", "items": True},
        {"enum": []},
        {"properties": {"x": False}, "type": "object"},
    ]
    for schema in odd:
        forms.tree(schema, page_of(forms.fields(schema)).data())
