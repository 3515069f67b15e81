"""What authors subclass to change something in the outside world."""

from __future__ import annotations

import inspect
import time
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

from approvals.errors import InvalidWorkflow, Unknown
from approvals.limits import limits
from approvals.types import Receipt, Retry, Verification

Req = TypeVar("Req", default=Any)

_kinds: dict[str, type[Effect[Any]]] = {}
call_ends: ContextVar[float] = ContextVar("approvals_call_ends")


def within_a_turn(value: Any, told: str, **of: str) -> None:
    """Nothing, for the duration of something that a turn waits for. Raises InvalidWorkflow."""
    most = timedelta(seconds=limits().turn_seconds)
    if not isinstance(value, timedelta) or not timedelta() < value <= most:
        raise InvalidWorkflow.of(
            f"{told} is a timedelta above 0, and at most {most}", found=repr(value), **of
        )


class Effect(Generic[Req]):
    """One kind of change in the outside world. Only `perform` must be written."""

    kind: str = ""
    """Stable name, stored; a second class of the same kind refuses to start (InvalidWorkflow)."""
    deadline: timedelta = timedelta(seconds=30)
    """Of one call."""
    deduplicates: bool = False
    """True only if the peer deduplicates on our key."""
    policy: str | None = None
    """A policy's slug: this effect can never run without it."""
    risk: Literal["low", "medium", "high"] = "low"
    reversible: bool = True
    retry: Retry = Retry(attempts=3)
    """For NotSent only."""
    verify_max_age: timedelta = timedelta(0)
    """A fresher verification is not repeated."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.retry.attempts > limits().attempts:
            raise InvalidWorkflow(
                "Too many attempts of an effect (APPROVALS_LIMITS: attempts)",
                effect=cls.__qualname__,
                found=cls.retry.attempts,
                limit=limits().attempts,
            )
        within_a_turn(cls.deadline, "An effect's deadline", effect=cls.__qualname__)
        if not isinstance(cls.verify_max_age, timedelta):
            raise InvalidWorkflow("An effect's verify_max_age is a timedelta", effect=cls.__qualname__)
        if "kind" not in cls.__dict__:
            return
        there = _kinds.get(cls.kind)
        if there is not None and (there.__module__, there.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidWorkflow(
                "Two effects of one kind: the stored kind must name one class; rename one of them",
                kind=cls.kind,
                first=f"{there.__module__}.{there.__qualname__}",
                second=f"{cls.__module__}.{cls.__qualname__}",
            )
        _kinds[cls.kind] = cls

    def seconds_left(self) -> float:
        """Until the deadline of the call that is being performed, in seconds; feed it to a client's timeout."""
        return max(0.0, call_ends.get(time.monotonic()) - time.monotonic())

    def perform(self, request: Req, key: str) -> Receipt[Any]:
        """Does it and returns the peer's receipt.

        Raises Refused (a definite no) or NotSent (certainly nothing went out); anything else means that
        the outcome is unknown. Sends nothing after `seconds_left()` is 0.
        """
        raise TypeError(f"{type(self).__name__} has no perform()")

    def lookup(self, request: Req, key: str) -> Receipt[Any] | None:
        """Finds what an earlier call with this key did; None: it is not there now. Raises Unknown."""
        raise TypeError(f"{type(self).__name__} has no lookup()")

    def verify(self, receipt: Receipt[Req]) -> Verification:
        """Reads back, independently, what the receipt says."""
        raise TypeError(f"{type(self).__name__} has no verify()")

    def compensate(self, receipt: Receipt[Req], key: str) -> Receipt[Any] | None:
        """Undoes it; `receipt.request` is what was performed."""
        raise TypeError(f"{type(self).__name__} has no compensate()")

    def describe(self, request: Req) -> str:
        """The sentence that a reviewer reads first."""
        return ""

    def target(self, request: Req) -> str:
        """What it acts on; part of the digest."""
        return ""

    def current(self, request: Req) -> Any:
        """The present state of what it would change, for the diff; None: nothing to show."""
        return None

    @classmethod
    def offers(cls, method: Literal["lookup", "verify", "compensate"]) -> bool:
        """Whether the class has this optional method."""
        return getattr(cls, method) is not getattr(Effect, method)


class Compensation(Effect[Req]):
    """The undoing of one effect, as an effect of its own: of its own kind, with its own key and receipt."""

    def __init__(self, of: Effect[Req], receipt: Receipt[Req]) -> None:
        self.of, self.undoes = of, receipt
        self.kind = f"{of.kind}.compensate"
        self.deadline, self.deduplicates, self.retry, self.risk = (
            of.deadline,
            of.deduplicates,
            of.retry,
            of.risk,
        )
        self.reversible = False

    def perform(self, request: Req, key: str) -> Receipt[Any]:
        """Undoes it; a receipt of our own says so if there was nothing to be done."""
        done = self.of.compensate(self.undoes, key)
        if done is None:
            return Receipt(self.undoes.external_id, evidence={"undone": "there was nothing to be done"})
        return done

    def lookup(self, request: Req, key: str) -> Receipt[Any] | None:
        """A receipt if what is to be undone is gone. None: it is there, which may or may not mean anything.

        Only that it is gone proves something: many peers keep what was undone (a charge that was refunded).
        """
        if self.of.offers("lookup"):
            is_gone = self.of.lookup(self.undoes.request, self.undoes.key) is None
        elif self.of.offers("verify"):
            is_gone = self.of.verify(self.undoes) is Verification.MISSING
        else:
            raise Unknown("this peer cannot be looked up, and to undo it again might do so twice")
        return Receipt(self.undoes.external_id, evidence={"looked_up": "it is gone"}) if is_gone else None

    def describe(self, request: Req) -> str:
        return f"Undo: {self.of.describe(request) or self.of.kind}"

    def target(self, request: Req) -> str:
        return self.of.target(request)


def instance(effect: type[Effect[Any]] | Effect[Any]) -> Effect[Any]:
    """The effect as an object; InvalidWorkflow if it is none, has no kind, or is no class of its kind."""
    made: Any = effect() if inspect.isclass(effect) and issubclass(effect, Effect) else effect
    if not isinstance(made, Effect) or not made.kind:
        raise InvalidWorkflow("ctx.effect needs an Effect class or instance with a kind", found=repr(effect))
    return made


def undoable() -> list[str]:
    """The kinds whose code here has a `compensate`."""
    return [kind for kind, cls in _kinds.items() if cls.offers("compensate")]


def of_kind(kind: str) -> Effect[Any] | None:
    """The effect registered for a stored kind; None if its code is gone."""
    cls = _kinds.get(kind)
    return cls() if cls is not None else None
