"""The recovery boundaries of one turn: what commits, suspends and stops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

from django.db import Error as DatabaseError

from approvals import clock
from approvals.engine.cases import Diverged, EndOfJournal, open_case
from approvals.engine.positions import BUFFER_ENTRIES, Positions
from approvals.errors import LeaseLost, Stopped, Suspended, Yielded
from approvals.models import Run, Wait
from approvals.transitions import NewEntry, Transaction, locked, runs
from approvals.transitions import waits as wait_events
from approvals.workflows.registry import Workflow


class Boundaries(Positions):
    """What `Turn` is made of below the context's calls: whatever takes a lock and commits."""

    def __init__(self, run: Run, workflow: Workflow[Any, Any], *, replaying: bool) -> None:
        super().__init__(run, replaying=replaying)
        self.workflow, self.run_id = workflow, run.pk
        self.warnings: list[str] = []
        self.stop_asked = False
        self._parking: dict[UUID, int] = {}

    # --- boundaries -------------------------------------------------------------------------------

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

    def give_back(self) -> NoReturn:
        """Any worker may go on from here: this one ends, or somebody asked the run to stop."""
        with self.boundary() as tx:
            runs.yield_(tx)
        self.leave(Yielded())

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

    # --- waits that are opened later --------------------------------------------------------------

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
