"""Every exception of the product.

The docstring's first line is the default message; the values that explain one case (the object, what
was found, what was needed, what to do next) are keyword attributes and are appended to the message.
`code` is stable: pages, commands and the API show it, and callers may rely on it.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from datetime import datetime


WORDS = 4000
RAISED_BY_AUTHORS = (Exception, SystemExit, GeneratorExit)
"""What code of authors may raise without meaning this process: a library that calls `sys.exit` ends nothing here."""


def words_of(error: BaseException) -> str:
    """An error's words, fit to be stored: lone surrogates, a NUL and an enormous text are not."""
    try:
        text = str(error)
    except RAISED_BY_AUTHORS:  # an author's __str__ may raise anything
        text = "(its message cannot be read)"
    return fit(text)


def fit(text: str) -> str:
    """A text for people, made fit to be stored in the same way."""
    return text[:WORDS].encode("utf-8", "backslashreplace").decode()[:WORDS].replace("\x00", "\\x00")


def _code_of(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class ApprovalsError(Exception):
    """Something the product refused."""

    code: ClassVar[str] = "approvals_error"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "code" not in cls.__dict__:
            cls.code = _code_of(cls.__name__)

    def __init__(self, message: str | None = None, /, **values: Any) -> None:
        self.values = values
        for name, value in values.items():
            setattr(self, name, value)
        super().__init__(message or self._default(values))

    @classmethod
    def of(cls, message: str, /, **values: Any) -> Self:
        """With a message of its own, and the values in it too."""
        return cls(cls._told(message, values), **values)

    @classmethod
    def _default(cls, values: dict[str, Any]) -> str:
        return cls._told((inspect.cleandoc(cls.__doc__ or cls.__name__)).splitlines()[0], values)

    @staticmethod
    def _told(first: str, values: dict[str, Any]) -> str:
        told = ", ".join(f"{k.replace('_', ' ')}: {v}" for k, v in values.items())
        return f"{first.rstrip('.')} ({told})" if told else first


# --- what an effect's `perform` and `lookup` say of the peer -------------------------------------


class Unknown(ApprovalsError):
    """Raised by an effect's `lookup`: whether the peer has it cannot be told now."""


class Refused(ApprovalsError):
    """Raised by an effect's `perform`: the peer said a definite no."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or None)
        self.reason = reason


class NotSent(ApprovalsError):
    """Raised by an effect's `perform`: certainly nothing went out."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or None)
        self.reason = reason


class Failed(ApprovalsError):
    """A workflow's own verdict: the run ends as failed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or None)
        self.message = message


# --- what authors may catch in a workflow ---------------------------------------------------------


class DomainError(ApprovalsError):
    """A workflow may catch this; uncaught, it ends the run as failed."""


class NotApproved(DomainError):
    """People did not approve this action."""

    decision: object = None
    comment: str = ""


class ApprovalRejected(NotApproved):
    """A reviewer rejected this action."""


class ApprovalExpired(NotApproved):
    """Nobody decided before the deadline."""


class ChangesRequested(NotApproved):
    """A reviewer asked for changes before approving."""


class ApprovalConsumed(DomainError):
    """This approval was already used by another effect; ask for a new one."""


class ArgumentsChanged(DomainError):
    """What would be sent is not what was approved; ask for approval of the new request."""


class PolicyDenied(DomainError):
    """The policy denies this action."""


class EffectRefused(DomainError):
    """The peer refused this effect."""

    reason: str = ""


class StepFailed(DomainError):
    """A step is out of attempts."""

    type: str = ""
    message: str = ""


class StepTimeout(DomainError):
    """A step ran past its timeout."""


class ChildFailed(DomainError):
    """A child run did not complete."""


# --- mistakes in workflow code --------------------------------------------------------------------


class AuthoringError(ApprovalsError):
    """Workflow code did what a workflow may not do."""


class StepWrites(AuthoringError):
    """A step wrote to the database; use ctx.transaction, which commits the rows with its entry."""


class ContextMisuse(AuthoringError):
    """The context was used where it may not be."""


class NotSerializable(AuthoringError):
    """A value does not survive being stored and read back."""


class PayloadTooLarge(AuthoringError):
    """A value is larger than the limit; keep it in a StoredFile."""


class LimitExceeded(AuthoringError):
    """A limit of this deployment was reached."""


class SuspendInsideTransaction(AuthoringError):
    """A workflow may not wait or perform inside an open database transaction."""


class ContentChanged(ApprovalsError):
    """A stored file no longer holds the bytes that were recorded."""


class UnknownPolicy(AuthoringError):
    """No policy of this name is loaded; load it with `manage.py policies load FILE`."""


class InvalidWorkflow(AuthoringError):
    """A workflow or effect cannot be registered."""


class NotAvailable(AuthoringError):
    """This part of the surface is not built yet."""


# --- what services answer -------------------------------------------------------------------------


class ServiceError(ApprovalsError):
    """A request to a service was refused; nothing changed."""


class NotFound(ServiceError):
    """There is no such object, or it is not yours to see."""


class PermissionRefused(ServiceError):
    """This person may not do this."""


class InvalidInput(ServiceError):
    """The value does not fit its schema."""

    located: tuple[tuple[tuple[str | int, ...], str], ...] = ()
    """What is wrong where, if it is known: keys and numbers that lead there, and what is needed."""


class UnknownWorkflow(ServiceError):
    """No workflow of this name is registered here."""


class UnknownVersion(ServiceError):
    """No registered version of the workflow can continue this run."""


class RunConflict(ServiceError):
    """A run with this key was started with another input."""


class InvalidPolicy(ServiceError):
    """A policy cannot be loaded."""

    problems: tuple[str, ...] = ()


class DecisionRefused(ServiceError):
    """This person may not take this decision."""


class CommentRequired(DecisionRefused):
    """The policy wants a comment with this decision; say why in a few words."""


class StaleDigest(ServiceError):
    """The action changed since it was shown; read it again and decide on what it is now."""


class WaitClosed(ServiceError):
    """It is no longer open; nothing was changed."""

    outcome: str = ""


class AlreadyDecided(WaitClosed):
    """It was already decided; nothing was changed."""

    by: str = ""
    at: datetime | None = None


class IllegalTransition(ServiceError):
    """This cannot happen in the present state."""


# --- the engine's own -----------------------------------------------------------------------------


class ReplayDiverged(ApprovalsError):
    """The code does not do what the journal recorded."""

    position: int = 0


class FaultsNotAllowed(ApprovalsError):
    """APPROVALS_FAULT needs APPROVALS_ALLOW_FAULTS=1; never set either in production."""


class Leave(BaseException):
    """Leaves a workflow function: a BaseException, so that `except Exception` does not hold it."""


class Suspended(Leave):
    """The run waits; nothing is held for it."""


class Yielded(Leave):
    """The turn ends at a boundary; any worker may go on."""


class LeaseLost(Leave):
    """Another worker holds this run now; this turn writes nothing more."""


class Stopped(Leave):
    """The run stopped for an operator."""


class Crashed(BaseException):
    """A fault point ended this worker, as SIGKILL would (tests only)."""
