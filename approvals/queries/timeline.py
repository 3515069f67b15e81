"""A run's journal as a timeline: bounded, in four queries, however long the journal is.

Shown are the first positions and the latest ones, or those before a given one. What was read back is counted by
the database: a receipt that was verified a thousand times is one row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, F, Max, Min, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Length

from approvals.models import Effect, Entry, Run, Wait
from approvals.queries import access, trees
from approvals.queries.access import Viewer
from approvals.queries.documents import about, sentence, with_about
from approvals.queries.effect_lines import SHOWN_CHARS, EffectSeen, effect_line
from approvals.queries.event_lines import EVENTS, case_line, event_line, loss_line
from approvals.queries.lines import (
    CASE,
    Line,
    Note,
    Seen,
    WaitSeen,
    call_of,
    clip,
    identity,
    other_line,
    quoted,
    step_line,
    wait_line,
    waits_in,
)
from approvals.queries.quorums import quorum
from approvals.states import STEP_RESULTS, SYNC_STEP, WaitKind, WaitStatus

WINDOW, FIRST = 200, 20
"""Positions: the latest (or those before a given one), and the first."""
ENTRIES_MAX, WAITS_MAX = 2_500, 100
TOLD_CHARS, RESULT_CHARS = 16_000, 2_000
"""Of what one entry tells; of what one step gave."""
_AT_ONCE = timedelta(milliseconds=2)
"""Entries of one commit carry one time, to what SQLite's clock can tell."""
_ENDS_A_COMMIT = (SYNC_STEP, "transaction.")


@dataclass(frozen=True, slots=True)
class Next:
    """One thing that an open run waits for."""

    words: str
    due: datetime | None = None
    to: str = ""
    id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lines, and how to see the others."""

    lines: Sequence[Line]
    next: Sequence[Next]
    more_waits: int
    worker: str
    """Who holds it now, or held it last."""
    since: datetime | None
    """Of the last entry."""
    earlier: int | None
    """Positions before this one are on an earlier page."""
    is_latest: bool
    is_cut: bool
    """So much happened at these positions that the oldest of it is left out."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Which positions: above `low` and, of an earlier page, below `before`; and the first ones of the latest page."""

    low: int
    before: int | None

    @property
    def first(self) -> int:
        """Up to here the first positions are shown too."""
        return 0 if self.before is not None else min(FIRST, self.low)

    def filter(self, run: Run) -> Q:
        """The entries that it needs, as a condition."""
        rows = Entry.objects.filter(run=run)
        inside, between = self.positions(), Q(position=None)
        if self.low > 0:
            between &= Q(seq__gte=_first_seq(rows, self.low + 1))
        if self.before is not None:
            between &= Q(seq__lt=_first_seq(rows, self.before))
        if not self.first:
            return inside | between
        return inside | between | Q(position=None, seq__lt=_first_seq(rows, self.first + 1))

    def positions(self) -> Q:
        """The same, for effects. Compensations stand below all others and belong to the latest page."""
        if self.before is None:
            return Q(position__gt=self.low) | Q(position__lte=self.first)
        # A run that stopped before its first call has its case at position 0.
        return Q(position__gt=self.low if self.low > 0 else -1, position__lt=self.before)


def _first_seq(rows: QuerySet[Entry], position: int) -> Any:
    """The number of the entry at which a run first came so far."""
    found = rows.filter(position__gte=position).order_by().values("run")
    return found.annotate(first=Min("seq")).values("first")


def open_waits(run: Run) -> list[Any]:
    """What a run waits for, and the cases that operators were asked; two queries, one without approvals."""
    rows = with_about(Wait.objects.filter(Q(status=WaitStatus.OPEN) | Q(kind=CASE), run=run))
    rows = rows.select_related("approval__policy").prefetch_related("approval__decisions")
    return list(rows.order_by(F("closed_at").asc(nulls_first=True), "position", "ordinal")[: WAITS_MAX + 1])


def read(viewer: Viewer, run: Run, waits: Sequence[Any], *, before: int | None = None) -> Timeline:
    """The timeline of a run that this person sees; `waits` are its `open_waits`. Two queries.

    `before`: the positions before this one, instead of the latest. A person who sees a run only because they are
    asked sees those approvals alone, which takes one query more.
    """
    top = run.position if before is None else max(before - 1, 0)
    low = top - WINDOW if top > WINDOW + (FIRST if before is None else 0) else 0
    window = _Window(low, before)
    entries, is_cut = _entries(run, window)
    effects = _effects(run, window)
    page = _Page(viewer, run, entries, effects, {w.pk: w for w in waits})
    lines = page.lines()
    if window.first:
        lines = _with_gap(lines, window)
    claim = next((e for e in reversed(entries) if e.kind == "run.claim"), None)
    still = [w for w in waits if w.status == WaitStatus.OPEN]
    return Timeline(
        lines=lines,
        next=[page.next(w) for w in still[:WAITS_MAX]],
        more_waits=max(len(still) - WAITS_MAX, 0),
        worker=clip(claim.get("worker")) if claim else "",
        since=entries[-1].at if entries else None,
        earlier=low + 1 if low > window.first else None,
        is_latest=before is None,
        is_cut=is_cut,
    )


def _with_gap(lines: list[Line], window: _Window) -> list[Line]:
    """What lies between the first positions and the latest is named."""
    at = next((n for n, line in enumerate(lines) if (line.position or 0) > window.low), len(lines))
    gap = Line(0, "gap", "gap", look="gap", skipped=(window.first + 1, window.low))
    return [*lines[:at], gap, *lines[at:]]


# --- reading ---------------------------------------------------------------------------------------


def _entries(run: Run, window: _Window) -> tuple[list[Seen], bool]:
    """In the order of the journal, the read-backs of each position counted in one; whether some are left out."""
    size = Length("data")
    short = When(
        Q(size__lte=RESULT_CHARS) | (Q(size__lte=TOLD_CHARS) & ~Q(kind__in=STEP_RESULTS)), then=F("data")
    )
    told = Case(short, default=Value(""), output_field=TextField())
    columns = ("seq", "position", "kind", "name", "at", "told", "size")
    wanted = Q(position__isnull=False) | Q(kind__in=EVENTS)
    base = Entry.objects.filter(run=run).order_by()
    plain = base.filter(wanted, window.filter(run)).exclude(kind="effect.verify")
    plain_rows = plain.annotate(size=size).annotate(told=told).values_list(*columns)
    verified = base.filter(window.positions(), kind="effect.verify").values("position")
    nothing = Value("", output_field=TextField())
    counted = verified.annotate(
        last=Max("seq"),
        what=Value("effect.verify", output_field=TextField()),
        word=nothing,
        read_at=Max("at"),
        said=nothing,
        times=Count("seq"),
    ).values_list("last", "position", "what", "word", "read_at", "said", "times")
    rows = list(plain_rows.union(counted, all=True).order_by("-seq")[: ENTRIES_MAX + 1])
    is_cut = len(rows) > ENTRIES_MAX
    return [_seen(*row) for row in reversed(rows[:ENTRIES_MAX])], is_cut


def _seen(seq: int, position: int | None, kind: str, name: str, at: datetime, told: str, size: int) -> Seen:
    value = (trees.read(told) if kind in STEP_RESULTS else json.loads(told)) if told else {}
    return Seen(seq, position, kind, name, at, value, size)


def _effects(run: Run, window: _Window) -> dict[int, EffectSeen]:
    rows: Any = Effect.objects.filter(window.positions(), run=run).defer("request", "evidence")
    for name in ("request", "evidence"):
        rows = rows.annotate(**{f"{name}_chars": Length(name)})
        whole = When(**{f"{name}_chars__lte": SHOWN_CHARS}, then=F(name))
        shown = Case(whole, default=Value(""), output_field=TextField())
        rows = rows.annotate(**{f"{name}_shown": shown})
    return {row.position: _effect(row) for row in rows}


def _effect(row: Any) -> EffectSeen:
    return EffectSeen(
        status=row.status,
        kind=row.kind,
        key=row.key,
        target=row.target,
        digest=row.digest,
        risk=row.risk,
        reversible=row.reversible,
        undoing=row.compensates_id is not None,
        calls=row.calls,
        external_id=row.external_id,
        checksum=row.checksum,
        verified_at=row.verified_at,
        superseded=row.superseded,
        reason=row.reason,
        policies=tuple(p["slug"] for p in json.loads(row.policies)),
        request=row.request_shown,
        evidence=row.evidence_shown,
    )


# --- composing -------------------------------------------------------------------------------------


class _Page:
    """The lines of what was read."""

    def __init__(
        self,
        viewer: Viewer,
        run: Run,
        entries: Sequence[Seen],
        effects: Mapping[int, EffectSeen],
        waits: Mapping[UUID, Any],
    ) -> None:
        self._viewer, self._run, self._entries = viewer, run, entries
        self._effects, self._waits = effects, waits
        self._by_seq = {entry.seq: n for n, entry in enumerate(entries)}
        self._opened = {w.id: w.opened for w in waits_in(entries)}
        self._visible = self._visible_approvals()
        self._children = self._visible_children()

    def _visible_approvals(self) -> Collection[UUID] | None:
        """None: all of this run's."""
        run, viewer = self._run, self._viewer
        mine = run.requester_id is not None and run.requester_id == viewer.account.pk
        seen = {w.name for w in access.workflows(viewer)}
        if viewer.is_operator or mine or run.workflow in seen:
            return None
        return frozenset(access.approvals(viewer).filter(wait__run=run).values_list("pk", flat=True))

    def _visible_children(self) -> Collection[UUID]:
        """Of another workflow, which may be another's to see. One query, where there are any."""
        ids = [identity(opened.get("child")) for opened in self._opened.values()]
        if not any(ids):
            return ()
        seen = access.runs(self._viewer).filter(pk__in=[i for i in ids if i is not None])
        return frozenset(seen.values_list("pk", flat=True))

    def lines(self) -> list[Line]:
        """In the order of the journal."""
        positions: dict[int, list[Seen]] = {}
        cases: list[Seen] = []
        case_ids = {e.get("id") for e in self._entries if e.kind == "wait.open" and e.get("wait") == CASE}
        found: list[Line] = []
        for n, entry in enumerate(self._entries):
            if entry.kind.startswith("wait.") and entry.get("id") in case_ids:
                cases.append(entry)
            elif entry.position is not None:
                positions.setdefault(entry.position, []).append(entry)
            elif entry.kind == "run.lose_lease":
                found.append(loss_line(entry, self._entries[max(n - 50, 0) : n], self._entries[n:]))
            elif (line := event_line(entry)) is not None:
                found.append(line)
        found += [case_line(wait, self._sentence(wait)) for wait in waits_in(cases)]
        for entries in positions.values():
            found += self._position(entries)
        return sorted(found, key=lambda line: line.seq)

    def _sentence(self, wait: WaitSeen) -> str:
        row = self._waits.get(wait.id)
        return _case_sentence(row) if row is not None else wait.opened.name

    def _position(self, entries: list[Seen]) -> list[Line]:
        call = call_of(entries[0])
        if call in ("step", "transaction"):
            end = entries[-1]
            took, together = self._took(end)
            result = end.told if end.kind in STEP_RESULTS and end.size <= RESULT_CHARS else None
            return [step_line(entries, took, together, result)]
        if call == "effect":
            line = effect_line(entries, self._effects.get(entries[0].position or 0))
            asked = [w for w in waits_in(entries) if w.kind == WaitKind.APPROVAL]
            before = [replace(self._wait(w, "approval"), seq=line.seq) for w in asked]
            return [*before, line]
        if entries[0].kind == "wait.open":
            return [self._wait(wait, call) for wait in waits_in(entries)]
        names = {wait_id: entry.name for wait_id, entry in self._opened.items()}
        return [other_line(entries, names)]

    def _wait(self, wait: WaitSeen, call: str) -> Line:
        row = self._waits.get(wait.id)
        more = []
        if row is not None and hasattr(row, "approval") and wait.closed is None:
            tally = quorum(row.approval)
            more.append(Note(f"{tally.got} of {tally.needed}"))
        return wait_line(wait, call, more=more, may_open=self._may_open(wait.id))

    def _may_open(self, wait: UUID) -> bool:
        opened = self._opened.get(wait)
        if opened is not None and (child := identity(opened.get("child"))) is not None:
            return child in self._children
        return self._visible is None or wait in self._visible

    def _took(self, end: Seen) -> tuple[tuple[timedelta | None, str], str]:
        """How long since the entry before, and with what it was committed.

        Steps that were committed together share one time: how long they took is known of all of them together.
        """
        n = self._by_seq[end.seq]
        first = n
        while first > 0 and self._is_with(first - 1, first):
            first -= 1
        last = n
        while last + 1 < len(self._entries) and self._is_with(last, last + 1):
            last += 1
        with_ = self._entries[last]
        other = with_.position is not None and with_.position != end.position
        together = f"committed with {quoted(with_.name)}" if other and with_.name else "committed by itself"
        if last != n and not other:
            together = "committed with the end of the turn"
        if first == 0 or self._entries[first - 1].seq != self._entries[first].seq - 1:
            return (None, ""), together
        steps = sum(
            e.kind in STEP_RESULTS or e.kind.endswith(".fail") for e in self._entries[first : last + 1]
        )
        if first != n:
            return (None, "with the above"), together
        return (end.at - self._entries[first - 1].at, f"{steps} steps in" if steps > 1 else ""), together

    def _is_with(self, one: int, other: int) -> bool:
        a, b = self._entries[one], self._entries[other]
        if a.kind == "run.claim" or a.kind.startswith(_ENDS_A_COMMIT):
            return False
        return b.seq == a.seq + 1 and abs(b.at - a.at) <= _AT_ONCE

    def next(self, wait: Any) -> Next:
        """What has to happen for this wait to close."""
        name = quoted(wait.name)
        match wait.kind:
            case WaitKind.APPROVAL:
                tally = quorum(wait.approval)
                words = f"People decide on {name}: {tally.got} of {tally.needed} so far."
                shown = self._may_open(wait.pk)
                return Next(words, wait.due_at, "approval" if shown else "", wait.pk if shown else None)
            case WaitKind.RECONCILIATION:
                return Next(f"An operator settles a case. {_case_sentence(wait)}", None, "case", wait.pk)
            case WaitKind.TIMER:
                return Next(self._timer(wait), wait.due_at)
            case WaitKind.CHILD:
                return Next(f"The child run {name} ends.", wait.due_at)
            case _:
                return Next(f"A message {name} comes.", wait.due_at)

    def _timer(self, wait: Any) -> str:
        """A timer of the workflow's own, or one that the engine has set for a next attempt."""
        name, opened = quoted(wait.name), self._opened.get(wait.pk)
        call = opened.get("call") if opened is not None else ""
        if call in ("step", "transaction"):
            return f"{name} is tried again."
        if call == "effect":
            return f"A worker comes back to it: {name}."
        if call == "wait":
            return f"The wait for {name} ends at the latest."
        return f"The timer {name} fires."


def _case_sentence(row: Any) -> str:
    return sentence(row.name, json.loads(row.data) if row.data else {}, about(row))
