"""What a policy is, what it is asked about, and what it answers: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

type OnExpiry = Literal["reject", "cancel", "escalate"]
type Outcome = Literal["approved", "rejected", "changes_requested"]
type Enforcement = Literal["hard", "soft", "advisory"]

EXCLUDABLE: Final = ("requester", "starter", "editor")
ROOTS: Final = ("action", "effect", "run", "requester")
RISKS: Final = ("low", "medium", "high")
OUTCOMES: Final[tuple[Outcome, ...]] = ("approved", "rejected", "changes_requested")
ENFORCEMENTS: Final[tuple[Enforcement, ...]] = ("hard", "soft", "advisory")


@dataclass(frozen=True, slots=True)
class Need:
    """So many approvals, each of a different person, from these people."""

    needed: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """All of these needs together; a person serves one of them."""

    name: str
    needs: tuple[Need, ...]

    @property
    def needed(self) -> int:
        """How many approvals it takes."""
        return sum(need.needed for need in self.needs)

    @property
    def sources(self) -> tuple[str, ...]:
        """Everybody whom it asks."""
        return tuple(dict.fromkeys(source for need in self.needs for source in need.sources))


@dataclass(frozen=True, slots=True)
class Match:
    """Which effects are meant; what is empty restricts nothing.

    A question to people has no kind and no target, and its risk is low.
    """

    kinds: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    """Patterns, in which * stands for any characters."""
    risks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """Where `match` and `when` hold (None: always): automatic, denied, or these stages in order."""

    when: str | None
    automatic: bool
    stages: tuple[Stage, ...]
    match: Match = Match()
    deny: bool = False
    comment_required: frozenset[str] = frozenset()
    """Outcomes that nobody may decide for without a comment."""
    reject_after: int = 1
    """So many people must reject before the approval is rejected."""
    separate_stages: bool = True
    """Whether each stage needs people who serve no other."""


@dataclass(frozen=True, slots=True)
class Rung:
    """Whom to ask besides, so long after the approval was opened."""

    after: timedelta
    sources: tuple[str, ...]


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
    match: Match = Match()
    """A condition on every rule."""
    enforcement: Enforcement = "hard"
    edit: tuple[str, ...] = ()
    """JSON pointers to what a reviewer may edit."""
    remind: tuple[timedelta, ...] = ()
    """After the approval was opened."""
    escalate: tuple[Rung, ...] = ()
    fresh_sign_in: tuple[tuple[str, timedelta], ...] = ()
    """How old a reviewer's sign-in may be, by risk."""


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
class Parties:
    """Whom a policy may exclude, by id; None: nobody."""

    requester: str | None = None
    starter: str | None = None
    editors: frozenset[str] = frozenset()


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
    counted: bool = True
    commented: bool = True
    username: str = ""
    """For words."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How far the decisions have come; `outcome` None and `stage`: the one still open."""

    needed: int
    got: int
    outcome: Outcome | None
    stage: int | None
    progress: tuple[tuple[int, ...], ...] = ()
    """How many count, by stage and need."""


@dataclass(frozen=True, slots=True)
class Revalidation:
    """Whether an approval still holds at dispatch, with a reason to read."""

    ok: bool
    reason: str
    denied: bool
