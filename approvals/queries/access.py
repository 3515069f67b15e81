"""Who sees what. Everything that a page or the API shows of a run or an approval is selected here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.lookups import IsNull

from approvals import facts, policy
from approvals.models import Approval, Audience, Decision, Run, Wait
from approvals.states import WaitKind, WaitStatus
from approvals.workflows import registry


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who is signed in, as they were when their request came."""

    account: Any
    person: policy.Person
    is_operator: bool
    """Sees everything."""

    @property
    def name(self) -> str:
        """What others call them."""
        return self.person.username

    def sees_in_admin(self, model: str) -> bool:
        """Whether the admin shows them the pages of this model (by its lower-case name)."""
        may_view = self.account.is_superuser or f"approvals.view_{model}" in self.person.permissions
        return bool(self.account.is_staff and may_view)


def viewer(account: Any) -> Viewer:
    """The person behind a request, from the account row that was read for it. Two queries."""
    person = facts.present(account)
    return Viewer(account, person, facts.is_operator(account, person))


def workflows(viewer: Viewer) -> list[registry.Workflow[Any, Any]]:
    """The workflows they see, by name, at the version that new runs start at. No query."""
    return [w for w in registry.all_current() if _sees(viewer, w)]


def _sees(viewer: Viewer, workflow: registry.Workflow[Any, Any]) -> bool:
    return viewer.is_operator or workflow.is_visible_to(viewer.person.groups)


def may_start(viewer: Viewer, workflow: registry.Workflow[Any, Any]) -> bool:
    """Whether the service would let them start it; it asks again."""
    may = facts.may_start(viewer.account, viewer.person, workflow.startable_by)
    return may and _sees(viewer, workflow)


def runs(viewer: Viewer) -> QuerySet[Run]:
    """The runs they see: of workflows visible to them, their own, and those that ask them for a decision.

    A run whose workflow is registered here no more is seen by whoever has a reason of their own.
    """
    if viewer.is_operator:
        return Run.objects.all()
    shown, mine, asked = _reasons(viewer)
    return Run.objects.filter(shown | mine | _is_any(asked))


def runs_by_reason(viewer: Viewer) -> list[QuerySet[Run]]:
    """The same as `runs`, by why they see them. A run may be among several."""
    if viewer.is_operator:
        return [Run.objects.all()]
    shown, mine, asked = _reasons(viewer)
    return [Run.objects.filter(reason) for reason in (shown, mine, Exists(asked))]


def _reasons(viewer: Viewer) -> tuple[Q, Q, QuerySet[Audience]]:
    """Why they see a run; the last is a reason where it has a row."""
    asked = _asked(viewer).filter(approval__wait__run=OuterRef("pk"))
    return Q(workflow__in=[w.name for w in workflows(viewer)]), Q(requester=viewer.account), asked


def approvals(viewer: Viewer) -> QuerySet[Approval]:
    """The approvals they see: of runs that they see, and those that ask them."""
    if viewer.is_operator:
        return Approval.objects.all()
    return Approval.objects.filter(
        Q(wait__run__workflow__in=[w.name for w in workflows(viewer)])
        | Q(wait__run__requester=viewer.account)
        | _is_any(_asked(viewer).filter(approval=OuterRef("pk")))
    )


def waiting(viewer: Viewer) -> QuerySet[Approval]:
    """The open approvals that wait for a decision of theirs, as far as tables can tell; the service asks again."""
    said = Decision.objects.filter(
        approval=OuterRef("pk"),
        reviewer=viewer.account,
        counted=True,
        withdrawn_at=None,
        revision=OuterRef("revision"),
    )
    return (
        Approval.objects.filter(wait__kind=WaitKind.APPROVAL, wait__status=WaitStatus.OPEN)
        .filter(Exists(_asked(viewer).filter(approval=OuterRef("pk"))))
        .exclude(excludes_requester=True, wait__run__requester=viewer.account)
        .exclude(Exists(said))
    )


def _asked(viewer: Viewer) -> QuerySet[Audience]:
    return Audience.objects.filter(source__in=facts.sources(viewer.person))


def _is_any(rows: QuerySet[Any]) -> IsNull:
    """EXISTS, looked up row by row: within an OR, PostgreSQL would first gather all that ever asked this person."""
    return IsNull(Subquery(rows.values("source")[:1]), False)


def cases(viewer: Viewer) -> QuerySet[Wait]:
    """The open reconciliations, for operators."""
    if not viewer.is_operator:
        return Wait.objects.none()
    return Wait.objects.filter(kind=WaitKind.RECONCILIATION, status=WaitStatus.OPEN)


MOST_COUNTED = 99


def count(rows: QuerySet[Any]) -> int:
    """How many there are, `MOST_COUNTED` + 1 for any number beyond: no page takes longer the more wait."""
    return rows[: MOST_COUNTED + 1].count()


@dataclass(frozen=True, slots=True)
class Counts:
    """What the navigation shows beside its words, as `count` tells it."""

    waiting: int
    cases: int | None
    """None: not for this person."""


def counts(viewer: Viewer, *, mine: int | None = None) -> Counts:
    """Two queries at most; `mine` is what waits for them, where it was counted already."""
    waits = count(waiting(viewer)) if mine is None else mine
    return Counts(waits, count(cases(viewer)) if viewer.is_operator else None)
