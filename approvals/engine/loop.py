"""A worker: claims runnable runs, moves each in a thread, keeps its lease, sweeps."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections, connection, connections

from approvals import outbox
from approvals.engine import sweeper
from approvals.engine.leases import Lease, SweeperLock, lease_seconds
from approvals.engine.turn import Turn
from approvals.errors import Crashed, Leave, UnknownVersion
from approvals.limits import limits
from approvals.models import Run
from approvals.states import RunStatus
from approvals.transitions import claim, locked, runs
from approvals.workflows import registry

log = logging.getLogger(__name__)

SWEEP_SECONDS = 0.4
_POLL_SECONDS = 1.0


class Worker:
    """Moves runs until it is stopped. Threads of one process; its lease and fences keep it honest."""

    def __init__(self, threads: int = 4, queue: str = "default", name: str | None = None) -> None:
        self.threads, self.queue_name, self.name = threads, queue, name or ""
        self.known = registry.known()
        self.lease: Lease | None = None
        self.turns: dict[UUID, Turn] = {}
        self._claimed: dict[UUID, int] = {}
        self._suspects: set[UUID] = set()
        self._work: SimpleQueue[Run | None] = SimpleQueue()
        self._wake = threading.Event()
        self._idle = threading.Semaphore(0)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        outbox.listen(self._wake)

    # --- threads ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts its threads and returns."""
        self.lease = Lease(name=self.name, queue=self.queue_name, known=self.known)
        loops: list[tuple[str, Callable[[], None]]] = [
            ("claims", self._claims),
            ("heartbeat", self._heartbeat),
            ("sweeper", self._sweeps),
        ]
        if connection.vendor == "postgresql":
            loops.append(("listen", self._listen))
        loops += [(f"turn-{n}", self._turns) for n in range(self.threads)]
        for name, loop in loops:
            thread = threading.Thread(target=self._guarded, args=(loop,), name=f"worker-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, timeout_seconds: float = 10) -> None:
        """Gives its runs back at their next boundary, and ends. What does not end in time is taken by others."""
        self._stopping.set()
        for turn in list(self.turns.values()):
            turn.stop_asked = True
        self._wake.set()
        for _ in range(self.threads):
            self._work.put(None)
        ends = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.name.startswith("worker-turn"):
                thread.join(max(0.0, ends - time.monotonic()))
        if self.lease is not None:
            self.lease.release()

    def _lease(self) -> Lease:
        if self.lease is None:
            raise RuntimeError("This worker was not started")
        return self.lease

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    def idle(self) -> bool:
        """Whether it holds nothing and found nothing at its last look."""
        return not self._claimed

    def _guarded(self, loop: Callable[[], None]) -> None:
        """A loop that the database interrupts starts again; the others of this worker go on."""
        while not self.stopping:
            try:
                loop()
            except (OperationalError, InterfaceError) as error:
                log.warning(
                    "%s: the database is away, trying again: %s", threading.current_thread().name, error
                )
                self._stopping.wait(0.5)
            except Exception:
                log.exception("%s failed, starting again", threading.current_thread().name)
                self._stopping.wait(0.5)
            finally:
                connections.close_all()

    def _claims(self) -> None:
        free = 0
        while not self.stopping:
            while self._idle.acquire(blocking=free == 0, timeout=_POLL_SECONDS if free == 0 else None):
                free += 1
            if not free or self.stopping:
                continue
            self._wake.clear()
            claimed = self._claim(free)
            free -= len(claimed)
            for run in claimed:
                self._work.put(run)
            if not claimed:
                self._wake.wait(_POLL_SECONDS)

    def _claim(self, limit: int) -> list[Run]:
        claimed = claim(self._lease().worker, self.known, limit)
        self._claimed.update((run.pk, run.fence) for run in claimed)
        return claimed

    def _turns(self) -> None:
        while not self.stopping:
            self._idle.release()
            self._wake.set()
            run = self._work.get()
            if run is not None:
                self.take(run)
                close_old_connections()

    def _heartbeat(self) -> None:
        """Renews the lease, commits what was buffered too long, and looks after its own turns."""
        every = min(limits().buffer_seconds / 2, lease_seconds() / 3)
        next_renewal = 0.0
        while not self._stopping.wait(every):
            for turn in list(self.turns.values()):
                try:
                    turn.flush_due()
                except Leave as lost:
                    turn.stop_asked = True
                    log.warning("run %s: %s", turn.run_id, type(lost).__name__)
            if time.monotonic() >= next_renewal:
                next_renewal = time.monotonic() + lease_seconds() / 3
                self._renew()
            self._look_after_turns()

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
                    self._give_up(run_id, fence, "its turn ran past the limit")
            elif self._claimed.get(run_id) != fence:
                orphans.add(run_id)
                if run_id in self._suspects:  # seen twice: not just being claimed
                    self._give_up(run_id, fence, "its turn is gone though its worker lives")
        self._suspects = orphans

    def _sweeps(self) -> None:
        lock = SweeperLock()
        try:
            while not self._stopping.wait(SWEEP_SECONDS):
                with lock as mine:
                    if mine:
                        sweeper.sweep()
        finally:
            lock.close()

    def _listen(self) -> None:
        """LISTEN carries hints where PostgreSQL is there; a lost one costs a poll."""
        own = connections.create_connection("default")
        try:
            with own.cursor() as cursor:
                cursor.execute(f"LISTEN {outbox.CHANNEL}")
            while not self.stopping:
                for _ in own.connection.notifies(timeout=1.0, stop_after=1):
                    self._wake.set()
        finally:
            own.close()

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
            log.warning("run %s: the turn died: %s: %s", run.pk, type(error).__name__, error)
            self._give_up(run.pk, fence, f"the turn died: {type(error).__name__}: {error}"[:500])
        finally:
            self.turns.pop(run.pk, None)
            if self._claimed.get(run.pk) == fence:
                self._claimed.pop(run.pk)

    def _give_up(self, run_id: UUID, fence: int, why: str) -> None:
        """The run goes to whoever claims it next; if even that fails, the end of the lease says so."""
        try:
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()
            with locked(run_id) as tx:
                if tx.run.status == RunStatus.RUNNING and tx.run.fence == fence:
                    runs.lose_lease(tx, why=why)
        except Exception as error:
            log.warning("run %s could not be given up, the sweeper will take it: %s", run_id, error)

    # --- without threads --------------------------------------------------------------------------

    def run_until_idle(self) -> int:
        """Everything runnable, in this thread, until nothing is; how many turns that took.

        A `Crashed` from a fault point leaves everything as SIGKILL would: the row stays, the locks go.
        """
        self.lease = Lease(name=self.name, queue=self.queue_name, known=self.known)
        turns = 0
        try:
            while True:
                moved = sweeper.sweep()
                claimed = self._claim(1)
                for run in claimed:
                    self.take(run)
                turns += len(claimed)
                if not claimed and not moved:
                    break
        except Crashed:
            self._lease().drop_locks()
            raise
        self._lease().release()
        return turns


def default_threads() -> int:
    """WORKER_THREADS."""
    return int(getattr(settings, "APPROVALS_WORKER_THREADS", 4))
