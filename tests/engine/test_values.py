"""Authors see the decoded value on the first run and on every replay (CASES 33)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel, SecretStr

from approvals import Context
from approvals.models import Entry, Run
from approvals.services import runs
from approvals.testing import assert_invariants, clock, drive
from tests.engine.make import case, flow, ran

pytestmark = pytest.mark.usefixtures("engine")

seen: list[list[Any]] = []


class Colour(Enum):
    RED = "red"


class Many(BaseModel):
    at: datetime
    price: Decimal
    secret: SecretStr


@dataclass
class Point:
    x: int
    y: int


class Named(TypedDict):
    name: str


def a_tuple() -> tuple[int, str]:
    return (1, "a")


def an_enum() -> Colour:
    return Colour.RED


def an_instant() -> datetime:
    return datetime(2026, 3, 29, 2, 30, tzinfo=timezone(timedelta(hours=2)))


def a_decimal() -> Decimal:
    return Decimal("1.50")


def a_secret() -> SecretStr:
    return SecretStr("hush-hush")


def a_model() -> Many:
    return Many(at=an_instant(), price=Decimal("0.10"), secret=a_secret())


def bytes_and_sets() -> dict[str, set[bytes]]:
    return {"a": {b"\x00\xff", b""}}


def a_dataclass() -> Point:
    return Point(1, 2)


def a_typed_dict() -> Named:
    return {"name": "\u202e"}


def others() -> list[date | UUID | None]:
    return [date(2026, 1, 31), UUID(int=1), None]


def a_tuple_without_an_annotation():
    return (1, 2)


def naive() -> datetime:
    return datetime(2026, 1, 1)  # noqa: DTZ001


def lone() -> str:
    return "\ud800"


def nul() -> str:
    return "a\x00b"


STEPS = [
    a_tuple, an_enum, an_instant, a_decimal, a_secret, a_model, bytes_and_sets, a_dataclass, a_typed_dict, others, nul,
]  # fmt: skip


@flow
def typed(ctx: Context, n: int) -> Many:
    seen.append([ctx.step(fn.__name__, fn) for fn in STEPS])
    ctx.sleep("a while", timedelta(seconds=5))
    return seen[-1][5]  # type: ignore[no-any-return]


def test_values_are_of_the_same_type_on_the_first_run_and_on_replay() -> None:
    seen.clear()
    run = ran(typed)
    clock.shift(timedelta(seconds=5))
    drive()
    first, again = seen
    assert first == again == [fn() for fn in STEPS]
    assert [type(v) for v in first] == [type(v) for v in again] == [type(fn()) for fn in STEPS]
    assert first[2].tzinfo is not None and first[2] == datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    out = runs.get(run.id).output
    assert out == a_model() and out.secret.get_secret_value() == "hush-hush"
    stored = [*Entry.objects.values_list("data", flat=True), str(Run.objects.get().output)]
    assert not any("hush" in text for text in stored)
    assert runs.replay(run.id).same, "a sealed output differs in its bytes and not in its value"
    assert_invariants()


@flow
def refusing(ctx: Context, which: str) -> Any:
    fn = {"tuple": a_tuple_without_an_annotation, "naive": naive, "lone": lone}[which]
    return ctx.step("it", fn)


@pytest.mark.parametrize("which", ["tuple", "naive", "lone"])
def test_what_would_come_back_otherwise_is_refused_by_the_name_of_its_step(which: str) -> None:
    run = ran(refusing, which)
    assert run.status == "suspended" and "step 'it'" in case(run).data
    assert '"code": "not_serializable"' in case(run).data
    assert_invariants()


@flow
def odd_output(ctx: Context, n: int) -> int:
    return "text"  # type: ignore[return-value]


def test_an_output_that_does_not_fit_stops_the_run() -> None:
    run = ran(odd_output)
    assert run.status == "suspended" and "the output of" in case(run).data


@flow
def inputs(ctx: Context, many: Many) -> str:
    return f"{many.price} {many.secret.get_secret_value()}"


def test_an_input_is_decoded_and_sealed() -> None:
    run = ran(inputs, a_model())
    assert run.output == "0.10 hush-hush" and run.input == a_model()
    assert "hush" not in Run.objects.get().input
    assert_invariants()
