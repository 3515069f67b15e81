"""What one worker holds: its lease, and the runs it moves; the heartbeat keeps both."""

from __future__ import annotations

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
from approvals.models import Run
from approvals.states import RunStatus
from approvals.transitions import locked, runs
from approvals.workflows import registry

log = logging.getLogger(__name__)

ENDS = object()
"""What the loop of a thread returns that is needed no more."""


class Holding:
    """What `Worker` is made of below its threads: it holds runs, and gives up those it cannot move."""

    def __init__(self, queue: str, name: str) -> None:
        self.queue_name, self.name = queue, name
        self.known = registry.known()
        self.lease: Lease | None = None
        self.turns: dict[UUID, Turn] = {}
        self._claimed: dict[UUID, int] = {}
        self._suspects: set[UUID] = set()
        self._replaced: set[tuple[UUID, int]] = set()
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
        try:
            workflow = registry.resolve(run.workflow, run.version)
        except UnknownVersion as error:
            self._give_up(run.pk, run.fence, str(error))
            self._claimed.pop(run.pk, None)
            return
        fence = run.fence
        try:
            turn = Turn(run, workflow)
            self.turns[run.pk] = turn
            turn.stop_asked = self.stopping
            turn.execute()
        except Crashed:
            raise
        except BaseException as error:
            why = f"the turn died: {type(error).__name__}: {words_of(error)}"[:500]
            log.warning("run %s: %s", run.pk, why)
            if not connection.in_atomic_block:
                connection.close()  # whatever ended the turn may lie in its session, and would end the next one too
            self._give_up(run.pk, fence, why)
            if is_interrupt(error):
                raise
        finally:
            with self._hands:
                if (mine := self.turns.get(run.pk)) is not None and mine.held.fence == fence:
                    del self.turns[run.pk]  # not that of a later turn, if this one had been given up
            if self._claimed.get(run.pk) == fence:
                self._claimed.pop(run.pk)

    def was_replaced(self, run: Run) -> bool:
        """Whether this turn lasted so long that another thread has taken the place of its own."""
        with self._hands:
            is_so = (run.pk, run.fence) in self._replaced
            self._replaced.discard((run.pk, run.fence))
            return is_so

    def replace(self, turn: Turn) -> None:
        """Told that the thread of this turn does not come back; whoever has threads starts another."""

    def _abandon(self, turn: Turn) -> None:
        """A thread cannot be ended from outside. Its place is not lost: a few such runs would stop this worker."""
        turn.stop_asked = True  # should it ever come back
        key = (turn.run_id, turn.held.fence)
        with self._hands:
            if self.turns.get(turn.run_id) is not turn or key in self._replaced:
                return
            self._replaced.add(key)
        self.replace(turn)

    def _give_up(self, run_id: UUID, fence: int, why: str) -> None:
        """The run goes to whoever claims it next; if even that fails, the end of the lease says so."""
        try:
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()  # (of the heartbeat)
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
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                # One run whose row somebody holds for long must not cost this worker its lease.
                cursor.execute("SET lock_timeout = '500ms'")
        while True:
            self._lease().keep_session()  # first of all: others have little patience
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
        held = Run.objects.filter(status=RunStatus.RUNNING, worker=self._lease().worker.pk)
        orphans = set()
        for run_id, fence, cancel, pause in held.values_list(
            "pk", "fence", "cancel_requested_at", "pause_requested_at"
        ):
            turn = self.turns.get(run_id)
            if turn is not None and turn.held.fence == fence:
                turn.stop_asked = turn.stop_asked or self.stopping or bool(cancel or pause)
                if time.monotonic() - turn.started > limits().turn_seconds:
                    self._abandon(turn)
                    self._give_up(run_id, fence, "its turn ran past the limit")
            elif self._claimed.get(run_id) != fence:
                orphans.add(run_id)
                if run_id in self._suspects:  # seen twice: not just being claimed
                    self._give_up(run_id, fence, "its turn is gone though its worker lives")
        self._suspects = orphans
