"""What the list of runs and the head of a run's page show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import (
    Case,
    Exists,
    F,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Length

from approvals import clock
from approvals.errors import NotFound
from approvals.models import Effect, Run, Wait
from approvals.queries import access, starting
from approvals.queries.access import Viewer
from approvals.states import EFFECT_DONE, RUN_FINAL, EffectStatus, RunStatus, WaitKind, WaitStatus
from approvals.workflows import effects, registry

PAGE_ROWS = 50
SEARCHED = 20_000
"""So many of the newest runs are searched for a part of a word: no index finds one, and nobody waits for all."""
_DONE = (*EFFECT_DONE, EffectStatus.CONTRADICTED)
WHOLE_CHARS = 20_000
"""Of one value; what is longer stays in the database."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a run is, in words; `until` is an instant that the words lead to ("waiting until …")."""

    words: str
    tone: str = ""
    until: datetime | None = None
    asked: str = ""
    """What somebody asked for that is honoured at the next boundary: to be cancelled, to be paused."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run says that it is."""

    done: float
    total: float
    text: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list."""

    id: UUID
    workflow: str
    version: int
    key: str
    requester: str
    state: State
    progress: Progress | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Stored:
    """A value as it lies in the database: its JSON, or only its length where it is too long to be shown."""

    text: str
    chars: int

    @property
    def is_whole(self) -> bool:
        """Whether the text is here."""
        return bool(self.text)


@dataclass(frozen=True, slots=True)
class RunPage:
    """A run, and what this viewer may do with it."""

    row: RunRow
    status: str
    is_over: bool
    tags: tuple[str, ...]
    error: dict[str, str] | None
    input: Stored
    output: Stored | None
    parent: UUID | None
    entries: int
    turns: int
    ready_at: datetime
    may: tuple[str, ...]
    has_undone: bool
    """Something that it did is undone, by its workflow or because it ended; or was to be."""
    has_standing: bool
    """Something that it did is not."""
    may_undo: bool
    """Whether they may cancel it, and it, or a child that it waits for, has something that can be undone."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What of the list is asked for; empty: everything."""

    status: str = ""
    workflow: str = ""
    mine: bool = False
    search: str = ""

    def __bool__(self) -> bool:
        return bool(self.status or self.workflow or self.mine or self.search)


STATUSES: dict[str, str] = {
    "working": "running",
    "approval": "waiting for approval",
    "operator": "waiting for an operator",
    "waiting": "waiting for anything",
    "paused": "paused",
    "completed": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}
"""What one may filter by, and its words."""

_WAITS_FOR = {"approval": WaitKind.APPROVAL, "operator": WaitKind.RECONCILIATION}
_WORDS: tuple[tuple[WaitKind, str, str], ...] = (
    (WaitKind.RECONCILIATION, "waiting for an operator", "bad"),
    (WaitKind.APPROVAL, "waiting for approval", "warn"),
    (WaitKind.SIGNAL, "waiting for a message", "warn"),
    (WaitKind.WEBHOOK, "waiting for a message", "warn"),
    (WaitKind.CHILD, "waiting for a child run", "warn"),
)
_STATES: dict[str, State] = {
    RunStatus.PENDING: State("waiting for a worker", "busy"),
    RunStatus.RUNNING: State("running", "busy"),
    RunStatus.SUSPENDED: State("suspended", "warn"),
    RunStatus.PAUSED: State("paused", "warn"),
    RunStatus.COMPLETED: State("done", "good"),
    RunStatus.FAILED: State("failed", "bad"),
    RunStatus.CANCELLED: State("cancelled"),
}


def state_of(run: Run, open_waits: Iterable[Wait]) -> State:
    """Its status in words, from its row and its open waits."""
    plain = _STATES[run.status]
    if run.status in RUN_FINAL:
        return plain
    asked = "to be cancelled" if run.cancel_requested_at else ""
    asked = "undoing what it did" if run.unwinding else asked
    asked = asked or ("to be paused" if run.pause_requested_at else "")
    if run.status != RunStatus.SUSPENDED:
        return State(plain.words, plain.tone, asked=asked)
    waits = list(open_waits)
    waits = [w for w in waits if w.parked != Wait.NOT_PARKED] or waits
    for kind, words, tone in _WORDS:
        if any(w.kind == kind for w in waits):
            return State(words, tone, asked=asked)
    due = min((w.due_at for w in waits if w.due_at), default=None)
    return State("waiting until", "warn", due, asked) if due else State(plain.words, plain.tone, asked=asked)


def _progress(text: str) -> Progress | None:
    if not text:
        return None
    told = json.loads(text)
    return Progress(told["done"], told["total"], str(told["text"] or ""))


def _row(run: Run, open_waits: Iterable[Wait]) -> RunRow:
    return RunRow(
        id=run.pk,
        workflow=run.workflow,
        version=run.version,
        key=starting.own_key(run.key),
        requester=run.requester_name,
        state=state_of(run, open_waits),
        progress=_progress(run.progress),
        created_at=run.created_at,
        finished_at=run.finished_at,
    )


# --- the list --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunList:
    """A page of the list."""

    rows: Sequence[RunRow]
    next: UUID | None
    now: datetime
    """Database time, read before the rows."""


_OPEN = Wait.objects.filter(status=WaitStatus.OPEN)


def listed(viewer: Viewer, asked: Filters, *, cursor: UUID | None = None) -> RunList:
    """The newest first, from `cursor` on; three queries."""
    now = clock.now()
    rows = _newest(viewer, asked, cursor)
    waits = Prefetch("waits", _OPEN.only("run_id", "kind", "due_at", "parked"), to_attr="open_waits")
    plain = rows.defer("input", "output", "error", "tags").order_by("-id").prefetch_related(waits)
    found: list[Any] = list(plain[: PAGE_ROWS + 1])
    more = len(found) > PAGE_ROWS
    found = found[:PAGE_ROWS]
    return RunList([_row(r, r.open_waits) for r in found], found[-1].pk if more else None, now)


def _newest(viewer: Viewer, asked: Filters, cursor: UUID | None) -> QuerySet[Run]:
    """The runs of a page, and few others: the newest by each reason to see one, each looked up in its own way.

    A person who sees next to nothing would otherwise have every run looked at, for each reason.
    """
    before = Q(id__lt=cursor) if cursor is not None else Q()
    every = [
        part.filter(before)
        for reason in access.runs_by_reason(viewer)
        for part in _searched(_filtered(viewer, reason, asked), asked.search)
    ]
    if len(every) == 1:
        return every[0]
    found = [rows.order_by("-id").values("pk")[: PAGE_ROWS + 1] for rows in every]
    first, *others = (Run.objects.order_by().filter(pk__in=rows).values("pk") for rows in found)
    return Run.objects.filter(pk__in=first.union(*others))


def _filtered(viewer: Viewer, rows: QuerySet[Run], asked: Filters) -> QuerySet[Run]:
    if asked.workflow:
        rows = rows.filter(workflow=asked.workflow)
    if asked.mine:
        rows = rows.filter(requester=viewer.account)
    if kind := _WAITS_FOR.get(asked.status):
        waits = _OPEN.filter(run=OuterRef("pk"), kind=kind)
        return rows.filter(Exists(waits), status=RunStatus.SUSPENDED)
    if asked.status == "working":
        return rows.filter(status__in=(RunStatus.PENDING, RunStatus.RUNNING))
    status = RunStatus.SUSPENDED if asked.status == "waiting" else asked.status
    return rows.filter(status=status) if status else rows


def _searched(rows: QuerySet[Run], search: str) -> list[QuerySet[Run]]:
    """A whole id or a whole key, however old; a part of what is said of a run among the newest `SEARCHED` runs."""
    if not search:
        return [rows]
    with suppress(ValueError):
        return [rows.filter(pk=UUID(search))]
    keyed = rows.filter(key=search, workflow__in=[w.name for w in registry.all_current()])
    last = Subquery(Run.objects.order_by("-id").values("pk")[SEARCHED - 1 : SEARCHED])
    return [keyed, rows.filter(_matches(search), id__gte=Coalesce(last, Value(UUID(int=0))))]


def _matches(search: str) -> Q:
    """The end of an id, or a part of the key, the requester's name or the workflow's."""
    parts = Q(key__icontains=search) | Q(requester_name__icontains=search) | Q(workflow__icontains=search)
    end = search.lstrip("…").lower()
    if 4 <= len(end) <= 12 and not end.strip("0123456789abcdef"):
        parts |= Q(id__endswith=end)
    return parts


# --- one run ---------------------------------------------------------------------------------------


def find(viewer: Viewer, run_id: UUID, *, whole: bool = False) -> Run:
    """The row of a run that this person sees, its values where they are short or `whole`. Raises NotFound."""
    parent = access.runs(viewer).filter(pk=OuterRef("parent_run"))
    did = Effect.objects.filter(run=OuterRef("pk"), compensates=None)
    stands, undone = did.filter(status__in=_DONE), did.filter(status=EffectStatus.COMPENSATED)
    done = stands.filter(kind__in=effects.undoable())
    rows = access.runs(viewer).defer("input", "output")
    rows = rows.annotate(parent_is_seen=Exists(parent), has_done=Exists(done))
    rows = rows.annotate(stands=Exists(stands), undone=Exists(undone))
    for name in ("input", "output"):
        size = f"{name}_chars"
        short = When(**{f"{size}__lte": WHOLE_CHARS}, then=F(name))
        shown = F(name) if whole else Case(short, default=Value(""), output_field=TextField())
        rows = rows.annotate(**{size: Length(name)}).annotate(**{f"{name}_shown": shown})
    row = rows.filter(pk=run_id).first()
    if row is None:
        raise NotFound(run=run_id)
    return row


def page_of(viewer: Viewer, run: Any, open_waits: Sequence[Wait]) -> RunPage:
    """What its page says beside the journal. No query; `run` is as `find` gives it."""
    over = run.status in RUN_FINAL
    may = () if over else _may(viewer, run)
    return RunPage(
        row=_row(run, open_waits),
        status=run.status,
        is_over=over,
        tags=tuple(str(t) for t in json.loads(run.tags)),
        error=json.loads(run.error) if run.error else None,
        input=Stored(run.input_shown, run.input_chars),
        output=None if run.output_chars is None else Stored(run.output_shown, run.output_chars),
        parent=run.parent_run if run.parent_is_seen else None,
        entries=run.seq,
        turns=run.fence,
        ready_at=run.ready_at,
        may=may,
        has_undone=bool(run.unwinding) or run.undone,
        has_standing=run.stands,
        may_undo="cancel" in may and (run.has_done or any(w.kind == WaitKind.CHILD for w in open_waits)),
    )


def _may(viewer: Viewer, run: Run) -> tuple[str, ...]:
    """What the services would let them do now; they ask again."""
    held = run.status == RunStatus.PAUSED or run.pause_requested_at is not None
    first = ("resume" if held else "pause",) if viewer.is_operator else ()
    mine = run.requester_id is not None and run.requester_id == viewer.account.pk
    cancel = run.cancel_requested_at is None and not run.error and (viewer.is_operator or mine)
    return (*first, "cancel") if cancel else first
