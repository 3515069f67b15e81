"""What one worker holds: its lease, and the runs it moves; the heartbeat keeps both."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from uuid import UUID

from django.db import OperationalError, connection

from approvals.engine.cases import is_interrupt
from approvals.engine.leases import Lease, lease_seconds
from approvals.engine.turn import Turn
from approvals.errors import Crashed, LeaseLost, UnknownVersion, words_of
from approvals.limits import limits
from approvals.models import Run, statements
from approvals.states import RunStatus
from approvals.transitions import locked, runs
from approvals.workflows import registry

log = logging.getLogger(__name__)

type Hold = tuple[UUID, int]
"""A run and the fence by which it is held: a turn that was given up may still be here when the next one is."""

ENDS = object()
"""What the loop of a thread returns that is needed no more."""


_LOCK_MILLISECONDS = 500


class Holding:
    """What `Worker` is made of below its threads: it holds runs, and gives up those it cannot move."""

    def __init__(self, queue: str, name: str) -> None:
        self.queue_name, self.name = queue, name
        self.known = registry.known()
        self.lease: Lease | None = None
        self.turns: dict[Hold, Turn] = {}
        self._claimed: set[Hold] = set()
        self._suspects: set[Hold] = set()
        self._replaced: set[Hold] = set()
        self._hands = threading.Lock()
        self._stopping = threading.Event()
        self._ended = threading.Event()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    def _lease(self) -> Lease:
        if self.lease is None:
            raise RuntimeError("This worker was not started")
        return self.lease

    # --- one turn ---------------------------------------------------------------------------------

    def take(self, run: Run) -> None:
        """Moves one claimed run as far as it goes. Raises only Crashed (tests)."""
        hold = (run.pk, run.fence)
        try:
            workflow = registry.resolve(run.workflow, run.version)
        except UnknownVersion as error:
            self._give_up(*hold, str(error))
            self._claimed.discard(hold)
            return
        try:
            turn = Turn(run, workflow)
            self.turns[hold] = turn
            turn.stop_asked = self.stopping
            # What authors set in it (a precision, a time zone) ends with the turn: threads move many runs.
            contextvars.Context().run(turn.execute)
        except Crashed:
            raise
        except BaseException as error:
            why = f"the turn died: {type(error).__name__}: {words_of(error)}"[:500]
            log.warning("run %s: %s", run.pk, why)
            if not connection.in_atomic_block:
                connection.close()  # whatever ended the turn may lie in its session, and would end the next one too
            self._give_up(*hold, why)
            if is_interrupt(error):
                raise
        finally:
            with self._hands:
                self.turns.pop(hold, None)
            self._claimed.discard(hold)

    def was_replaced(self, run: Run) -> bool:
        """Whether this turn lasted so long that another thread has taken the place of its own."""
        with self._hands:
            hold = (run.pk, run.fence)
            is_so = hold in self._replaced
            self._replaced.discard(hold)
            return is_so

    def replace(self, turn: Turn) -> None:
        """Told that the thread of this turn does not come back; whoever has threads starts another."""

    def _abandon(self, turn: Turn) -> None:
        """A thread cannot be ended from outside. Its place is not lost: a few such runs would stop this worker."""
        turn.stop_asked = True  # should it ever come back
        hold = (turn.run_id, turn.held.fence)
        with self._hands:
            if hold not in self.turns or hold in self._replaced:
                return
            self._replaced.add(hold)
        self.replace(turn)

    def _give_up(self, run_id: UUID, fence: int, why: str) -> None:
        """The run goes to whoever claims it next; if even that fails, the end of the lease says so."""
        try:
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()  # the heartbeat comes here, too, and its own may be gone
            with locked(run_id) as tx:
                if tx.run.status == RunStatus.RUNNING and tx.run.fence == fence:
                    runs.lose_lease(tx, why=why)
        except Exception as error:
            log.warning("run %s could not be given up, the sweeper will take it: %s", run_id, error)

    # --- the heartbeat ----------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        """Renews the lease, commits what was buffered too long, and looks after its own turns."""
        every = min(limits().buffer_seconds / 2, lease_seconds() / 3)
        next_renewal = 0.0
        while True:
            self._lease().keep_session()  # first of all: others have little patience
            # One run whose row somebody holds for long must not cost this worker its lease.
            statements.be_impatient(_LOCK_MILLISECONDS)
            if time.monotonic() >= next_renewal:
                next_renewal = time.monotonic() + lease_seconds() / 3
                self._renew()
            for turn in list(self.turns.values()):
                self._flush(turn)
            self._look_after_turns()
            if self._ended.wait(every):
                return

    def _flush(self, turn: Turn) -> None:
        try:
            turn.flush_due()
        except LeaseLost as lost:
            turn.leaving = lost  # said once; its next call of the context leaves
            log.warning(
                "run %s was given up or taken over (fence %s holds no more): its turn here ends at its next call, "
                "and what it had not committed is done again by whoever has the run",
                turn.run_id,
                turn.held.fence,
            )
        except OperationalError as error:
            if connection.errors_occurred and not connection.is_usable():
                raise
            log.warning("run %s: not committed now, its row is held: %s", turn.run_id, error)

    def _renew(self) -> None:
        if self._lease().renew():
            return
        log.warning(
            "worker %s was given up by others; it starts again under a new name", self._lease().worker.name
        )
        self._lease().drop_locks()
        self.lease = Lease(name=self.name, queue=self.queue_name, known=self.known)

    def _look_after_turns(self) -> None:
        """Requests to stop reach a turn here; a run whose turn is gone or far too long is given up."""
        too_long = self._abandoned()
        held = Run.objects.filter(status=RunStatus.RUNNING, worker=self._lease().worker.pk)
        orphans = set()
        for run_id, fence, cancel, pause in held.values_list(
            "pk", "fence", "cancel_requested_at", "pause_requested_at"
        ):
            hold = (run_id, fence)
            if (turn := self.turns.get(hold)) is not None:
                turn.stop_asked = turn.stop_asked or self.stopping or bool(cancel or pause)
                if hold in too_long:
                    self._give_up(*hold, "its turn ran past the limit")
            elif hold not in self._claimed:
                orphans.add(hold)
                if hold in self._suspects:  # seen twice: not just being claimed
                    self._give_up(*hold, "its turn is gone though its worker lives")
        self._suspects = orphans

    def _abandoned(self) -> set[Hold]:
        """The turns that ran past the limit; each has lost its thread, whoever has its run by now."""
        limit = limits().turn_seconds
        found = {
            hold: turn for hold, turn in list(self.turns.items()) if time.monotonic() - turn.started > limit
        }
        for turn in found.values():
            self._abandon(turn)
        return set(found)
