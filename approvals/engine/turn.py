"""One worker's hold of one run, from claim to leaving: positions, the buffer, boundaries, the end."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from django.db import connection

from approvals import clock, faults
from approvals.engine import effects, steps, waits
from approvals.engine.history import History, Recorded, call_of
from approvals.errors import (
    ApprovalsError,
    ContextMisuse,
    Crashed,
    DomainError,
    Failed,
    LeaseLost,
    Leave,
    Stopped,
    Suspended,
    SuspendInsideTransaction,
    Yielded,
)
from approvals.limits import limits
from approvals.models import Run, Wait
from approvals.states import RunStatus, WaitKind
from approvals.transitions import Held, NewEntry, Transaction, locked, record, runs
from approvals.workflows.context import Context
from approvals.workflows.handles import Handle
from approvals.workflows.registry import Workflow

log = logging.getLogger(__name__)
author_log = logging.getLogger("approvals.workflow")

_BUFFER_ENTRIES = 256
_WRITES = frozenset(
    {"effect", "approval", "request_approval", "transaction", "signal", "timer", "child", "sleep"}
)


class EndOfJournal(Leave):
    """A replay reached what is not recorded yet."""


class Turn:
    """Implements what `Context` asks for (`workflows.context.Turn`)."""

    def __init__(self, run: Run, workflow: Workflow[Any, Any], *, replaying: bool = False) -> None:
        self.run, self.workflow, self.replaying = run, workflow, replaying
        self.run_id, self.key, self.requester = run.pk, run.key, run.requester_name
        self.version, self.seed = run.version, run.seed
        self.held = Held(run.pk, run.worker_id, run.fence)
        first = run.seq <= 2 and not replaying  # started and claimed: nothing to read
        self.history = History() if first else History.load(run.pk)
        self.position = 0
        self.leaving: BaseException | None = None
        self.body = ""
        self.warnings: list[str] = []
        self.lock = threading.RLock()
        self.stop_asked = False
        self.started = time.monotonic()
        self._buffer: list[NewEntry] = []
        self._buffered_since = 0.0
        self._done = 0
        self._progress: str | None = None
        self._atomic = (connection.in_atomic_block, len(connection.savepoint_ids))
        self.log = logging.Logger(f"{author_log.name}.{run.workflow}")
        self.log.parent = author_log
        self.log.addFilter(lambda _: not self.replaying and self.position >= self.history.highest)

    # --- entering and leaving ---------------------------------------------------------------------

    def enter(self, what: str) -> None:
        """Guards every call of the context."""
        if self.leaving is not None:
            raise self.leaving
        if self.body:
            raise ContextMisuse(
                f"ctx.{what} was called inside {self.body}; call it in the workflow function itself"
            )
        if what in _WRITES and (connection.in_atomic_block, len(connection.savepoint_ids)) != self._atomic:
            raise SuspendInsideTransaction(call=f"ctx.{what}", position=self.position + 1)
        if self.stop_asked and not self.replaying and self.position >= self.history.highest:
            with self.boundary() as tx:
                runs.yield_(tx)
            self.leave(Yielded())

    def leave(self, reason: BaseException) -> NoReturn:
        """Leaves the workflow function for good: every later call of the context raises the same."""
        self.leaving = reason
        raise reason

    def reach(self, point: str) -> None:
        """A crash point; a simulated crash ends this turn like a process."""
        try:
            faults.reach(point)
        except Crashed as crash:
            self.leave(crash)

    @contextmanager
    def inside(self, what: str) -> Iterator[None]:
        """While an author's body runs, the context may not be used."""
        self.body = what
        try:
            yield
        finally:
            self.body = ""

    # --- positions --------------------------------------------------------------------------------

    def at(self, call: str, name: str, *, stored: bool = True) -> list[Recorded]:
        """Takes the next position; what is recorded there, if it is of this call and name."""
        self.position += 1
        entries = self.history.at(self.position)
        if entries:
            first = entries[0]
            if not stored or call_of(first) != call or first.name != name:
                seen = f"{call} {name!r}" + ("" if stored else " (never stored)")
                self.diverged(f"{call_of(first)} {first.name!r}", seen)
        elif stored and self.position <= self.history.highest:
            self.diverged("nothing (a step that is never stored)", f"{call} {name!r}")
        elif stored and self.replaying:
            self.end_of_journal()
        return entries

    def diverged(self, recorded: str, seen: str, *, what: str = "call") -> NoReturn:
        """The code does not do what the journal says: the run stops, the journal is intact."""
        self.stop(
            "replay diverged",
            position=self.position,
            what=what,
            recorded=recorded,
            seen=seen,
            workflow_version=self.workflow.version,
        )

    # --- the buffer and its commits ---------------------------------------------------------------

    def keep(self, entry: NewEntry, *, sync: bool = False) -> None:
        """Keeps a result for the next boundary; `sync`, or a full buffer, commits at once."""
        with self.lock:
            if not self._buffer:
                self._buffered_since = time.monotonic()
            self._buffer.append(entry)
            self._done = max(self._done, entry.position or 0)
            if sync or len(self._buffer) >= _BUFFER_ENTRIES:
                self.flush()

    def flush(self) -> None:
        """Commits the buffered results in one fenced statement. Raises LeaseLost."""
        with self.lock:
            if not self._buffer:
                return
            self.reach("before_flush")
            self._fenced(lambda: record(self.held, self._buffer, position=self._done))
            self._buffer = []
            self.reach("after_flush")

    def record_with(self, entry: NewEntry) -> None:
        """Records buffered results and this entry in the caller's transaction; `committed` follows it."""
        entries = [*self._buffer, entry]
        self._done = max(self._done, entry.position or 0)
        self._fenced(lambda: record(self.held, entries, position=self._done))

    def committed(self) -> None:
        """The caller's transaction is committed."""
        self._buffer = []

    def flush_due(self) -> None:
        """Called by the heartbeat: commits a prefix that has waited long enough."""
        if (
            self._buffer
            and time.monotonic() - self._buffered_since >= limits().buffer_seconds
            and self.lock.acquire(blocking=False)
        ):
            try:
                if self.leaving is None and self._buffer:
                    record(self.held, self._buffer, position=self._done)
                    self._buffer = []
            finally:
                self.lock.release()

    def _fenced(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except LeaseLost as lost:
            self.leave(lost)

    @contextmanager
    def boundary(self, *, honour: bool = True) -> Iterator[Transaction]:
        """A recovery boundary: buffered results, what the block does and its entries in one transaction.

        With `honour`, a request to pause or cancel is met instead of the block's own work: the block is
        then not what happens, so it must be the whole of what the caller does at this boundary.
        """
        with self.lock:
            if self._buffer:
                self.reach("before_flush")
            if honour and self._stop_if_asked():
                self.leave(Stopped())
            try:
                with locked(self.run_id, held=self.held) as tx:
                    self._fill(tx)
                    yield tx
            except LeaseLost as lost:
                self.leave(lost)
            flushed, self._buffer = bool(self._buffer), []
            self.run = tx.run
            first = tx.run.seq - len(tx.entries) + 1
            self.history.learn(
                (first + i, e.position, e.kind, e.name, e.digest, e.data) for i, e in enumerate(tx.entries)
            )
        if flushed:
            self.reach("after_flush")

    def _fill(self, tx: Transaction) -> None:
        if self._buffer:
            tx.take(self._buffer, position=self._done)
        if self._progress is not None:
            tx.set(progress=self._progress)
            self._progress = None

    def _stop_if_asked(self) -> bool:
        if not self.stop_asked:
            return False
        with locked(self.run_id, held=self.held) as tx:
            if not runs.asked_to_stop(tx):
                return False
            self._fill(tx)
            stopped = runs.honour_stop(tx)
        if stopped:
            self._buffer = []
        return stopped

    def note(self, tx: Transaction, entry: NewEntry, digest: str = "") -> None:
        """Appends an entry of this position at a boundary."""
        tx.take([dataclasses.replace(entry, digest=digest or entry.digest)], position=entry.position or 0)

    def end_of_journal(self) -> NoReturn:
        """A replay has shown all that there is."""
        self.leave(EndOfJournal())

    # --- suspension and stopping ------------------------------------------------------------------

    def park(self, parked: list[tuple[UUID, int]], *, all_of: bool = False) -> NoReturn:
        """Suspends on open waits, in a transaction of its own."""
        if self.replaying:
            self.end_of_journal()
        self.reach("before_suspend")
        with self.boundary() as tx:
            suspended = self.park_in(tx, parked, all_of=all_of)
        self.left(suspended)

    def park_in(self, tx: Transaction, parked: list[tuple[UUID, int]], *, all_of: bool = False) -> bool:
        """Suspends in the transaction of a boundary; `left` is to be called after it."""
        return runs.suspend(tx, parked, all_of=all_of)

    def left(self, suspended: bool) -> NoReturn:
        """Leaves after a boundary that suspended (or found the condition met and yielded)."""
        if suspended:
            self.reach("suspended")
            self.leave(Suspended())
        self.leave(Yielded())

    def stop(self, why: str, *, position: int | None = None, **data: Any) -> NoReturn:
        """Stops for an operator, with what is known of the case."""
        if self.replaying:
            self.leave(Diverged(why, {"position": position or self.position, **data}))
        with self.boundary(honour=False) as tx:
            open_case(tx, why, position or self.position, data)
        self.stopped(why)

    def stopped(self, why: str) -> NoReturn:
        """Leaves after a boundary that opened a case."""
        self.leave(Stopped(why))

    # --- the context's calls ----------------------------------------------------------------------

    def step(self, kind: str, name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return steps.step(self, kind, name, fn, args, kwargs)

    def effect(self, name: str, effect: Any, request: Any, **options: Any) -> Any:
        return effects.effect(self, name, effect, request, **options)

    def request_approval(self, name: str, **options: Any) -> Handle[Any]:
        return waits.request_approval(self, name, **options)

    def signal(self, name: str, schema: Any, expires_in: timedelta | None) -> Handle[Any]:
        return waits.signal(self, name, schema, expires_in)

    def timer(self, name: str, when: timedelta | datetime) -> Handle[Any]:
        return waits.timer(self, name, when)

    def child(self, name: str, workflow: Any, input: Any) -> Handle[Any]:
        return waits.child(self, name, workflow, input)

    def wait(self, handle: Handle[Any], at_most: timedelta | None) -> Any:
        return waits.wait(self, handle, at_most)

    def wait_any(self, handles: tuple[Handle[Any], ...], cancel_losers: bool) -> Handle[Any]:
        return waits.wait_any(self, handles, cancel_losers)

    def wait_all(self, handles: tuple[Handle[Any], ...]) -> tuple[Any, ...]:
        return waits.wait_all(self, handles)

    def now(self) -> datetime:
        return steps.now(self)

    def progress(self, done: int, total: int, text: str) -> None:
        if self.position >= self.history.highest:
            self._progress = json.dumps({"done": done, "total": total, "text": text})

    # --- the whole turn ---------------------------------------------------------------------------

    def execute(self) -> None:
        """Settles doubt, verifies, replays and goes on until the run is parked or over.

        Raises LeaseLost quietly never, Crashed (tests), and whatever the database raises: the caller
        then gives the run up.
        """
        from approvals.engine import recovery

        try:
            self.reach("claimed")
            recovery.prepare(self)
            output = self.workflow.fn(Context(self), self.input())
            if self.leaving is None:
                self._complete(output)
        except BaseException as error:
            if self.leaving is None:
                self._end_with(error)
        if isinstance(self.leaving, Crashed):
            raise self.leaving

    def input(self) -> Any:
        """The run's input, decoded."""
        return self.workflow.input.decode(self.run.input, what=f"the input of {self.workflow.name}")

    def finished(self, output: Any) -> str:
        """The function returned: its output as stored, if it has asked for all that is recorded."""
        text, _ = self.workflow.output.roundtrip(output, what=f"the output of {self.workflow.name}")
        if self.position < self.history.highest:
            self.diverged("more positions", "the function returned")
        return text

    def _complete(self, output: Any) -> None:
        text = self.finished(output)
        self.reach("before_complete")
        untouched = not (self.history.effects or self.history.waits or self.run.parent_wait)
        if not (untouched and self._complete_at_once(text)):
            with self.boundary() as tx:
                if not runs.honour_stop(tx):
                    runs.complete(tx, output=text)
        self.reach("completed")

    def _complete_at_once(self, output: str) -> bool:
        """A run that touched nothing outside ends in one statement, with all that it had buffered."""
        with self.lock:
            end = ("complete", {"finished_at": clock.Now(), "output": output})
            if not record(self.held, self._buffer, position=self._done, end=end):
                return False
            self._buffer = []
            return True

    def _end_with(self, error: BaseException) -> None:
        """What the function raised ends the run, or stops it: a bug never loses a run."""
        if isinstance(error, DomainError | Failed):
            told = getattr(error, "message", "") or str(error)
            with self.boundary() as tx:
                runs.fail(tx, type=type(error).__name__, message=told, code=error.code)
            return
        if not isinstance(error, Exception) or is_infrastructure(error):
            raise error
        log.warning("run %s stopped: %s in workflow code", self.run_id, type(error).__name__, exc_info=error)
        code = error.code if isinstance(error, ApprovalsError) else "crashed"
        try:
            self.stop(
                "crashed", type=type(error).__name__, message=str(error), code=code, where=where_of(error)
            )
        except Leave:
            return


class Diverged(Leave):
    """A replay that performs nothing found a difference."""

    def __init__(self, why: str, data: dict[str, Any]) -> None:
        super().__init__(why)
        self.why, self.data = why, data


def open_case(tx: Transaction, why: str, position: int, data: dict[str, Any]) -> Wait:
    """Opens a reconciliation and stops the run at it."""
    ordinal = Wait.objects.filter(run=tx.run, position=position, kind=WaitKind.RECONCILIATION).count()
    case = Wait(
        position=position,
        kind=WaitKind.RECONCILIATION,
        ordinal=ordinal,
        name=why,
        opened_at=tx.now,
        data=json.dumps(data, default=str),
    )
    (runs.stop if tx.run.status == RunStatus.RUNNING else runs.strand)(tx, case)
    return case


def is_infrastructure(error: BaseException) -> bool:
    """The database's trouble, not the author's: the turn is given up and tried again."""
    from django.db import InterfaceError, OperationalError

    return isinstance(error, OperationalError | InterfaceError)


def where_of(error: BaseException) -> str:
    """File and line at which workflow code raised, for the operator."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno} in {code.co_name}"
