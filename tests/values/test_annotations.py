"""What functions, workflows and effects declare."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import pytest

from approvals.errors import InvalidWorkflow
from approvals.workflows.values import (
    effect_request_type,
    input_annotation,
    return_annotation,
    workflow_annotations,
)
from tests.values.models import EMPTY, Base, Line

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]

T = TypeVar("T")
K = TypeVar("K")


def plain(a: int) -> list[Base]: ...  # type: ignore[empty-body]
async def awaited() -> Base: ...  # type: ignore[empty-body]
def hands_out() -> Coroutine[Any, Any, Base]: ...  # type: ignore[empty-body]
def promises() -> Awaitable[Base]: ...  # type: ignore[empty-body]
def nothing() -> None: ...
def silent(): ...
def extra() -> Annotated[int, "positive"]: ...  # type: ignore[empty-body]
def missing() -> Missing: ...


@functools.wraps(plain)
def wrapper(*args: Any) -> Any: ...


@functools.cache
def cached() -> Decimal:
    return Decimal(1)


class Worker:
    def method(self) -> Decimal: ...  # type: ignore[empty-body]

    @staticmethod
    def static() -> Decimal: ...  # type: ignore[empty-body]

    @classmethod
    def of_class(cls) -> Decimal: ...  # type: ignore[empty-body]

    def __call__(self) -> Base: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("fn", "declared"),
    [
        (plain, list[Base]),
        (awaited, Base),
        (hands_out, Base),
        (promises, Base),
        (nothing, type(None)),
        (silent, EMPTY),
        (extra, Annotated[int, "positive"]),
        (wrapper, list[Base]),
        (cached, Decimal),
        (functools.partial(functools.partial(plain), 1), list[Base]),
        (functools.partial(awaited), Base),
        (Worker().method, Decimal),
        (Worker.static, Decimal),
        (Worker.of_class, Decimal),
        (Worker(), Base),
        (functools.partial(Worker()), Base),
        (Base, Base),
        (Line, Line),
        (lambda: 1, EMPTY),
        (len, EMPTY),
        ("".join, EMPTY),
    ],
)
def test_return_annotations(fn: Callable[..., Any], declared: Any) -> None:
    assert return_annotation(fn) == declared


def test_a_name_that_cannot_be_found() -> None:
    with pytest.raises(InvalidWorkflow, match="'Missing' in the annotations of missing"):
        return_annotation(missing)


def test_a_local_type_that_the_function_uses() -> None:
    class Local(Base):
        pass

    def make() -> Local:
        return Local(x=1)

    assert return_annotation(make) is Local


def test_workflow_annotations() -> None:
    def typed(ctx: Any, request: Base) -> list[int]: ...  # type: ignore[empty-body]
    def untyped(ctx, request): ...
    def alone(ctx: Any) -> None: ...
    def many(ctx: Any, *inputs: int) -> None: ...

    assert workflow_annotations(typed) == (Base, list[int])
    assert input_annotation(typed) is Base
    assert workflow_annotations(untyped) == (EMPTY, EMPTY)
    for fn in (alone, many):
        with pytest.raises(InvalidWorkflow, match="the context and one input"):
            workflow_annotations(fn)


class Effect(Generic[T]):
    """Stands for the author's base class; it is known by its name."""


class Direct(Effect[Base]): ...


class Child(Direct): ...


class Mixin(Generic[K]): ...


class Between(Mixin[int], Effect[list[T]], Generic[T, K]): ...


class Through(Between[Base, int]): ...


class Newer[N](Effect[N]): ...


class OfNewer(Newer[Decimal]): ...


class Quoted(Effect["Base"]): ...


class Lost(Effect["Absent"]): ...  # type: ignore[name-defined]


class Open(Effect): ...  # type: ignore[type-arg]


class StillOpen(Between[T, int]): ...


@pytest.mark.parametrize(
    ("cls", "request_type"),
    [
        (Direct, Base),
        (Child, Base),
        (Through, list[Base]),
        (OfNewer, Decimal),
        (Quoted, Base),
        (Open, Any),
        (Newer, Any),
        (StillOpen, list[T]),  # type: ignore[valid-type]
    ],
)
def test_effect_request_types(cls: type, request_type: Any) -> None:
    assert effect_request_type(cls) == request_type


def test_an_effect_of_an_unknown_type() -> None:
    with pytest.raises(InvalidWorkflow, match="Absent"):
        effect_request_type(Lost)
