"""What a policy is, what it is asked about, and what it answers: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

type OnExpiry = Literal["reject", "cancel"]
type Outcome = Literal["approved", "rejected", "changes_requested"]

EXCLUDABLE: Final = ("requester", "starter", "editor")
ROOTS: Final = ("action", "effect", "run", "requester")


@dataclass(frozen=True, slots=True)
class Stage:
    """So many approvals from these people."""

    name: str
    needed: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """Where `when` holds (None: always): automatic, or these stages in order."""

    when: str | None
    automatic: bool
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """One immutable version of a policy."""

    slug: str
    effects: tuple[str, ...]
    rules: tuple[Rule, ...]
    exclude: frozenset[str]
    respond_within: timedelta | None
    on_expiry: OnExpiry
    valid_for: timedelta | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a condition may look at, as plain JSON values. `effect` None: a question to people."""

    action: Any
    effect: Mapping[str, Any] | None
    run: Mapping[str, Any]
    requester: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of these facts; `rule` is the index of the rule that said it."""

    kind: Literal["automatic", "ask", "denied"]
    rule: int | None
    stages: tuple[Stage, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Person:
    """Someone as they are now; permissions are those granted, never a superuser's implied ones."""

    id: str
    """Who it is for good; a name may be changed, and given to another."""
    username: str
    is_active: bool
    groups: frozenset[str]
    permissions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Whether a person may decide, in which stage; the reason reads after the person's name."""

    ok: bool
    stage: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Vote:
    """One decision as recorded; not `counted` once withdrawn or void."""

    reviewer: str
    """The person's id; one that nobody has any more, once the account is removed."""
    outcome: Outcome
    stage: int = 0
    counted: bool = True
    username: str = ""
    """For words."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How far the decisions have come; `outcome` None and `stage`: the one still open."""

    needed: int
    got: int
    outcome: Outcome | None
    stage: int | None


@dataclass(frozen=True, slots=True)
class Revalidation:
    """Whether an approval still holds at dispatch, with a reason to read."""

    ok: bool
    reason: str
    denied: bool
