"""The only writer of a status and of an entry.

`record` appends under the fence in one statement: zero rows means that another worker holds the run.
`locked` is the transaction of everything else: lock the run, compare the fence, ask `states`, append,
update. Rows of effects and waits are written at once, the run and its entries once, at the end.
Only `approvals.transitions` may call this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection, transaction

from approvals import clock, outbox
from approvals.errors import IllegalTransition, LeaseLost, NotFound
from approvals.models import Effect, Entry, Run, Wait, Worker, statements
from approvals.states import Machine, RunStatus, next_state


@dataclass(frozen=True, slots=True)
class Held:
    """Which worker holds which run, by which fence."""

    run_id: UUID
    worker_id: UUID | None
    fence: int


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A line to be appended; its number and its time are the database's. `data` is JSON text."""

    kind: str
    position: int | None = None
    name: str = ""
    digest: str = ""
    data: str = "{}"


_HELD = " AND worker_id = %s AND fence = %s AND status = 'running'"
_UNASKED = " AND cancel_requested_at IS NULL AND pause_requested_at IS NULL"


@cache
def _update(columns: tuple[tuple[str, bool], ...], position: bool, held: bool, unasked: bool) -> str:
    """The statement that moves a run; `columns` are named with whether they become now."""
    sets = "".join(
        f", {Run._meta.get_field(name).column} = {clock.sql() if is_now else '%s'}"  # type: ignore[union-attr]
        for name, is_now in columns
    )
    if position:
        if all(name != "turns_lost" for name, _ in columns):
            sets += ", turns_lost = CASE WHEN position < %s THEN 0 ELSE turns_lost END"
        sets += ", position = CASE WHEN position < %s THEN %s ELSE position END"
    guard = (_HELD if held else "") + (_UNASKED if unasked else "")
    return f"UPDATE approvals_run SET seq = seq + %s{sets} WHERE id = %s{guard}"


def _write(
    run_id: UUID,
    entries: Sequence[NewEntry],
    changes: Mapping[str, Any],
    *,
    position: int = 0,
    held: Held | None = None,
    unasked: bool = False,
    notify: bool = False,
) -> int | None:
    """Updates the run and appends its entries; the last entry's number, or None if the guard failed."""
    columns = tuple([(name, isinstance(value, clock.Now)) for name, value in changes.items()])
    update = _update(columns, position > 0, held is not None, unasked)
    parameters = [len(entries), *[v for v in changes.values() if not isinstance(v, clock.Now)]]
    if position:
        parameters += [position] * (2 if "turns_lost" in changes else 3)
    parameters.append(run_id)
    if held:
        parameters += [held.worker_id, held.fence]
    if connection.vendor == "postgresql":
        return _write_in_one(update, parameters, entries, notify=notify)
    with transaction.atomic():
        rows = statements.run(f"{update} RETURNING seq", parameters)
        if not rows:
            return None
        last: int = rows[0][0]
        for seq, e in enumerate(entries, last - len(entries) + 1):
            line = [run_id, seq, e.position, e.kind, e.name, e.digest, e.data]
            statements.run(f"{_INSERT} VALUES (%s, %s, %s, %s, %s, %s, %s, {clock.sql()})", line)
        return last


_INSERT = "INSERT INTO approvals_entry (run_id, seq, position, kind, name, digest, data, at)"
_ENTRY_COLUMNS = ("position", "kind", "name", "digest", "data")
# A list is bound as five arrays, so that one statement serves any number; a single entry needs none.
_MANY = (
    "SELECT held.id, held.seq - %s + e.i, e.position, e.kind, e.name, e.digest, e.data, held.at FROM held, "
    "unnest(%s::int[], %s::text[], %s::text[], %s::text[], %s::text[]) "
    "WITH ORDINALITY AS e(position, kind, name, digest, data, i)"
)
_ONE = "SELECT id, seq, %s::int, %s, %s, %s, %s, at FROM held"


@cache
def _with_entries(update: str, rows: str, notify: bool) -> str:
    told = f", {outbox.NOTIFY}" if notify else ""
    return (
        f"WITH held AS ({update} RETURNING id, seq, {clock.sql()} AS at), "
        f"added AS ({_INSERT} {rows}) SELECT seq{told} FROM held"
    )


def _write_in_one(
    update: str, parameters: list[Any], entries: Sequence[NewEntry], *, notify: bool
) -> int | None:
    if len(entries) == 1:
        e, rows = entries[0], _ONE
        parameters += [e.position, e.kind, e.name, e.digest, e.data]
    else:
        rows = _MANY
        parameters += [len(entries), *([getattr(e, c) for e in entries] for c in _ENTRY_COLUMNS)]
    found = statements.run(_with_entries(update, rows, notify), parameters)
    return found[0][0] if found else None


def record(
    held: Held,
    entries: Sequence[NewEntry],
    *,
    position: int = 0,
    end: tuple[str, Mapping[str, Any]] | None = None,
) -> int:
    """Appends entries under the fence, in one statement; `position` is the highest that they complete.

    The last entry's number. With `end`, an event of the run and its columns go into the same statement, provided
    that nobody asked the run to stop; 0 if somebody did, or if the fence no longer holds (nothing is written).
    Raises LeaseLost when the fence no longer holds and there is no `end`.
    """
    changes: dict[str, Any] = {}
    rows = list(entries)
    if end:
        event, columns = end
        changes = {"status": _next("run", RunStatus.RUNNING, event), "worker": None, **columns}
        rows.append(NewEntry(f"run.{event}"))
    last = _write(held.run_id, rows, changes, position=position, held=held, unasked=end is not None)
    if last is None and end is None:
        raise LeaseLost(held)
    if last is not None:
        outbox.changed(held.run_id, lists=end is not None)
    return last or 0


def _next(machine: Machine, status: str | None, event: str) -> str:
    if (to := next_state(machine, status, event)) is None:
        raise IllegalTransition(machine=machine, status=status or "new", event=event)
    return to


@dataclass
class Transaction:
    """One run under its lock. Objects given to `move` keep their fields in step with the database."""

    run: Run
    held: Held | None = None
    entries: list[NewEntry] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    position: int = 0
    hints: bool = False
    opened: dict[UUID, Wait] = field(default_factory=dict)

    @cached_property
    def now(self) -> datetime:
        """Database time, first read after the lock was given."""
        return clock.now()

    @property
    def next_seq(self) -> int:
        """The number that the next entry of this transaction will get."""
        return self.run.seq + len(self.entries) + 1

    def append(
        self, kind: str, *, position: int | None = None, name: str = "", digest: str = "", **data: Any
    ) -> None:
        """Appends one entry."""
        self.entries.append(
            NewEntry(kind, position, name, digest, json.dumps(data, separators=(",", ":"), default=str))
        )

    def take(self, entries: Sequence[NewEntry], *, position: int) -> None:
        """Appends results that were waiting for this boundary."""
        self.entries.extend(entries)
        self.position = max(self.position, position)

    def move_run(self, event: str, changes: Mapping[str, Any] | None = None, **data: Any) -> None:
        """Moves the run and journals it."""
        columns = dict(changes or {})
        columns["status"] = _next("run", self.run.status, event)
        if columns["status"] != RunStatus.RUNNING:
            columns["worker"] = None
        self.set(**columns)
        self.append(f"run.{event}", **data)

    def set(self, **columns: Any) -> None:
        """Changes columns of the run other than its status, without an entry."""
        for name, value in columns.items():
            setattr(self.run, name, value)
        self.changes.update(columns)

    def move(
        self,
        row: Effect | Wait,
        event: str,
        changes: Mapping[str, Any] | None = None,
        *,
        digest: str = "",
        **data: Any,
    ) -> None:
        """Moves (or, if it is new, creates) an effect or a wait and journals it at its position."""
        machine: Machine = "effect" if isinstance(row, Effect) else "wait"
        new = row._state.adding
        columns = dict(changes or {})
        columns["status"] = _next(machine, None if new else row.status, event)
        if isinstance(row, Wait) and columns["status"] != "open" and row.closed_seq is None:
            columns |= {"closed_at": self.now, "closed_seq": self.next_seq, "parked": Wait.NOT_PARKED}
        before = row.status
        for name, value in columns.items():
            setattr(row, name, value)
        if new:
            row.run = self.run
            statements.insert(row)
            if isinstance(row, Wait):
                self.opened[row.pk] = row
        elif columns != {"status": before}:
            statements.update(row, columns)
        self.append(
            f"{machine}.{event}",
            position=row.position,
            name=row.name,
            digest=row.digest if isinstance(row, Effect) else digest,
            id=str(row.pk),
            **data,
        )

    def hint(self) -> None:
        """Says, after the commit, that the run became runnable."""
        self.hints = True

    def write(self) -> None:
        """Writes the run and its entries."""
        if not self.entries and not self.changes:
            return
        _write(self.run.pk, self.entries, self.changes, position=self.position, notify=self.hints)
        if self.hints:
            outbox.hint(notify=False)
        self.run.seq += len(self.entries)
        outbox.changed(self.run.pk)


@contextmanager
def locked(run_id: UUID, *, held: Held | None = None) -> Iterator[Transaction]:
    """A transaction over one run, locked; written when the block ends, rolled back when it raises.

    Raises NotFound, or LeaseLost if `held` is given and no longer holds.
    """
    with transaction.atomic():
        tx = _lock(run_id)
        run = tx.run
        if held and (run.worker_id, run.fence, run.status) != (held.worker_id, held.fence, RunStatus.RUNNING):
            raise LeaseLost(held)
        tx.held = held
        yield tx
        tx.write()


_RUN_FIELDS = [f.attname for f in Run._meta.concrete_fields]
_RUN_COLUMNS = ", ".join(str(f.column) for f in Run._meta.concrete_fields)


def _lock(run_id: UUID) -> Transaction:
    if connection.vendor != "postgresql":
        run = Run.objects.filter(pk=run_id).first()  # the transaction has locked the whole database
        if run is None:
            raise NotFound(run=run_id)
        return Transaction(run)
    # The outer query goes on when the inner one has its lock: now is read after it, and by a function of its own,
    # which sees what was committed while this waited (a clock that tests moved).
    sql = (
        f"WITH held AS MATERIALIZED (SELECT {_RUN_COLUMNS} FROM approvals_run WHERE id = %s FOR UPDATE) "
        "SELECT held.*, approvals_now() FROM held"
    )
    if not (rows := statements.run(sql, [run_id])):
        raise NotFound(run=run_id)
    *columns, now = rows[0]
    tx = Transaction(Run.from_db(DEFAULT_DB_ALIAS, _RUN_FIELDS, columns))
    tx.now = now
    return tx


def create(run: Run, **data: Any) -> bool:
    """Inserts a new run with its first entry; False if its key is taken. To be called in a transaction."""
    run.status = _next("run", None, "start")
    run.seq = 1
    if run.key is None:
        run.save(force_insert=True)
    else:
        Run.objects.bulk_create([run], ignore_conflicts=True)
        if not Run.objects.filter(pk=run.pk).exists():
            return False
    Entry.objects.bulk_create(
        [
            Entry(
                run=run,
                seq=1,
                kind="run.start",
                data=json.dumps(data, separators=(",", ":")),
                at=run.created_at,
            )
        ]
    )
    outbox.changed(run.pk)
    return True


SUSPECT_TURNS = 2
"""A run that was lost this often in a row, without a newly completed position, may be what kills its workers."""


def claim(
    worker: Worker, known: Sequence[tuple[str, int]], limit: int, *, suspects: bool = False
) -> list[Run]:
    """Gives up to `limit` runnable runs of known versions to a worker, the longest waiting first.

    Runs that may have killed their workers are given only when asked for (CASES 16).
    """
    if not known or limit < 1:
        return []
    status, note = _next("run", RunStatus.PENDING, "claim"), json.dumps({"worker": worker.name})
    compare = ">=" if suspects else "<"
    if connection.vendor == "postgresql":
        names, versions = [name for name, _ in known], [version for _, version in known]
        rows = statements.run(_claim(compare), [names, versions, limit, status, worker.pk, note])
        runs = [Run.from_db(DEFAULT_DB_ALIAS, _RUN_FIELDS, row) for row in rows]
    else:
        pairs = f"VALUES {', '.join(['(%s, %s)'] * len(known))}"
        sql = f"{_TAKE.format(_CHOOSE.format(now=clock.sql(), compare=compare, pairs=pairs))} RETURNING *"
        runs = _claim_in_two(
            sql, [status, worker.pk.hex, *(part for pair in known for part in pair), limit], note
        )
    for run in runs:
        outbox.changed(run.pk)
    return runs


def _claim_in_two(update: str, parameters: Sequence[Any], note: str) -> list[Run]:
    with transaction.atomic():
        runs = list(Run.objects.raw(update, parameters))
        now = clock.now()
        Entry.objects.bulk_create(Entry(run=r, seq=r.seq, kind="run.claim", data=note, at=now) for r in runs)
    return runs


_CHOOSE = (
    "SELECT id FROM approvals_run WHERE status = 'pending' AND ready_at <= (SELECT {now}) "
    f"AND turns_lost {{compare}} {SUSPECT_TURNS} AND (workflow, version) IN ({{pairs}}) ORDER BY ready_at LIMIT %s"
)
_TAKE = (
    "UPDATE approvals_run SET status = %s, worker_id = %s, fence = fence + 1, seq = seq + 1 WHERE id IN ({})"
)


@cache
def _claim(compare: str) -> str:
    pairs = "SELECT * FROM unnest(%s::text[], %s::int[])"
    choose = _CHOOSE.format(now=clock.sql(), compare=compare, pairs=pairs)
    return (
        # Chosen once: a subquery that the planner repeats would lock more rows than the limit.
        f"WITH chosen AS MATERIALIZED ({choose} FOR UPDATE SKIP LOCKED), "
        f"held AS ({_TAKE.format('SELECT id FROM chosen')} RETURNING {_RUN_COLUMNS}), added AS ("
        "INSERT INTO approvals_entry (run_id, seq, kind, name, digest, data, at) "
        f"SELECT id, seq, 'run.claim', '', '', %s, {clock.sql()} FROM held) SELECT * FROM held"
    )
