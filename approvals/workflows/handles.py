"""What `ctx.signal`, `ctx.timer`, `ctx.child` and `ctx.request_approval` return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from uuid import UUID

T_co = TypeVar("T_co", covariant=True)


class Handle(Generic[T_co]):
    """An open wait of this run; `.value` once it is closed."""

    def __init__(self, id: UUID, name: str, read: Callable[[], T_co]) -> None:
        self.id, self.name, self._read = id, name, read

    @property
    def value(self) -> T_co:
        """What it brought. Raises ContextMisuse while it is open, ChildFailed for a child that failed."""
        return self._read()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class WebhookHandle(Handle[T_co]):
    """A webhook's address and secret."""

    url: str
    secret: str
