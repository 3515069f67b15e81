"""What workflows may ask for, and the forms that ask for it."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

from django.template.loader import render_to_string
from pydantic import AwareDatetime, BaseModel, Field

from approvals.web import forms
from approvals.workflows.values import codec_for
from tests.web.page import Page


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Line(BaseModel):
    sku: str
    quantity: int = Field(1, ge=1, le=99)
    note: str | None = None


class Plain(BaseModel):
    text: str
    body: str = "A default"
    maybe: str | None = None
    whole: int
    share: float
    price: Decimal
    flag: bool
    on_by_default: bool = True
    tri: bool | None = None
    colour: Colour
    level: Level = Level.HIGH
    odd: Literal["1", 1, True]
    fixed: Literal["EUR"]
    number: int | None = 5


class Times(BaseModel):
    at: datetime
    aware: AwareDatetime | None = None
    day: date
    clock: time
    lasts: timedelta = timedelta(hours=1, minutes=30)
    id: UUID


class Loose(TypedDict):
    name: str
    nick: NotRequired[str]
    lines: NotRequired[list[Line]]
    best: NotRequired[Line | None]
    sure: NotRequired[bool]


class Nested(BaseModel):
    line: Line
    maybe: Line | None = None
    given: Line = Line(sku="standard")
    lines: list[Line] = []
    more: list[list[int]] | None = None
    tags: set[str] = set()
    made: list[int] = Field(default_factory=lambda: [1, 2])
    loose: Loose


class Tree(BaseModel):
    value: int
    below: list[Tree] = []
    next: Tree | None = None


class Any_(BaseModel):
    counts: dict[str, int]
    either: int | str
    both: float | str
    pair: tuple[int, str]
    anything: Any
    tagged: Annotated[Line | Tree, Field()] | None = None


def schema_of(annotation: Any) -> dict[str, Any]:
    return codec_for(annotation).schema()


def page_of(field: forms.Field) -> Page:
    return Page(render_to_string("approvals/web/_fields.html", {"field": field}))


def shown(annotation: Any, values: Any = forms.ABSENT) -> Page:
    return page_of(forms.fields(schema_of(annotation), values))


def read(annotation: Any, typed: dict[str, Any], **more: Any) -> forms.Filled:
    """What comes of the empty form with this typed into it."""
    return forms.tree(schema_of(annotation), shown(annotation).filled(typed), **more)
