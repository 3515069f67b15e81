"""The inbox: which approvals wait for somebody, which wait at all, which were decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast
from uuid import UUID

from django.db.models import F, Q, QuerySet

from approvals import clock, facts
from approvals.errors import NotFound
from approvals.models import Approval
from approvals.queries import access
from approvals.states import WaitKind, WaitStatus

type Which = Literal["mine", "all", "decided"]
WHICH: Final[tuple[Which, ...]] = ("mine", "all", "decided")
PAGE = 50


@dataclass(frozen=True, slots=True)
class Row:
    """An approval in one line."""

    id: UUID
    title: str
    sentence: str
    workflow: str
    version: int
    run_id: UUID
    requester: str
    opened_at: datetime
    due_at: datetime | None
    risk: str
    reversible: bool
    needed: int
    got: int
    outcome: str
    """Empty while it is open."""
    closed_at: datetime | None
    deciders: tuple[str, ...]
    invalidated: bool


@dataclass(frozen=True, slots=True)
class Inbox:
    """One page of rows. `after` is the cursor of the next one, empty on the last."""

    now: datetime
    rows: tuple[Row, ...]
    after: str
    mine: int
    """This and the next as `access.count` tells it."""
    all: int


def inbox(viewer: access.Viewer, which: Which, after: str = "") -> Inbox:
    """The due ones first, then the oldest; the decided ones newest first. Five queries.

    Raises NotFound for a cursor that is none.
    """
    now = clock.now()
    mine = access.waiting(viewer)
    waiting = access.approvals(viewer).filter(wait__kind=WaitKind.APPROVAL, wait__status=WaitStatus.OPEN)
    rows = {"mine": mine, "all": waiting, "decided": _closed(viewer)}[which]
    rows = _past_deciding(rows, after) if which == "decided" else _past_due(rows, after)
    found = list(rows.select_related("wait__run", "policy").prefetch_related("decisions")[: PAGE + 1])
    more = len(found) > PAGE
    found = found[:PAGE]
    return Inbox(
        now=now,
        rows=tuple(_row(row, now) for row in found),
        after=_cursor(found[-1], which) if more else "",
        mine=access.count(mine),
        all=access.count(waiting),
    )


def _closed(viewer: access.Viewer) -> QuerySet[Approval]:
    return access.approvals(viewer).filter(wait__kind=WaitKind.APPROVAL, wait__closed_at__isnull=False)


def _past_due(rows: QuerySet[Approval], after: str) -> QuerySet[Approval]:
    ordered = rows.order_by(F("wait__due_at").asc(nulls_last=True), "wait_id")
    if not after:
        return ordered
    at, last = _read(after)
    if at is None:
        return ordered.filter(wait__due_at=None, wait_id__gt=last)
    later = Q(wait__due_at__gt=at) | Q(wait__due_at=None) | Q(wait__due_at=at, wait_id__gt=last)
    return ordered.filter(later)


def _past_deciding(rows: QuerySet[Approval], after: str) -> QuerySet[Approval]:
    ordered = rows.order_by("-wait__closed_at", "-wait_id")
    if not after:
        return ordered
    at, last = _read(after)
    if at is None:
        raise NotFound("There is no such page", found=after[:80])
    return ordered.filter(Q(wait__closed_at__lt=at) | Q(wait__closed_at=at, wait_id__lt=last))


def _cursor(row: Approval, which: Which) -> str:
    """The place after this row: its instant in microseconds, or none, and its id."""
    at = row.wait.closed_at if which == "decided" else row.wait.due_at
    return f"{_micros(at) if at else ''}.{row.pk.hex}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _micros(at: datetime) -> int:
    span = at - _EPOCH
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds


def _read(after: str) -> tuple[datetime | None, UUID]:
    text, _, last = after.partition(".")
    try:
        at = datetime.fromtimestamp(int(text) // 1_000_000, UTC) if text else None
        at = at.replace(microsecond=int(text) % 1_000_000) if at else None
        return at, UUID(last)
    except (ValueError, OverflowError, OSError):
        raise NotFound("There is no such page", found=after[:80]) from None


def _row(row: Approval, now: datetime) -> Row:
    wait, said = row.wait, cast("Iterable[Any]", row.decisions.all())
    tally = facts.quorum(row)
    is_over = wait.status == WaitStatus.OPEN and wait.due_at is not None and wait.due_at <= now
    closed = wait.outcome or wait.status
    return Row(
        id=wait.pk,
        title=row.title,
        sentence=row.sentence if row.sentence != row.title else "",
        workflow=wait.run.workflow,
        version=row.workflow_version,
        run_id=wait.run.pk,
        requester=wait.run.requester_name,
        opened_at=wait.opened_at,
        due_at=wait.due_at,
        risk=row.risk,
        reversible=row.reversible,
        needed=tally.needed,
        got=tally.got,
        outcome=closed if wait.status != WaitStatus.OPEN else "expired" * is_over,
        closed_at=wait.closed_at,
        deciders=tuple(d.reviewer_name for d in said if facts.counts(d, row)),
        invalidated=bool(row.invalidated),
    )
