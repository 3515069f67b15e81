"""The rest of the context's surface: typed, so that workflows can be written and checked against it.

Each call says plainly that it is not built yet; it moves to `context` when it is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from approvals.errors import NotAvailable
from approvals.types import Expired, Failure, Message
from approvals.workflows.handles import WebhookHandle

if TYPE_CHECKING:
    from approvals.workflows.registry import Workflow

R = TypeVar("R")
I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")


class NotBuiltYet:
    """Calls of CONTRACT section 2 that later work brings."""

    @overload
    def webhook(
        self,
        name: str,
        *,
        scheme: Literal["standard", "github", "stripe", "none"] = "standard",
        when: str | None = None,
        secret: str | None = None,
        schema: type[T],
        expires_in: None = None,
    ) -> WebhookHandle[Message[T]]: ...
    @overload
    def webhook(
        self,
        name: str,
        *,
        scheme: Literal["standard", "github", "stripe", "none"] = "standard",
        when: str | None = None,
        secret: str | None = None,
        schema: type[T],
        expires_in: timedelta,
    ) -> WebhookHandle[Message[T] | Expired]: ...
    @overload
    def webhook(
        self,
        name: str,
        *,
        scheme: Literal["standard", "github", "stripe", "none"] = "standard",
        when: str | None = None,
        secret: str | None = None,
        schema: None = None,
        expires_in: None = None,
    ) -> WebhookHandle[Message[Any]]: ...
    @overload
    def webhook(
        self,
        name: str,
        *,
        scheme: Literal["standard", "github", "stripe", "none"] = "standard",
        when: str | None = None,
        secret: str | None = None,
        schema: None = None,
        expires_in: timedelta,
    ) -> WebhookHandle[Message[Any] | Expired]: ...
    def webhook(self, name: str, **options: Any) -> Any:
        """One unguessable address per wait. Not available yet."""
        _not_yet("webhook")

    @overload
    def map(
        self,
        name: str,
        target: Workflow[I, O],
        items: Iterable[I],
        *,
        key: Callable[[I], str] | None = None,
        max_concurrency: int | None = None,
        tolerated_failures: Literal[0] = 0,
    ) -> list[O]: ...
    @overload
    def map(
        self,
        name: str,
        target: Workflow[I, O],
        items: Iterable[I],
        *,
        key: Callable[[I], str] | None = None,
        max_concurrency: int | None = None,
        tolerated_failures: int,
    ) -> list[O | Failure]: ...
    @overload
    def map(
        self,
        name: str,
        target: Callable[[I], Coroutine[Any, Any, R]],
        items: Iterable[I],
        *,
        key: Callable[[I], str] | None = None,
        max_concurrency: int | None = None,
        tolerated_failures: Literal[0] = 0,
    ) -> list[R]: ...
    @overload
    def map(
        self,
        name: str,
        target: Callable[[I], Coroutine[Any, Any, R]],
        items: Iterable[I],
        *,
        key: Callable[[I], str] | None = None,
        max_concurrency: int | None = None,
        tolerated_failures: int,
    ) -> list[R | Failure]: ...
    @overload
    def map(
        self,
        name: str,
        target: Callable[[I], R],
        items: Iterable[I],
        *,
        key: Callable[[I], str] | None = None,
        max_concurrency: int | None = None,
        tolerated_failures: Literal[0] = 0,
    ) -> list[R]: ...
    @overload
    def map(
        self,
        name: str,
        target: Callable[[I], R],
        items: Iterable[I],
        *,
        key: Callable[[I], str] | None = None,
        max_concurrency: int | None = None,
        tolerated_failures: int,
    ) -> list[R | Failure]: ...
    def map(self, name: str, target: Any, items: Any, **options: Any) -> Any:
        """One step or one child run per item. Not available yet."""
        _not_yet("map")

    @overload
    def parallel(self, name: str, a: Callable[[], T1], b: Callable[[], T2], /) -> tuple[T1, T2]: ...
    @overload
    def parallel(
        self, name: str, a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], /
    ) -> tuple[T1, T2, T3]: ...
    def parallel(self, name: str, *fns: Any) -> Any:
        """Steps at the same time. Not available yet."""
        _not_yet("parallel")

    def patched(self, name: str) -> bool:
        """Whether this run takes a changed branch. Not available yet."""
        _not_yet("patched")

    def continue_as_new(self, input: Any) -> NoReturn:
        """Goes on with a fresh journal. Not available yet."""
        _not_yet("continue_as_new")

    def expose(self, name: str, value: Any) -> None:
        """Shows a local of interest at this position. Not available yet."""
        _not_yet("expose")


def _not_yet(what: str) -> NoReturn:
    raise NotAvailable(f"ctx.{what} is not built yet; CHANGELOG.md says what is")
