"""Codecs: what would change on its way through storage is refused, by step and by type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from approvals.errors import NotSerializable, PayloadTooLarge
from approvals.workflows.values import codec_for
from tests.values.models import (
    BERLIN,
    EMPTY,
    NAIVE,
    NOON,
    Base,
    Colour,
    Holder,
    Movie,
    Private,
    Quacks,
    Size,
    TwoArguments,
    Wider,
)


def roundtrip(annotation: Any, value: Any) -> Any:
    return codec_for(annotation).roundtrip(value, what="step 'x'")[1]


def refusal(annotation: Any, value: Any) -> dict[str, Any]:
    with pytest.raises(NotSerializable) as caught:
        roundtrip(annotation, value)
    assert caught.value.values["what"] == "step 'x'"
    return caught.value.values


@pytest.mark.parametrize(
    ("annotation", "value", "kind", "path"),
    [
        (list[int], (1, 2), "tuple", "$"),
        (Sequence[int], (1, 2), "tuple", "$"),
        (frozenset[int], {1}, "set", "$"),
        (str, Colour.RED, "Colour", "$"),
        (str, Size.SMALL, "Size", "$"),
        (float, Decimal("1.5"), "Decimal", "$"),
        (Decimal, 1, "int", "$"),
        (int, True, "bool", "$"),
        (float, True, "bool", "$"),
        (float, 2**53 + 1, "int", "$"),
        (float | None, float("nan"), "float", "$"),
        (datetime, NAIVE, "datetime", "$"),
        (list[datetime | None], [None, NAIVE], "datetime", "$[1]"),
        (dict[str, list[date]], {"a": [NOON]}, "dict", None),
        (str | date, date(2026, 1, 1), "date", "$"),
        (Base, Wider(x=1), "Wider", "$"),
        (Holder, Holder(base=Wider(x=1)), "Wider", "$.base"),
        (Holder, Holder(base=Base(x=1), anything=(1,)), "tuple", "$.anything"),
        (dict, defaultdict(int, a=1), "defaultdict", "$"),
        (Movie, {"title": "M", "year": 1}, "dict", "$"),
        (dict[Any, int], {1: 1}, "int", "$[1]"),
        (dict[tuple[int, int], int], {(1, 2): 3}, "dict", None),
        (Base, {"x": "not a number"}, "dict", None),
        (datetime, datetime.min.replace(tzinfo=BERLIN), "datetime", "$"),
    ],
)
def test_what_changes_is_refused_by_name(annotation: Any, value: Any, kind: str, path: str | None) -> None:
    told = refusal(annotation, value)
    assert told["type"] == kind
    assert told.get("path") == path
    assert told["reason"]


def test_private_attributes_are_not_lost_in_silence() -> None:
    value = Private(a=1)
    value._cache = 5
    assert "private" in refusal(Private, value)["reason"]


@pytest.mark.parametrize(
    "value",
    [
        (1,),
        {1},
        NOON,
        Decimal(1),
        UUID(int=1),
        {1: "a"},
        float("nan"),
        float("inf"),
        Colour.RED,
        Base(x=1),
        b"x",
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("annotation", [EMPTY, Any, object])
def test_without_an_annotation_plain_json_alone(annotation: Any, value: Any) -> None:
    for wrapped in (value, {"in": [value]}):
        assert "annotate the return type" in refusal(annotation, wrapped)["reason"]


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, ["a\udfff"]], ids=ascii)
def test_a_lone_surrogate_is_refused(value: Any) -> None:
    assert "surrogates" in refusal(EMPTY, value)["reason"]


@pytest.mark.parametrize("annotation", [EMPTY, list, Any])
def test_depth_ends_in_a_refusal(annotation: Any) -> None:
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]
    refusal(annotation, value)
    circular: list[Any] = []
    circular.append(circular)
    refusal(annotation, circular)


def test_five_megabytes_are_refused() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        roundtrip(str, "é" * 2_500_000)
    assert caught.value.values == {"what": "step 'x'", "found": 5_000_002, "limit": 1_000_000}


@pytest.mark.parametrize(
    "annotation",
    [Quacks, TwoArguments, Exception, Callable[[], int], Iterator[int], "Nowhere", list[Quacks]],
    ids=str,
)
def test_a_type_that_cannot_be_kept_is_refused_by_name(annotation: Any) -> None:
    told = refusal(annotation, len)
    assert told["reason"].count("\n") == 0
    with pytest.raises(NotSerializable):
        codec_for(annotation).decode("1", what="step 'x'")
