"""Canonical bytes: RFC 8785 where JSON reaches, tags beyond it, and refusals that say where."""

from __future__ import annotations

import json
import re
import struct
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, HttpUrl, SecretBytes, SecretStr

from approvals.canonical import action_digest, canonical_bytes, digest
from approvals.errors import NotSerializable
from tests.values.models import BERLIN, Base, Colour, Holder, Line, Point, Size, TwoArguments, Wider


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


# --- RFC 8785 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "written"),
    [  # RFC 8785, appendix B
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
        ("4340000000000000", "9007199254740992"),
    ],
)
def test_numbers_as_the_rfc_writes_them(bits: str, written: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_bytes(value) == written.encode()


def test_the_rfcs_own_example() -> None:
    value = json.loads(
        r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"""
    )
    expected = (
        r'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}'
    )
    assert canonical_bytes(value).decode() == expected


def test_keys_sort_by_utf16() -> None:
    value = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7}
    assert list(json.loads(canonical_bytes(value)).values()) == [2, 4, 6, 7, 1, 5, 3]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text().filter(lambda key: not key.startswith("$")), inner)
    ),
    max_leaves=20,
)


@given(json_values)
def test_the_fast_way_and_the_reference_agree(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


# --- beyond JSON -------------------------------------------------------------------------------------


@dataclass
class Pair:
    left: int
    right: Decimal


class Model(BaseModel):
    left: int
    right: Decimal


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Decimal("1.50"), '{"$decimal":"1.50"}'),
        (2**53 - 1, "9007199254740991"),
        (2**53 + 1, '{"$int":"9007199254740993"}'),
        (-(2**53) - 1, '{"$int":"-9007199254740993"}'),
        (b"\xff\x00", '{"$bytes":"/wA="}'),
        (datetime(2026, 7, 1, 14, tzinfo=BERLIN), '{"$instant":"2026-07-01T12:00:00.000000Z"}'),
        (date(2026, 7, 1), '{"$date":"2026-07-01"}'),
        (time(12, 30), '{"$time":"12:30:00"}'),
        (timedelta(minutes=-1), '{"$microseconds":"-60000000"}'),
        (UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
        (Colour.RED, '"red"'),
        (Size.SMALL, '"small"'),
        ((1, "a"), '[1,"a"]'),
        (deque([1]), "[1]"),
        (Point(1, 2), "[1,2]"),
        ({"b", "a", 3}, '["a","b",3]'),
        (Pair(1, Decimal(2)), '{"left":1,"right":{"$decimal":"2"}}'),
        (Model(left=1, right=Decimal(2)), '{"left":1,"right":{"$decimal":"2"}}'),
        (Line(Point(1, 2), ("t",)), '{"meta":{},"start":[1,2],"tags":["t"]}'),
        (OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
        ({1: "a", Colour.RED: "b", None: "c"}, '{"1":"a","None":"c","red":"b"}'),
        (HttpUrl("https://example.org"), '{"$text":"https://example.org/"}'),
        (PurePosixPath("/a"), '{"$text":"/a"}'),
        ({"$decimal": "1.50", "$$x": 1}, '{"$$$x":1,"$$decimal":"1.50"}'),
        ("a\0b", '"a\\u0000b"'),
        (Holder(base=Wider(x=1)), '{"anything":null,"base":{"x":1,"y":2}}'),
    ],
)
def test_plain_forms(value: Any, written: str) -> None:
    assert canonical_bytes(value).decode() == written


def test_one_instant_has_one_form() -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert len({digest(noon.astimezone(zone)) for zone in (UTC, BERLIN, timezone(timedelta(hours=-9)))}) == 1
    repeated = [datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)]
    assert digest(repeated[0]) != digest(repeated[1])


@given(st.sets(st.integers() | st.text() | st.dates() | st.tuples(st.integers(), st.text())), st.randoms())
def test_the_order_of_a_set_does_not_matter(value: set[Any], random: Any) -> None:
    items = list(value)
    random.shuffle(items)
    assert canonical_bytes(value) == canonical_bytes(frozenset(items))


def test_no_plain_object_passes_for_a_tagged_value() -> None:
    for value in (Decimal("1.5"), 2**60, b"x", date(2026, 1, 1), UUID(int=7), SecretStr("s")):
        assert digest(value) != digest(json.loads(canonical_bytes(value)))


@pytest.mark.parametrize("secret", [SecretStr("correct horse"), SecretBytes(b"correct horse")])
def test_secrets_count_without_being_shown(secret: Any) -> None:
    written = canonical_bytes({"password": secret})
    assert b"horse" not in written
    assert written != canonical_bytes({"password": SecretStr("another")})


def test_a_digest_covers_kind_target_and_request() -> None:
    base = action_digest("refund.create", "acct", {"amount": 1})
    assert re.fullmatch("[0-9a-f]{64}", base)
    assert base == digest({"request": {"amount": 1}, "kind": "refund.create", "target": "acct"})
    others = [
        ("refund.void", "acct", {"amount": 1}),
        ("refund.create", "b", {"amount": 1}),
        ("refund.create", "acct", {}),
    ]
    assert base not in {action_digest(*other) for other in others}


def test_a_digest_that_was_computed_by_hand() -> None:
    args = {"order": "A-1", "note": "é", "currency": "EUR", "amount_minor": 12500}
    value = {"v": 1, "target": "stripe:acct_1", "args": args, "action": "refund.create"}
    assert digest(value) == "788c6bed6de86f0a8f58b312a9302e38fcb6f35ed6588fb973ef9eb92315d0ea"


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        ({"a": [datetime(2026, 1, 1)]}, "$.a[0]", "datetime"),  # noqa: DTZ001 - naive is the point
        ({"a b": float("nan")}, "$['a b']", "float"),
        ([float("-inf")], "$[0]", "float"),
        (Decimal("NaN"), "$", "Decimal"),
        ({"k": "\ud800"}, "$.k", "str"),
        ({"k": {"\udfff": 1}}, "$.k['\\udfff']", "str"),
        ({1: "a", "1": "b"}, "$['1']", "str"),
        ({(1, 2): "a"}, "$[(1, 2)]", "tuple"),
        (Base(x=1).model_copy(update={"x": object()}), "$.x", "object"),
        (TwoArguments("a", 1), "$", "TwoArguments"),
        (int, "$", "type"),
        (len, "$", "builtin_function_or_method"),
        ((n for n in [1]), "$", "generator"),
        pytest.param(10**5000, "$", "int", id="digits"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "$", "datetime"),
    ],
)
def test_refused_with_path_and_type(value: Any, path: str, kind: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        canonical_bytes(value, what="step 'x'")
    assert caught.value.values["what"] == "step 'x'"
    assert (caught.value.values["path"], caught.value.values["type"]) == (path, kind)


def test_depth_ends_in_a_refusal() -> None:
    canonical_bytes(nested(200))
    circular: dict[str, Any] = {}
    circular["me"] = circular
    model = Holder(base=Base(x=1))
    for _ in range(400):
        model = Holder(base=Base(x=1), anything=model)
    for value in (nested(201), nested(10_000), circular, model):
        with pytest.raises(NotSerializable):
            canonical_bytes(value)
