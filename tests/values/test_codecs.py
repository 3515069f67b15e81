"""Codecs: what is stored comes back as the same value of the same type."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NoReturn
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, HttpUrl

from approvals.errors import InvalidInput, NotSerializable
from approvals.workflows.values import codec_for
from tests.values.models import (
    BERLIN,
    EMPTY,
    NOON,
    Aliased,
    Base,
    Box,
    Cat,
    Colour,
    Dog,
    Holder,
    Line,
    Movie,
    Order,
    Point,
    Private,
    Quacks,
    Size,
    UserId,
)


def order() -> Order:
    return Order(
        id=UUID(int=5),
        placed_at=NOON,
        due=date(2026, 7, 2),
        total=Decimal("12.50"),
        colour=Colour.RED,
        sizes=frozenset({Size.SMALL}),
        lines=[Line(Point(1, 2), ("a", "b"), {"n": 1})],
        pair=(1, "one"),
        by_colour={Colour.RED: 1},
        blob=b"\xff\x00",
    )


def roundtrip(annotation: Any, value: Any) -> Any:
    return codec_for(annotation).roundtrip(value, what="step 'x'")[1]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (None, None),
        (int, 2**53 + 1),
        (int, 10**100),
        (float, 1.5e-300),
        (float, -0.0),
        (str, "a\0b\u202e\U0001f600"),
        (bytes, b"\xff\x00"),
        (Decimal, Decimal("1.50")),
        (UUID, UUID(int=3)),
        (date, date(2026, 1, 1)),
        (time, time(1, 2, 3, 4)),
        (timedelta, timedelta(days=-5, microseconds=7)),
        (datetime, NOON),
        (Colour, Colour.RED),
        (Size, Size.SMALL),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2)),
        (tuple[()], ()),
        (set[Colour], {Colour.RED}),
        (frozenset[int], frozenset({1})),
        (deque[int], deque([1])),
        (dict[int, str], {1: "a"}),
        (dict[date, bytes], {date(2026, 1, 1): b"\xff"}),
        (defaultdict[str, int], defaultdict(int, a=1)),
        (Counter[str], Counter("aab")),
        (Mapping[str, int], {"a": 1}),
        (Sequence[int], [1]),
        (HttpUrl, HttpUrl("https://example.org/a")),
        (Path, Path("/a")),
        (UserId, UserId(3)),
        (Point, Point(1, 2)),
        (Movie, {"title": "M"}),
        (Line, Line(Point(1, 2), ("a",))),
        (Order, order()),
        (list[Order], [order()]),
        (Base | None, None),
        (Base | None, Base(x=1)),
        (Cat | Dog, Dog(lives=1)),
        (Annotated[Cat | Dog, Field(discriminator="kind")], Dog(lives=1)),
        (Box[int], Box[int](value=1)),
        (Box[list[Colour]], Box[list[Colour]](value=[Colour.RED])),
        (Aliased, Aliased(a=1, b=2)),
        (Private, Private(a=1)),
        (Holder, Holder(base=Base(x=1), anything={"plain": [1, None]})),
        (dict[str, Any], {"$secret": "no secret", "$bytes": "no bytes"}),
        (dict[str, bytes | str], {"$bytes": "no bytes"}),
        (dict[str, bytes | str], {"$$bytes": b"\xff"}),
        (int | str | bytes, "5"),
        (Decimal | str | bytes, "5"),
    ],
)
def test_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    again = roundtrip(annotation, value)
    assert (again, type(again)) == (value, type(value))
    assert math.copysign(1, again) == math.copysign(1, value) if isinstance(value, float) else True


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain_json)
def test_plain_json_needs_no_annotation(value: Any) -> None:
    again = roundtrip(EMPTY, value)
    assert repr(again) == repr(value)


@given(
    st.dictionaries(
        st.dates(), st.tuples(st.decimals(allow_nan=False, allow_infinity=False), st.sets(st.binary()))
    ),
    st.datetimes(timezones=st.just(UTC)),
)
def test_typed_values_come_back(values: dict[date, Any], at: datetime) -> None:
    assert roundtrip(dict[date, tuple[Decimal, set[bytes]]], values) == values
    assert roundtrip(list[datetime], [at]) == [at]


def test_what_a_typed_author_may_return() -> None:
    class Safe(str):
        __slots__ = ()

    again = roundtrip(str, Safe("a"))
    assert type(again) is str
    again = roundtrip(float, 3)
    assert (type(again), again) == (float, 3.0)
    assert roundtrip(Box[int], Box(value=1)) == Box[int](value=1)
    assert roundtrip(NoReturn, None) is None


@pytest.mark.parametrize("fold", [0, 1])
def test_an_instant_in_a_repeated_hour(fold: int) -> None:
    value = datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=fold)
    again = roundtrip(datetime, value)
    assert again.astimezone(UTC) == value.astimezone(UTC)


def test_stored_text_that_no_longer_fits() -> None:
    with pytest.raises(NotSerializable, match="x: Field required"):
        codec_for(Base).decode("{}", what="input")
    with pytest.raises(NotSerializable):
        codec_for(EMPTY).decode("NaN", what="input")


def test_values_from_outside() -> None:
    assert codec_for(Base).accept({"x": "5"}, what="form") == Base(x=5)
    assert codec_for(Aliased).accept({"a": 1, "b": 2}, what="form").a == 2
    assert codec_for(EMPTY).accept({"any": [1]}, what="form") == {"any": [1]}
    with pytest.raises(InvalidInput) as caught:
        codec_for(Base).accept({"x": "hunter2"}, what="form")
    assert "hunter2" not in str(caught.value)
    assert caught.value.values["problems"][0].startswith("x: ")


def test_schemas() -> None:
    assert codec_for(Base).schema()["properties"]["x"]["type"] == "integer"
    assert codec_for(EMPTY).schema() == {}
    with pytest.raises(NotSerializable):
        codec_for(Quacks).schema()


def test_one_codec_per_annotation() -> None:
    assert codec_for(list[Base]) is codec_for(list[Base])
    unhashable = [Annotated[int, {"unhashable": n}] for n in (1, 1, 2)]
    assert codec_for(list[unhashable[0]]) is codec_for(list[unhashable[1]])  # type: ignore[valid-type]
    assert codec_for(unhashable[0]) is not codec_for(unhashable[2])
    assert codec_for(int | str) is not codec_for(str | int)
    local = [type("Same", (Base,), {}) for _ in range(2)]
    assert codec_for(list[local[0]]) is not codec_for(list[local[1]])  # type: ignore[valid-type]


def test_a_type_defined_later_is_found_later() -> None:
    codec = codec_for(list["tests.values.Later"])  # type: ignore[name-defined] # noqa: F821
    for _ in range(2):  # not remembered as hopeless, and refused cleanly each time
        with pytest.raises(NotSerializable):
            codec.encode([], what="step 'x'")
