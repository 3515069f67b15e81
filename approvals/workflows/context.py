"""The context that a workflow function is given. It checks how it is used and hands on to its Turn."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID, uuid5

from approvals.errors import ContextMisuse
from approvals.types import Decision, Evidence, Expired, Fired, Message, Receipt, StillOpen
from approvals.workflows import asked
from approvals.workflows.effects import Effect
from approvals.workflows.handles import Handle
from approvals.workflows.later import NotBuiltYet

if TYPE_CHECKING:
    from approvals.workflows.registry import Workflow

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
Req = TypeVar("Req")
Act = TypeVar("Act")


class Turn(Protocol):
    """What the engine hands down: one worker's hold of this run. It journals, replays and leaves."""

    run_id: UUID
    key: str | None
    requester: str
    version: int
    seed: UUID
    log: logging.Logger

    def enter(self, what: str) -> None:
        """Before every call: raises what is being left with, or ContextMisuse inside a body."""

    def step(self, kind: str, name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any: ...
    def effect(self, name: str, effect: Any, request: Any, **options: Any) -> Any: ...
    def request_approval(self, name: str, **options: Any) -> Handle[Any]: ...
    def signal(self, name: str, schema: Any, expires_in: timedelta | None) -> Handle[Any]: ...
    def timer(self, name: str, when: timedelta | datetime, *, later: bool = False) -> Handle[Any]: ...
    def child(self, name: str, workflow: Any, input: Any) -> Handle[Any]: ...
    def wait(self, handle: Handle[Any], at_most: timedelta | None) -> Any: ...
    def wait_any(self, handles: tuple[Handle[Any], ...], cancel_losers: bool) -> Handle[Any]: ...
    def wait_all(self, handles: tuple[Handle[Any], ...]) -> tuple[Any, ...]: ...
    def compensate(self, reason: str) -> None: ...
    def now(self) -> datetime: ...
    def progress(self, done: float, total: float, text: str) -> None: ...


class Context(NotBuiltYet):
    """Each thing that a workflow asks of it is journaled at a position (CONTRACT section 2)."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._thread = threading.get_ident()
        self._names: dict[tuple[str, str], int] = {}
        self.run_id: UUID = turn.run_id
        self.key: str | None = turn.key
        self.requester: str = turn.requester
        self.version: int = turn.version
        self.log: logging.Logger = turn.log

    def _enter(self, what: str, name: str = "") -> Turn:
        if threading.get_ident() != self._thread:
            raise ContextMisuse("The context is used in the thread of its workflow only", call=f"ctx.{what}")
        self._turn.enter(what)
        asked.name_of(what, name)
        return self._turn

    @overload
    def step(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Pure or read-only work of any duration, run once per completed attempt and then remembered.

        Raises StepFailed or StepTimeout when it is out of attempts, StepWrites if it wrote to the database.
        """
        return self._enter("step", name).step("step", name, fn, args, kwargs)

    def transaction(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """`fn`'s ORM writes and its journal entry commit in one database transaction: exactly once."""
        result: R = self._enter("transaction", name).step("transaction", name, fn, args, kwargs)
        return result

    def effect(
        self,
        name: str,
        effect: type[Effect[Req]] | Effect[Req],
        request: Req,
        *,
        policy: str | None = None,
        approved_by: Decision[Req, Any] | None = None,
        supersedes: Receipt[Any] | None = None,
        title: str | None = None,
        summary: str | None = None,
        evidence: Iterable[Evidence] = (),
    ) -> Receipt[Req]:
        """A change in the outside world, at most once; under a policy only as approved.

        Raises NotApproved (ApprovalRejected, ApprovalExpired, ChangesRequested), ArgumentsChanged,
        ApprovalConsumed, PolicyDenied, EffectRefused, StepFailed (nothing could be sent).
        """
        receipt: Receipt[Req] = self._enter("effect", name).effect(
            name,
            effect,
            request,
            policy=policy,
            approved_by=approved_by,
            supersedes=supersedes,
            title=title,
            summary=summary,
            evidence=tuple(evidence),
        )
        return receipt

    @overload
    def approval(
        self,
        name: str,
        *,
        policy: str,
        action: Act,
        effect: type[Effect[Act]] | Effect[Act] | None = None,
        title: str,
        summary: str = "",
        evidence: Iterable[Evidence] = (),
        form: None = None,
    ) -> Decision[Act, None]: ...
    @overload
    def approval(
        self,
        name: str,
        *,
        policy: str,
        action: Act,
        effect: type[Effect[Act]] | Effect[Act] | None = None,
        title: str,
        summary: str = "",
        evidence: Iterable[Evidence] = (),
        form: type[T],
    ) -> Decision[Act, T | None]: ...
    def approval(
        self,
        name: str,
        *,
        policy: str,
        action: Any,
        effect: Any = None,
        title: str,
        summary: str = "",
        evidence: Iterable[Evidence] = (),
        form: Any = None,
    ) -> Any:
        """Suspends until people decide. Raises PolicyDenied, UnknownPolicy."""
        turn = self._enter("approval", name)
        handle = turn.request_approval(
            name,
            policy=policy,
            action=action,
            effect=effect,
            title=title,
            summary=summary,
            evidence=tuple(evidence),
            form=form,
            park=True,
        )
        return turn.wait(handle, None)

    @overload
    def request_approval(
        self,
        name: str,
        *,
        policy: str,
        action: Act,
        effect: type[Effect[Act]] | Effect[Act] | None = None,
        title: str,
        summary: str = "",
        evidence: Iterable[Evidence] = (),
        form: None = None,
    ) -> Handle[Decision[Act, None]]: ...
    @overload
    def request_approval(
        self,
        name: str,
        *,
        policy: str,
        action: Act,
        effect: type[Effect[Act]] | Effect[Act] | None = None,
        title: str,
        summary: str = "",
        evidence: Iterable[Evidence] = (),
        form: type[T],
    ) -> Handle[Decision[Act, T | None]]: ...
    def request_approval(
        self,
        name: str,
        *,
        policy: str,
        action: Any,
        effect: Any = None,
        title: str,
        summary: str = "",
        evidence: Iterable[Evidence] = (),
        form: Any = None,
    ) -> Any:
        """Asks people and goes on; wait for the handle later. Raises PolicyDenied, UnknownPolicy."""
        return self._enter("request_approval", name).request_approval(
            name,
            policy=policy,
            action=action,
            effect=effect,
            title=title,
            summary=summary,
            evidence=tuple(evidence),
            form=form,
            park=False,
        )

    @overload
    def signal(self, name: str, *, schema: type[T], expires_in: None = None) -> Handle[Message[T]]: ...
    @overload
    def signal(
        self, name: str, *, schema: type[T], expires_in: timedelta
    ) -> Handle[Message[T] | Expired]: ...
    @overload
    def signal(self, name: str, *, schema: None = None, expires_in: None = None) -> Handle[Message[Any]]: ...
    @overload
    def signal(
        self, name: str, *, schema: None = None, expires_in: timedelta
    ) -> Handle[Message[Any] | Expired]: ...
    def signal(self, name: str, *, schema: Any = None, expires_in: timedelta | None = None) -> Any:
        """A message that somebody sends to this run by name; one that came early is kept for it."""
        turn = self._enter("signal", name)
        due = None if expires_in is None else asked.span("signal", name, expires_in)
        return turn.signal(name, schema, due)

    def timer(self, name: str, when: timedelta | datetime) -> Handle[Fired]:
        """Fires at an instant of database time (an aware datetime, or so long from now)."""
        turn = self._enter("timer", name)
        if isinstance(when, datetime):
            return turn.timer(name, asked.instant("timer", name, when))
        return turn.timer(name, asked.span("timer", name, when))

    def child(self, name: str, workflow: Workflow[I, O], input: I) -> Handle[O]:
        """Starts a run of another workflow; its end closes the handle."""
        return self._enter("child", name).child(name, workflow, input)

    @overload
    def wait(self, handle: Handle[T]) -> T: ...
    @overload
    def wait(self, handle: Handle[T], *, at_most: timedelta) -> T | StillOpen: ...
    def wait(self, handle: Handle[Any], *, at_most: timedelta | None = None) -> Any:
        """Suspends until the handle is closed; with `at_most`, StillOpen leaves it open."""
        turn = self._enter("wait")
        return turn.wait(handle, None if at_most is None else asked.span("wait", handle.name, at_most))

    def wait_any(self, *handles: Handle[Any], cancel_losers: bool = True) -> Handle[Any]:
        """Suspends until the first is closed and returns it; losers still open are closed with it."""
        return self._enter("wait_any").wait_any(handles, cancel_losers)

    @overload
    def wait_all(self, a: Handle[T1], b: Handle[T2], /) -> tuple[T1, T2]: ...
    @overload
    def wait_all(self, a: Handle[T1], b: Handle[T2], c: Handle[T3], /) -> tuple[T1, T2, T3]: ...
    @overload
    def wait_all(self, *handles: Handle[T]) -> tuple[T, ...]: ...
    def wait_all(self, *handles: Handle[Any]) -> tuple[Any, ...]:
        """Suspends until all are closed; woken once."""
        return self._enter("wait_all").wait_all(handles)

    def sleep(self, name: str, delta: timedelta) -> None:
        """Suspends for this long; nothing is held meanwhile."""
        turn = self._enter("sleep", name)
        turn.wait(turn.timer(name, asked.span("sleep", name, delta), later=True), None)

    def compensate(self, reason: str = "") -> None:
        """Undoes what this run has done so far, newest first, once each; each undoing is an effect of its own.

        What cannot be undone stops the run for an operator, and is never passed over in silence.
        """
        self._enter("compensate").compensate(reason)

    def now(self) -> datetime:
        """Database time, remembered."""
        return self._enter("now").now()

    def uuid(self, name: str) -> UUID:
        """The same at every replay; a repeated name gives the next value."""
        return uuid5(self._enter("uuid", name).seed, f"uuid:{name}:{self._next('uuid', name)}")

    def random(self, name: str) -> Random:
        """A generator with the same numbers at every replay; a repeated name gives the next one."""
        seed = self._enter("random", name).seed
        text = f"{seed}:{name}:{self._next('random', name)}"
        return Random(hashlib.sha256(text.encode()).digest())  # noqa: S311 - reproducible, not secret

    def progress(self, done: int, total: int, text: str = "") -> None:
        """Says how far it is; shown, never journaled."""
        turn = self._enter("progress")
        turn.progress(asked.amount("done", done), asked.amount("total", total), asked.note(text))

    def _next(self, kind: str, name: str) -> int:
        n = self._names.get((kind, name), 0)
        self._names[kind, name] = n + 1
        return n
