"""One worker's hold of one run, from claim to leaving: the context's calls, the end."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from django.db import connection

from approvals import clock
from approvals.engine import bodies, effects, steps, undoing, waits
from approvals.engine.boundaries import Boundaries
from approvals.engine.cases import Interrupted, is_interrupt, where_of
from approvals.errors import (
    ApprovalsError,
    ContextMisuse,
    Crashed,
    DomainError,
    Failed,
    Leave,
    SuspendInsideTransaction,
    words_of,
)
from approvals.models import Run, statements
from approvals.models.trouble import is_trouble
from approvals.transitions import runs
from approvals.workflows.context import Context
from approvals.workflows.handles import Handle
from approvals.workflows.registry import Workflow

log = logging.getLogger(__name__)
author_log = logging.getLogger("approvals.workflow")

_COUNTS = frozenset({"uuid", "random", "progress"})
"""Calls that record nothing; every other one may commit or suspend."""

_OPENS_NOTHING_ELSE = frozenset({"signal", "wait", "wait_any", "wait_all", *_COUNTS})
"""Calls that let a wait stay unopened: what waits for it opens it in the same transaction."""


class Turn(Boundaries):
    """Implements what `Context` asks for (`workflows.context.Turn`)."""

    def __init__(self, run: Run, workflow: Workflow[Any, Any], *, replaying: bool = False) -> None:
        super().__init__(run, workflow, replaying=replaying)
        self.key, self.requester = run.key, run.requester_name
        self.version, self.seed = run.version, run.seed
        self.body = ""
        self.started = time.monotonic()
        self.process = os.getpid()
        self.handles: set[UUID] = set()
        self._atomic = (connection.in_atomic_block, len(connection.savepoint_ids))
        self.log = logging.Logger(f"{author_log.name}.{run.workflow}")
        self.log.parent = author_log
        self.log.addFilter(lambda _: not self.replaying and self.position >= self.history.highest)

    # --- entering and leaving ---------------------------------------------------------------------

    def enter(self, what: str) -> None:
        """Guards every call of the context."""
        bodies.end_copy(of=self.process)
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
            self._call("", "", Turn.give_back)
        if self._unopened and what not in _OPENS_NOTHING_ELSE:
            self._call("", "", Turn.open_now)

    @contextmanager
    def inside(self, what: str) -> Iterator[None]:
        """While an author's body runs, the context may not be used. The database may come and go meanwhile."""
        self.body, began = what, time.monotonic()
        try:
            with bodies.one_process():
                yield
        finally:
            self.body = ""
            statements.freshen(since=began)

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

        Raises Crashed (tests), Interrupted or what the database raised when that was in trouble, and
        KeyboardInterrupt of whoever sits at the terminal: the caller then gives the run up. A lost lease ends the
        turn in silence: the run is another worker's already.
        """
        from approvals.engine import recovery

        try:
            self.reach("claimed")
            recovery.prepare(self)
            with bodies.guarded(), bodies.one_process():
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
