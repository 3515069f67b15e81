"""Values that broke systems of this kind: each with the annotation under which an author would keep it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import BaseModel, field_validator


@dataclass(frozen=True)
class Poison:
    """`make` gives the value, each time a new one."""

    name: str
    make: Callable[[], Any]
    annotation: Any = Any
    costs: bool = False
    """Whether it takes much time."""


def deep(kind: type, levels: int) -> Any:
    value: Any = kind()
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


def circular_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def circular_dict() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["it"] = value
    return value


class Text(str):
    """A text that carries something more."""

    def __new__(cls, text: str) -> Text:
        made = super().__new__(cls, text)
        made.more = 1
        return made

    more: int


class Silent(Exception):
    """It has no words, and says so by raising."""

    def __str__(self) -> str:
        raise ValueError("no words")


class _Broken(BaseModel):
    """Its validator raises when the value is read back."""

    n: int
    raises: ClassVar[type[BaseException]]

    @field_validator("n")
    @classmethod
    def _raise(cls, n: int) -> int:
        raise cls.raises


class Interrupts(_Broken):
    raises = KeyboardInterrupt


class Exits(_Broken):
    raises = SystemExit


class Closes(_Broken):
    raises = GeneratorExit


class Speechless(_Broken):
    raises = Silent


class Recurses(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _again(cls, n: int) -> int:
        return cls._again(n)


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


WEST_OF_ALL = datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))

POISONS = [
    Poison("nul", lambda: "a\x00b", str),
    Poison("nul in a key", lambda: {"a\x00b": 1}),
    Poison("surrogate", lambda: "a\ud800b", str),
    Poison("surrogate in a key", lambda: {"\ud800": 1}),
    Poison("2^53+1", lambda: 2**53 + 1, int),
    Poison("2^200", lambda: [-(2**200)]),
    Poison("10^5000", lambda: {"n": 10**5000}),
    Poison("2^53+1 as float", lambda: 2**53 + 1, float),
    Poison("nan", lambda: float("nan"), float),
    Poison("infinity", lambda: [float("inf")]),
    Poison("-0.0", lambda: -0.0, float),
    Poison("5 MB of text", lambda: "x" * 5_000_000, str, True),
    Poison("5 MB of bytes", lambda: b"\x00" * 5_000_000, bytes, True),
    Poison("deep list", lambda: deep(list, 10_000)),
    Poison("deep dict", lambda: deep(dict, 10_000), dict[str, Any]),
    Poison("198 levels", lambda: deep(dict, 198)),
    Poison("100,000 keys", lambda: {f"key {n}": n for n in range(100_000)}, Any, True),
    Poison("keys alike", lambda: {1: "a", "1": "b"}, dict[int | str, str]),
    Poison("nothing", lambda: "", str),
    Poison("empty key", lambda: {"": ""}),
    Poison("our own tags", lambda: {"$secret": "x", "$$int": "5"}),
    Poison("more than text", lambda: Text("x"), str),
    Poison("true", lambda: True, int),
    Poison("no zone", lambda: datetime(2026, 1, 1), datetime),  # noqa: DTZ001
    Poison("year 9999", lambda: datetime.max.replace(tzinfo=UTC), datetime),
    Poison("year 10000", lambda: WEST_OF_ALL, datetime),
    Poison("first day", lambda: date.min, date),
    Poison("longest", lambda: timedelta.max, timedelta),
    Poison("decimal nan", lambda: Decimal("sNaN"), Decimal),
    Poison("huge exponent", lambda: Decimal("1E+999999"), Decimal),
    Poison("circular list", circular_list),
    Poison("circular dict", circular_dict),
    Poison("object", object),
    Poison("no comparison", Unequal, list[Any]),
    Poison("generator", lambda: (n for n in range(3))),
    Poison("keyboard interrupt", lambda: Interrupts.model_construct(n=1), Interrupts),
    Poison("system exit", lambda: Exits.model_construct(n=1), Exits),
    Poison("generator exit", lambda: Closes.model_construct(n=1), Closes),
    Poison("endless validator", lambda: Recurses.model_construct(n=1), Recurses, True),
    Poison("speechless validator", lambda: Speechless.model_construct(n=1), Speechless),
]
