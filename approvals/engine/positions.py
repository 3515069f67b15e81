"""The positions of one turn, and the results that wait for their commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

from django.db import Error as DatabaseError

from approvals import faults
from approvals.engine.cases import Interrupted
from approvals.engine.history import REFUSED, History, Recorded, call_of, refusal_of, refused
from approvals.errors import (
    ApprovalsError,
    Crashed,
    DomainError,
    LeaseLost,
    LimitExceeded,
    words_of,
)
from approvals.limits import limits
from approvals.models import Entry, Run
from approvals.models.trouble import is_trouble
from approvals.transitions import Held, NewEntry, locked, record, runs

BUFFER_ENTRIES = 256
Unopened = tuple[dict[str, Any], timedelta | None]
"""The columns of a wait, and so long from when it is opened until it is due."""


class Positions:
    """What `Turn` is made of below its boundaries: where the function is, and what is not committed yet."""

    def __init__(self, run: Run, *, replaying: bool) -> None:
        self.run, self.replaying = run, replaying
        self.held = Held(run.pk, run.worker_id, run.fence)
        first = run.seq <= 2 and not replaying  # started and claimed: nothing to read
        self.history = History() if first else History.load(run.pk)
        self.position = 0
        self.leaving: BaseException | None = None
        self.readable: set[UUID] = set()
        self.lock = threading.RLock()
        self._stored = True
        self._buffer: list[NewEntry] = []
        self._buffered_since = 0.0
        self._unheard = False
        self._unopened: list[Unopened] = []
        self._done = 0
        self._unsaid: NewEntry | None = None
        self._raised: tuple[BaseException | None, str] = (None, "")
        self._progress: str | None = None

    def diverged(self, recorded: str, seen: str, *, what: str = "call") -> NoReturn:
        """The code does not do what the journal says."""
        raise NotImplementedError

    def end_of_journal(self) -> NoReturn:
        """A replay has shown all that there is."""
        raise NotImplementedError

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

    # --- positions --------------------------------------------------------------------------------

    def at(self, call: str, name: str, *, stored: bool = True) -> list[Recorded]:
        """Takes the next position; what is recorded there, if it is of this call and name."""
        self._say()
        self._check_length()
        self.position += 1
        self._stored = stored
        entries = self.history.at(self.position)
        if entries:
            first = entries[0]
            if not stored or call_of(first) != call or first.name != name:
                seen = f"{call} {name!r}" + ("" if stored else " (never stored)")
                self.diverged(f"{call_of(first)} {first.name!r}", seen)
            if first.kind == REFUSED:
                raise refusal_of(first)
        elif stored and self.position <= self.history.highest:
            self.diverged("nothing (a step that is never stored)", f"{call} {name!r}")
        elif stored and self.replaying:
            self.end_of_journal()
        return entries

    def _check_length(self) -> None:
        """Only what the function asks for counts: that a run stops or ends can always be recorded."""
        if self.replaying or self.position < self.history.highest:
            return
        length = self.run.seq + len(self._buffer) + len(self._unopened)
        limit = limits().journal_entries
        if length >= limit:
            told = "The journal of this run is full: let children do parts of its work, or raise the limit and resume"
            raise LimitExceeded.of(told, run=self.run.pk, entries=length, limit=limit)

    def _call(self, call: str, name: str, do: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """One call of the context. What it raised is remembered like a result: replay must raise it too."""
        before = self.position
        try:
            return do(self, *args, **options)
        except ApprovalsError as error:
            silent = self.position > before and self._done < self.position and self._stored
            if silent and not self.history.at(self.position) and not self.replaying:
                self._unsaid = refused(call, self.position, name, error)
                if isinstance(error, DomainError):  # any other ends the run in a case, without a trace of it
                    self._say()
            self._raised = error, f"{call} {name!r}"
            raise
        except BaseException as error:
            if is_trouble(error):
                self.leaving = Interrupted(f"{type(error).__name__}: {words_of(error)}")
                raise self.leaving from error
            self._raised = error, f"{call} {name!r}"
            raise

    def _say(self) -> None:
        if self._unsaid is not None:
            entry, self._unsaid = self._unsaid, None
            self.keep(entry)

    # --- the buffer and its commits ---------------------------------------------------------------

    def keep(self, entry: NewEntry, *, sync: bool = False) -> None:
        """Keeps a result for the next boundary; `sync`, or a full buffer, commits at once."""
        with self.lock:
            if not self._buffer:
                self._buffered_since = time.monotonic()
            self._buffer.append(entry)
            self._done = max(self._done, entry.position or 0)
            if sync or len(self._buffer) >= BUFFER_ENTRIES:
                self.flush()

    def flush(self) -> None:
        """Commits the buffered results in one fenced statement. Raises LeaseLost."""
        with self.lock:
            if not self._buffer:
                return
            self.reach("before_flush")
            self._fenced(self._record)
            self._buffer = []
            self.reach("after_flush")

    def record_with(self, entry: NewEntry) -> None:
        """Records buffered results and this entry in the caller's transaction; `committed` follows it."""
        done = max(self._done, entry.position or 0)
        self._fenced(lambda: self._record(entry, position=done))
        self._unheard = True

    def committed(self, position: int) -> None:
        """The caller's transaction is committed; this position is complete."""
        self._buffer, self._unheard, self._done = [], False, max(self._done, position)

    def flush_due(self) -> None:
        """Called by the heartbeat: commits a prefix that has waited long enough."""
        if (
            self._buffer
            and time.monotonic() - self._buffered_since >= limits().buffer_seconds / 2
            and self.lock.acquire(blocking=False)
        ):
            try:
                if self.leaving is None and self._buffer:
                    self._record()
                    self._buffer = []
                    if (progress := self._progress) is not None:
                        runs.show_progress(self.held, progress)
                        self._progress = None
            finally:
                self.lock.release()

    def _record(
        self, *more: NewEntry, end: tuple[str, dict[str, Any]] | None = None, position: int | None = None
    ) -> int:
        if self.replaying:
            self.end_of_journal()
        self._hear()
        entries, done = [*self._buffer, *more], self._done if position is None else position
        try:
            last = record(self.held, entries, position=done, end=end)
        except DatabaseError:
            self._unheard = True
            raise
        self.run.seq = max(self.run.seq, last)
        return last

    def _hear(self) -> None:
        """After a commit whose answer was lost: what the journal holds of the buffer is not written again.

        The lock is given when a commit that was still on its way has landed, or never will. Raises LeaseLost.
        """
        if not self._unheard:
            return
        with locked(self.run.pk, held=self.held):
            since = Entry.objects.filter(run=self.run.pk, seq__gt=self.run.seq, position__isnull=False)
            landed = set(since.values_list("position", "kind"))
        self._buffer = [e for e in self._buffer if (e.position, e.kind) not in landed]
        self._unheard = False

    def _fenced(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except LeaseLost as lost:
            self.leave(lost)
