"""Types that the tests of this folder store; at module level, as authors write them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, Generic, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    Secret,
    SecretBytes,
    SecretStr,
    computed_field,
    field_serializer,
)

EMPTY = inspect.Parameter.empty
BERLIN = ZoneInfo("Europe/Berlin")
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - naive is the point
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(StrEnum):
    SMALL = "small"


class Point(NamedTuple):
    x: int
    y: int


class Movie(TypedDict):
    title: str


@dataclass
class Line:
    start: Point
    tags: tuple[str, ...] = ()
    meta: dict[str, int] = field(default_factory=dict)


class Base(BaseModel):
    x: int


class Wider(Base):
    y: int = 2


class Holder(BaseModel):
    base: Base
    anything: Any = None


class Order(BaseModel):
    id: UUID
    placed_at: datetime
    due: date | None
    total: Decimal
    colour: Colour
    sizes: frozenset[Size]
    lines: list[Line]
    pair: tuple[int, str]
    by_colour: dict[Colour, int]
    blob: bytes


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date
    raw: bytes
    secret: SecretStr
    inner: Strict | None = None


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")

    a: int = Field(alias="b")
    b: int = Field(alias="a")

    @computed_field
    def both(self) -> int:
        return self.a + self.b


class Private(BaseModel):
    a: int
    _cache: int = PrivateAttr(default=0)


class Box(BaseModel, Generic[T]):
    value: T


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int


class Login(BaseModel):
    user: str
    password: SecretStr
    key: SecretBytes = SecretBytes(b"\xff\x00")
    born: Secret[date] | None = None
    more: list[SecretStr] = []


class Shows(BaseModel):
    """Its own serializer, as pydantic's documentation shows it, writes the secret in clear text in JSON."""

    password: SecretStr

    @field_serializer("password", when_used="json")
    def _shown(self, value: SecretStr) -> str:
        return value.get_secret_value()


class ShowsAlways(BaseModel):
    password: SecretStr

    @field_serializer("password")
    def _shown(self, value: SecretStr) -> str:
        return value.get_secret_value()


class Quacks(Protocol):
    def quack(self) -> str: ...


class TwoArguments(Exception):
    def __init__(self, first: str, second: int) -> None:
        super().__init__(f"{first} {second}")
