"""One worker's hold of one run, from claim to leaving: boundaries, suspension, the end."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from django.db import Error as DatabaseError
from django.db import connection

from approvals import clock
from approvals.engine import bodies, effects, steps, undoing, waits
from approvals.engine.cases import (
    Diverged,
    EndOfJournal,
    Interrupted,
    is_interrupt,
    open_case,
    where_of,
)
from approvals.engine.positions import BUFFER_ENTRIES, Positions
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
    words_of,
)
from approvals.models import Run, Wait, statements
from approvals.models.trouble import is_trouble
from approvals.transitions import NewEntry, Transaction, locked, runs
from approvals.transitions import waits as wait_events
from approvals.workflows.context import Context
from approvals.workflows.handles import Handle
from approvals.workflows.registry import Workflow

log = logging.getLogger(__name__)
author_log = logging.getLogger("approvals.workflow")

_COUNTS = frozenset({"uuid", "random", "progress"})
"""Calls that record nothing; every other one may commit or suspend."""

_OPENS_NOTHING_ELSE = frozenset({"signal", "wait", "wait_any", "wait_all", *_COUNTS})
"""Calls that let a wait stay unopened: what waits for it opens it in the same transaction."""


class Turn(Positions):
    """Implements what `Context` asks for (`workflows.context.Turn`)."""

    def __init__(self, run: Run, workflow: Workflow[Any, Any], *, replaying: bool = False) -> None:
        super().__init__(run, replaying=replaying)
        self.workflow = workflow
        self.run_id, self.key, self.requester = run.pk, run.key, run.requester_name
        self.version, self.seed = run.version, run.seed
        self.body = ""
        self.warnings: list[str] = []
        self.stop_asked = False
        self.started = time.monotonic()
        self.handles: set[UUID] = set()
        self._parking: dict[UUID, int] = {}
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
        atomic = (connection.in_atomic_block, len(connection.savepoint_ids))
        if atomic != self._atomic and what not in _COUNTS:
            raise SuspendInsideTransaction(call=f"ctx.{what}", position=self.position + 1)
        if self.stop_asked and not self.replaying and self.position >= self.history.highest:
            self._call("", "", Turn._give_back)
        if self._unopened and what not in _OPENS_NOTHING_ELSE:
            self._call("", "", Turn.open_now)

    def _give_back(self) -> NoReturn:
        with self.boundary() as tx:
            runs.yield_(tx)
        self.leave(Yielded())

    def open_later(self, columns: dict[str, Any], due: timedelta | None = None) -> UUID:
        """Opens a wait with the next call that could let anybody know of it, or that waits for it; its id."""
        wait_id = clock.new_id()
        self._unopened.append(({"id": wait_id, **columns}, due))
        if len(self._unopened) >= BUFFER_ENTRIES:
            self.open_now()
        return wait_id

    def open_now(self) -> bool:
        """Opens what is to be opened later; whether anything was."""
        if not self._unopened:
            return False
        with self.boundary():
            return True

    def keep(self, entry: NewEntry, *, sync: bool = False) -> None:
        self.open_now()  # its position comes first: the journal has no gaps
        super().keep(entry, sync=sync)

    @contextmanager
    def inside(self, what: str) -> Iterator[None]:
        """While an author's body runs, the context may not be used. The database may come and go meanwhile."""
        self.body, began = what, time.monotonic()
        try:
            yield
        finally:
            self.body = ""
            statements.freshen(since=began)

    # --- boundaries -------------------------------------------------------------------------------

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

    @contextmanager
    def boundary(self, *, honour: bool = True) -> Iterator[Transaction]:
        """A recovery boundary: buffered results, what the block does and its entries in one transaction.

        With `honour`, a request to pause or cancel is met instead of the block's own work: the block is
        then not what happens, so it must be the whole of what the caller does at this boundary.
        """
        if self.replaying:
            self.end_of_journal()
        with self.lock:
            self._say()
            if self._buffer:
                self.reach("before_flush")
            try:
                self._hear()
                if honour and self._stop_if_asked():
                    self.leave(Stopped())
                with locked(self.run_id, held=self.held) as tx:
                    self._fill(tx)
                    self._open_in(tx)
                    yield tx
            except LeaseLost as lost:
                self.leave(lost)
            except DatabaseError:
                self._unheard = True
                raise
            flushed, self._buffer, self._unopened = bool(self._buffer), [], []
            self.run = tx.run
            first = tx.run.seq - len(tx.entries) + 1
            self.history.learn(
                (first + i, e.position, e.kind, e.name, e.digest, e.data) for i, e in enumerate(tx.entries)
            )
        if flushed:
            self.reach("after_flush")

    def _fill(self, tx: Transaction) -> None:
        # Whatever came before the call that is made now has returned: its positions are complete.
        tx.take(self._buffer, position=max(self._done, self.position - 1))
        if self._progress is not None:
            tx.set(progress=self._progress)
            self._progress = None
        if self.warnings:
            runs.warn(tx, self.warnings)
            self.warnings = []

    def _open_in(self, tx: Transaction) -> None:
        for columns, due in self._unopened:
            wait = Wait(parked=self._parking.get(columns["id"], Wait.NOT_PARKED), **columns)
            wait.due_at = tx.now + due if due is not None else None
            wait_events.open_(tx, wait)

    def _stop_if_asked(self) -> bool:
        if not self.stop_asked:
            return False
        with locked(self.run_id, held=self.held) as tx:
            if not runs.asked_to_stop(tx):
                return False
            self._fill(tx)
            stopped = runs.honour_stop(tx)
        self._buffer = []
        return stopped

    def note(self, tx: Transaction, entry: NewEntry, digest: str = "") -> None:
        """Appends an entry of this position at a boundary."""
        tx.take([dataclasses.replace(entry, digest=digest or entry.digest)], position=entry.position or 0)

    def end_of_journal(self) -> NoReturn:
        """A replay has shown all that there is."""
        self.leave(EndOfJournal())

    # --- suspension and stopping ------------------------------------------------------------------

    def park(self, parked: list[tuple[UUID, int]], *, all_of: bool = False) -> None:
        """Suspends on open waits, in a transaction of its own.

        Returns only if waits that this very transaction opened had their messages already.
        """
        if self.replaying:
            self.end_of_journal()
        self.reach("before_suspend")
        self._parking = runs.modes(parked, all_of=all_of)
        try:
            with self.boundary() as tx:
                met = runs.met_on_arrival(tx, self._parking, all_of=all_of)
                suspended = not met and self.park_in(tx, parked, all_of=all_of)
        finally:
            self._parking = {}
        if not met:
            self.left(suspended)

    def park_in(
        self,
        tx: Transaction,
        parked: list[tuple[UUID, int]],
        *,
        all_of: bool = False,
        in_doubt: bool = False,
    ) -> bool:
        """Suspends in the transaction of a boundary; `left` is to be called after it."""
        return runs.suspend(tx, parked, all_of=all_of, in_doubt=in_doubt)

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
        self._unsaid = None  # mended code may well not raise it again
        self._unopened = []  # nothing after them is recorded, and opening them may be what went wrong
        with self.boundary(honour=False) as tx:
            open_case(tx, why, position or self.position, data)
        self.stopped(why)

    def stopped(self, why: str) -> NoReturn:
        """Leaves after a boundary that opened a case."""
        self.leave(Stopped(why))

    # --- the context's calls ----------------------------------------------------------------------

    def step(self, kind: str, name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self._call(kind, name, steps.step, kind, name, fn, args, kwargs)

    def effect(self, name: str, effect: Any, request: Any, **options: Any) -> Any:
        return self._call("effect", name, effects.effect, name, effect, request, **options)

    def request_approval(self, name: str, **options: Any) -> Handle[Any]:
        return self._call("approval", name, waits.request_approval, name, **options)  # type: ignore[no-any-return]

    def signal(self, name: str, schema: Any, expires_in: timedelta | None) -> Handle[Any]:
        return self._call("signal", name, waits.signal, name, schema, expires_in)  # type: ignore[no-any-return]

    def timer(self, name: str, when: timedelta | datetime, *, later: bool = False) -> Handle[Any]:
        return self._call("timer", name, waits.timer, name, when, later=later)  # type: ignore[no-any-return]

    def child(self, name: str, workflow: Any, input: Any) -> Handle[Any]:
        return self._call("child", name, waits.child, name, workflow, input)  # type: ignore[no-any-return]

    def wait(self, handle: Handle[Any], at_most: timedelta | None) -> Any:
        return self._call("wait", handle.name, waits.wait, handle, at_most)

    def wait_any(self, handles: tuple[Handle[Any], ...], cancel_losers: bool) -> Handle[Any]:
        return self._call("wait_any", "", waits.wait_any, handles, cancel_losers)  # type: ignore[no-any-return]

    def wait_all(self, handles: tuple[Handle[Any], ...]) -> tuple[Any, ...]:
        return self._call("wait_all", "", waits.wait_all, handles)  # type: ignore[no-any-return]

    def compensate(self, reason: str) -> None:
        self._call("compensate", "", undoing.compensate, reason)

    def now(self) -> datetime:
        return self._call("now", "", steps.now)  # type: ignore[no-any-return]

    def progress(self, done: float, total: float, text: str) -> None:
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
            with bodies.guarded():
                output = self.workflow.fn(Context(self), self.input())
            if self.leaving is None:
                self._complete(output)
        except BaseException as error:
            if self.leaving is None:
                self._end_with(error)
        if isinstance(self.leaving, Crashed | Interrupted):
            raise self.leaving

    def input(self) -> Any:
        """The run's input, decoded."""
        return self.workflow.input.decode(self.run.input, what=f"the input of {self.workflow.name}")

    def finished(self, output: Any) -> str:
        """The function returned: its output as stored, if it has asked for all that is recorded."""
        self._all_asked("the function returned")
        text, _ = self.workflow.output.roundtrip(output, what=f"the output of {self.workflow.name}")
        self._say()
        return text

    def _all_asked(self, seen: str) -> None:
        if self.position < self.history.highest:
            self.diverged(f"more positions, up to {self.history.highest}", seen)

    def failed(self, error: Exception) -> dict[str, str]:
        """The function gave its verdict: its error as stored, if it has asked for all that is recorded."""
        self._all_asked(f"the function raised {type(error).__name__}")
        code = getattr(error, "code", "failed")
        return {"type": type(error).__name__, "message": words_of(error), "code": code}

    def _complete(self, output: Any) -> None:
        text = self.finished(output)
        self.reach("before_complete")
        # Only this turn opens waits of this run, so what it knows to be closed is closed.
        open_ones = self.history.open_waits or self._unopened
        settled = not (self.history.effects or open_ones or self.run.parent_wait)
        if not (settled and not self.warnings and self._complete_at_once(text)):
            with self.boundary() as tx:
                if not runs.honour_stop(tx):
                    runs.complete(tx, output=text)
        self.reach("completed")

    def _complete_at_once(self, output: str) -> bool:
        """A run that leaves nothing to be closed ends in one statement, with all that it had buffered."""
        with self.lock:
            end = ("complete", {"finished_at": clock.Now(), "output": output})
            if not self._record(end=end):
                return False
            self._buffer = []
            return True

    def _end_with(self, error: BaseException) -> None:
        """What the function raised ends the run, or stops it: a bug never loses a run."""
        if isinstance(error, Crashed) or is_trouble(error) or is_interrupt(error):
            raise error
        try:
            if isinstance(error, DomainError | Failed):
                try:
                    return self._fail(error)
                except Exception as broken:  # a wait that was still to be opened cannot be
                    if is_trouble(broken):
                        raise
                    error = broken
            self._crashed(error)
        except Leave:
            if self.leaving is None:
                raise

    def _fail(self, error: Exception) -> None:
        told = self.failed(error)
        with self.boundary() as tx:
            if not runs.honour_stop(tx):
                runs.fail(tx, undo=self.workflow.compensate, **told)

    def _crashed(self, error: BaseException) -> NoReturn:
        log.warning("run %s stopped: %s in workflow code", self.run_id, type(error).__name__, exc_info=error)
        code = error.code if isinstance(error, ApprovalsError) else "crashed"
        raised, call = self._raised
        told: dict[str, Any] = {"call": call if raised is error else None, "where": where_of(error)}
        self.stop("crashed", type=type(error).__name__, message=words_of(error), code=code, **told)
