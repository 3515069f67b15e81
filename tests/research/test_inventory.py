"""What was gathered becomes one inventory: same input, same bytes."""

from __future__ import annotations

import pytest

from approvals import StoredFile
from durable_app.workflows import inventory
from durable_app.workflows.inventory import (
    NOT_STATED,
    Dropped,
    Record,
    from_lines,
    licence_expression,
    normalise,
    record,
    to_lines,
)


def a_record(name: str, version: str = "1", licence: str = "MIT", origin: str = "here") -> Record:
    return Record(name=name, version=version, licence=licence, text_digest="", origin=origin)


def gathered(*items: Record | Dropped) -> StoredFile:
    return StoredFile.put(to_lines(items), "gathered.jsonl")


@pytest.mark.parametrize(
    ("stated", "expression"),
    [
        ("MIT", "MIT"),
        ("mit", "MIT"),
        ("MIT License", "MIT"),
        ("  Apache   License 2.0 ", "Apache-2.0"),
        ("Apache-2.0 OR BSD-3-Clause", "Apache-2.0 OR BSD-3-Clause"),
        ("mit AND (isc OR 0bsd)", "MIT AND (ISC OR 0BSD)"),
        ("LicenseRef-house", "LicenseRef-house"),
        ("BSD", "LicenseRef-BSD"),
        ("Apache Software License", "LicenseRef-Apache-Software-License"),
        ("LicenseRef-\u202e", "LicenseRef-LicenseRef"),
        ("", NOT_STATED),
        ("(", NOT_STATED),
        ("…", NOT_STATED),
        ("Permission is hereby granted, free of charge, " * 3, NOT_STATED),
    ],
)
def test_licence_expression(stated: str, expression: str) -> None:
    assert licence_expression(stated) == expression


@pytest.mark.parametrize(
    ("name", "version", "reason"),
    [
        (" \t", "1", "no name"),
        ("a\u202eb", "1", "invisible"),
        ("a\ud800", "1", "invisible"),
        ("a", "1\x00", "invisible"),
        ("a" * 301, "1", "longer"),
    ],
)
def test_what_cannot_be_a_record(name: str, version: str, reason: str) -> None:
    made = record("there", name=name, version=version, licence="MIT", text_digest="")
    assert isinstance(made, Dropped)
    assert reason in made.reason
    assert made.origin == "there"


def test_names_are_trimmed() -> None:
    made = record("there", name="  two \n words ", version=" 1 ", licence="MIT", text_digest="")
    assert isinstance(made, Record)
    assert (made.name, made.version) == ("two words", "1")


def test_same_input_in_another_order_gives_the_same_bytes(store: str) -> None:
    a, b, c = a_record("a"), a_record("b", "2"), a_record("b", "1")
    first = normalise([gathered(a, b), gathered(c)], [])
    second = normalise([gathered(c), gathered(b), gathered(a)], [])
    assert first.dataset == second.dataset
    assert [(r.name, r.version) for r in from_lines(first.dataset.read()) if isinstance(r, Record)] == [
        ("a", "1"),
        ("b", "1"),
        ("b", "2"),
    ]


def test_summary_counts_what_is_in_and_what_is_not(store: str) -> None:
    twice = a_record("a", origin="elsewhere")
    unread = Dropped(origin="x.csv", reason="not UTF-8")
    made = normalise([gathered(a_record("a"), twice, a_record("b", licence=NOT_STATED))], [unread])
    assert (made.records, made.left_out, made.not_stated) == (2, 2, 1)
    assert made.licences == {"MIT": 1, NOT_STATED: 1}
    assert made.reasons == {"not UTF-8": 1, "same name and version as an earlier one": 1}
    assert [item.origin for item in from_lines(made.dropped.read())] == ["x.csv", "elsewhere"]


def test_nothing_gathered_is_an_empty_inventory(store: str) -> None:
    made = normalise([], [])
    assert (made.records, made.left_out, made.licences, made.dataset.size) == (0, 0, {}, 0)


def test_bounds_are_kept_and_told(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "RECORDS_MAX", 3)
    monkeypatch.setattr(inventory, "DROPPED_MAX", 2)
    made = normalise([gathered(*(a_record(f"n{i}", licence=f"LicenseRef-{i}") for i in range(8)))], [])
    assert (made.records, made.left_out) == (3, 5)
    assert len(list(from_lines(made.dropped.read()))) == 2
    assert made.reasons == {"beyond 3 records": 5}


def test_many_licences_make_a_small_summary(store: str) -> None:
    made = normalise([gathered(*(a_record(f"n{i}", licence=f"LicenseRef-{i}") for i in range(50)))], [])
    assert len(made.licences) == 21
    assert made.licences["others"] == 30
