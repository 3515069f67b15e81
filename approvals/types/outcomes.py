"""Values about what happened: receipts, decisions, messages, retries. They compare by value. Pure: no Django."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, cast
from uuid import UUID

from typing_extensions import TypeVar as TypeVarWithDefault

from approvals.errors import ApprovalExpired, ApprovalRejected, ChangesRequested, NotApproved

T = TypeVar("T")
Req = TypeVarWithDefault("Req", default=Any)
Act = TypeVarWithDefault("Act", default=Any)
Form = TypeVarWithDefault("Form", default=None)
Pay = TypeVarWithDefault("Pay", default=Any)

YEAR_SECONDS = 366 * 86_400
"""The longest pause between attempts, and the steepest growth of pauses: beyond, a mistake is likelier than a wish."""

Outcome = Literal["approved", "rejected", "changes_requested", "expired"]


class Verification(Enum):
    """What an independent read-back of an effect says."""

    MATCH = "match"
    CHANGED = "changed"
    MISSING = "missing"
    UNKNOWN = "unknown"


MATCH = Verification.MATCH
CHANGED = Verification.CHANGED
MISSING = Verification.MISSING
UNKNOWN = Verification.UNKNOWN


@dataclass(frozen=True)
class Retry:
    """How often, and with which pauses, an attempt that failed is made again.

    `attempts` counts the first one too; an exception is tried again if it is one of `on` and none of
    `never`. Raises `ValueError` or `TypeError` for numbers that make no sense.
    """

    attempts: int = 3
    first_seconds: float = field(default=1, kw_only=True)
    factor: float = field(default=2, kw_only=True)
    max_seconds: float = field(default=60, kw_only=True)
    on: tuple[type[Exception], ...] = field(default=(Exception,), kw_only=True)
    never: tuple[type[Exception], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise ValueError(f"Retry: attempts must be a whole number from 1 (found {self.attempts!r})")
        for name, least in (("first_seconds", 0), ("factor", 1), ("max_seconds", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not least <= value <= YEAR_SECONDS:
                large = isinstance(value, int) and value.bit_length() > 64
                found = "a number that is too large" if large else repr(value)
                raise ValueError(
                    f"Retry: {name} must be a number from {least} to {YEAR_SECONDS} (found {found})"
                )
        for name in ("on", "never"):
            kinds = getattr(self, name)
            if not isinstance(kinds, tuple) or not all(
                isinstance(k, type) and issubclass(k, Exception) for k in kinds
            ):
                raise TypeError(f"Retry: {name} must be a tuple of exception classes (found {kinds!r})")

    def delay(self, attempt: int) -> timedelta:
        """The pause after this attempt (the first is 1) failed."""
        if not self.first_seconds:
            return timedelta()
        try:
            seconds = self.first_seconds * float(self.factor) ** max(attempt - 1, 0)
        except OverflowError:
            seconds = self.max_seconds
        return timedelta(seconds=min(seconds, self.max_seconds))

    def covers(self, error: BaseException) -> bool:
        """Whether this error is worth another attempt, the number of attempts apart."""
        return isinstance(error, self.on) and not isinstance(error, self.never)


@dataclass(frozen=True)
class Receipt(Generic[Req]):
    """What the peer gave for an effect that it performed.

    An effect's `perform` gives identifier, checksum and evidence; the engine adds the request as
    performed, the key and the effect's kind (`bound`).
    """

    external_id: str
    checksum: str | None = field(default=None, kw_only=True)
    evidence: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    request: Req = field(default=cast("Any", None), init=False)
    key: str = field(default="", init=False)
    kind: str = field(default="", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "external_id", str(self.external_id))
        object.__setattr__(self, "evidence", dict(self.evidence))

    def bound(self, request: Req, key: str, kind: str) -> Self:
        """A copy that says what was performed, under which key, by which kind of effect."""
        bound = copy.copy(self)
        for name, value in (("request", request), ("key", key), ("kind", kind)):
            object.__setattr__(bound, name, value)
        return bound


@dataclass(frozen=True)
class DecisionRecord:
    """One person's decision; `counted` is false once an edit or a withdrawal voided it."""

    reviewer: str
    outcome: str
    comment: str
    at: datetime
    channel: str
    counted: bool


@dataclass(frozen=True)
class Decision(Generic[Act, Form]):
    """What people decided about an action; true if they approved it.

    `action` and `digest` are of the action as decided, perhaps edited. `wait_id` is the engine's: it
    ties the decision to the wait that asked for it.
    """

    outcome: Outcome
    action: Act
    digest: str
    form: Form = field(default=cast("Any", None))
    decisions: Sequence[DecisionRecord] = ()
    comment: str = ""
    wait_id: UUID | None = field(default=None, kw_only=True, repr=False)

    @property
    def approved(self) -> bool:
        return self.outcome == "approved"

    def __bool__(self) -> bool:
        return self.approved

    def require(self) -> Self:
        """This decision, if it approves; raises `ApprovalRejected`, `ApprovalExpired` or `ChangesRequested`."""
        if not self.approved:
            self._refuse()
        return self

    def _refuse(self) -> NoReturn:
        errors: dict[str, type[NotApproved]] = {
            "rejected": ApprovalRejected,
            "expired": ApprovalExpired,
            "changes_requested": ChangesRequested,
        }
        kind = errors.get(self.outcome, NotApproved)
        message = (kind.__doc__ or kind.__name__).splitlines()[0].rstrip(".")
        told = f"{message}: {self.comment}" if self.comment else message
        raise kind(told, decision=self, comment=self.comment)


@dataclass(frozen=True)
class Message(Generic[Pay]):
    """What closed a webhook or a signal."""

    id: str
    payload: Pay
    received_at: datetime


@dataclass(frozen=True)
class Expired:
    """The wait of this name ended at its deadline, without a message."""

    name: str
    at: datetime


@dataclass(frozen=True)
class StillOpen:
    """`at_most` passed and the wait stays open."""


@dataclass(frozen=True)
class Fired:
    """A timer was due at this instant."""

    at: datetime


@dataclass(frozen=True, eq=False)
class Failure:
    """In place of a result of `ctx.map`: the item that failed and its error. Errors compare by type and arguments."""

    error: Exception
    item: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Failure):
            return NotImplemented
        mine, theirs = (type(self.error), self.error.args), (type(other.error), other.error.args)
        return mine == theirs and bool(self.item == other.item)

    def __hash__(self) -> int:
        return hash((type(self.error), self.error.args))


@dataclass(frozen=True)
class Checkpoint:
    """An old version's run, as a migration sees it.

    `outputs` holds the stored text of each name's results in journal order; `decode(text, type)` reads
    one, and is handed down by the engine.
    """

    version: int
    input: Any
    outputs: Mapping[str, Sequence[str]] = field(repr=False)
    decode: Callable[[str, Any], Any] = field(repr=False, compare=False)
    receipts: Sequence[Receipt[Any]] = ()
    open_waits: Sequence[Any] = ()

    def output_of(self, name: str, type: type[T], /, nth: int = -1) -> T:
        """The nth result of this name (the last by default), as this type. Raises `LookupError` if there is none."""
        stored = self.outputs.get(name, ())
        try:
            text = stored[nth]
        except IndexError:
            raise LookupError(f"the run has {len(stored)} results of {name!r}, none at {nth}") from None
        return cast("T", self.decode(text, type))

    def outputs_of(self, name: str, type: type[T], /) -> list[T]:
        """Every result of this name, in journal order, as this type."""
        return [cast("T", self.decode(text, type)) for text in self.outputs.get(name, ())]
