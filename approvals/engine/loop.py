"""A worker: claims runnable runs, moves each in a thread, keeps its lease, sweeps."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, connections
from django.db.models import Count, Q

from approvals import clock, outbox
from approvals.engine import leases, probes, sweeper
from approvals.engine.holding import ENDS, Holding
from approvals.engine.housekeeping import Housekeeper
from approvals.engine.leases import Lease, SweeperLock
from approvals.engine.turn import Turn
from approvals.errors import Crashed
from approvals.models import Run, statements
from approvals.models import Worker as WorkerRow
from approvals.states import RunStatus
from approvals.transitions import SUSPECT_TURNS, claim

log = logging.getLogger(__name__)

SWEEP_SECONDS = 0.4
_POLL_SECONDS = 1.0
_AGAIN_SECONDS = (
    0.15  # after a hint: others in its shadow gave no job of their own (outbox.WAKE_MILLISECONDS)
)
_DRY_POLL_SECONDS = 0.1
_SUSPECT_SECONDS = 10.0
_ROOM_SECONDS = 30.0
"""So long at most a worker that is never empty by itself takes nothing new for the sake of a suspect."""
_ALONE_SECONDS = 60.0
"""So long a suspect has its worker for itself: what has not brought it down by then may well last for hours."""
_LOCK_MILLISECONDS = 2000
_NOTE_SWEEP_SECONDS = 5.0
_RESTART_SECONDS = 0.1


class Worker(Holding):
    """Moves runs until it is stopped. Threads of one process; its lease and fences keep it honest."""

    def __init__(self, threads: int = 4, queue: str = "default", name: str | None = None) -> None:
        super().__init__(queue, name or "")
        self.threads = threads
        self._work: SimpleQueue[Run | None] = SimpleQueue()
        self._wake = threading.Event()
        self._idle = threading.Semaphore(0)
        self._free = 0
        self._alone_until = self._room_since = 0.0
        self._looked_for_suspects = time.monotonic()
        self._noted_sweep = float("-inf")
        self._threads: list[threading.Thread] = []
        outbox.listen(self._wake)

    # --- threads ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts its threads and returns."""
        self.lease = Lease(name=self.name, queue=self.queue_name, known=self.known)
        loops: list[tuple[str, Callable[[], object]]] = [
            ("claims", self._claims),
            ("heartbeat", self._heartbeat),
            ("sweeper", self._sweeps),
            ("probes", self._probes),
        ]
        if connection.vendor == "postgresql":
            loops.append(("listen", self._listen))
        loops += [(f"turn-{n}", self._turns) for n in range(self.threads)]
        for name, loop in loops:
            self._start(name, loop)

    def _start(self, name: str, loop: Callable[[], object]) -> None:
        thread = threading.Thread(target=self._guarded, args=(loop,), name=f"worker-{name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def replace(self, turn: Turn) -> None:
        """Starts a thread in place of one that does not come back; should it ever, it ends."""
        self._start(f"turn-instead-of-{turn.run_id}", self._turns)

    def stop(self, timeout_seconds: float = 10) -> None:
        """Gives its runs back at their next boundary, and ends. What does not end in time is taken by others."""
        self._stopping.set()
        held = list(self.turns.values())
        for turn in held:
            turn.stop_asked = True
        log.info("worker ends; runs in hand, to stop at their next boundary: %s", len(held))
        self._wake.set()
        ends = time.monotonic() + timeout_seconds
        self._join("worker-claims", ends)
        for _ in range(self.threads):
            self._work.put(None)
        self._join("worker-turn", ends)
        self._ended.set()
        for name in ("worker-heartbeat", "worker-sweeper", "worker-probes"):
            self._join(name, time.monotonic() + 1)
        if self.lease is not None:
            self.lease.release()

    def _join(self, name: str, ends: float) -> None:
        for thread in list(self._threads):
            if thread.name.startswith(name):
                thread.join(max(0.0, ends - time.monotonic()))

    def wait_until_dry(
        self, stop: threading.Event, tell: Callable[[int], object] = lambda left: None
    ) -> None:
        """After `start`: returns when nothing is runnable any more, or at `stop`.

        Runnable: what it holds, what is pending and known here, and what a sweep finds. A timer that is due
        later, and what another worker holds, are not. `tell` hears how many runs are left.
        """
        lock = SweeperLock()
        try:
            while not stop.wait(_DRY_POLL_SECONDS):
                with lock as mine:  # nothing else may make runs runnable between the two looks
                    left = self._left()
                    tell(left)
                    moved = mine and sweeper.sweep(patience_seconds=lock.patience_seconds)
                    dry = mine and not left and not moved and not leases.is_anyone_suspected()
                if dry and not probes.work_off():
                    return
        finally:
            lock.close()

    def _left(self) -> int:
        """Runs that it holds, and those that it could claim."""
        rows = Run.objects.filter(
            Q(status=RunStatus.RUNNING, worker=self._lease().worker.pk)
            | Q(status=RunStatus.PENDING, ready_at__lte=clock.now())
        )
        counted = rows.values_list("workflow", "version").annotate(n=Count("pk"))
        return sum(n for name, version, n in counted if (name, version) in self.known)

    def _guarded(self, loop: Callable[[], object]) -> None:
        """A loop that the database interrupts starts again; the others of this worker go on. One that says so ends."""
        pause = _RESTART_SECONDS
        while not self.stopping:
            began = time.monotonic()
            try:
                if loop() is ENDS:
                    return
            except (OperationalError, InterfaceError) as error:
                log.warning(
                    "%s: the database is away, trying again: %s", threading.current_thread().name, error
                )
            except Exception:
                log.exception("%s failed, starting again", threading.current_thread().name)
            finally:
                connections.close_all()
            pause = _RESTART_SECONDS if time.monotonic() - began > 5 else min(2 * pause, 1.0)
            self._stopping.wait(pause)

    def _claims(self) -> None:
        # How many threads are free outlives this loop: the database may interrupt it.
        woken = False
        while not self.stopping:
            free = self._free
            while self._idle.acquire(blocking=free == 0, timeout=_POLL_SECONDS if free == 0 else None):
                free = self._free = self._free + 1
            if not free or self.stopping:
                continue
            self._wake.clear()
            claimed = self._claim(free)
            self._free -= len(claimed)
            for run in claimed:
                self._work.put(run)
            if not claimed:
                woken = self._wake.wait(_AGAIN_SECONDS if woken else _POLL_SECONDS)

    def _claim(self, limit: int) -> list[Run]:
        """Runs to move. One that was lost with its worker again and again is moved alone (CASES 16).

        So it takes no others with it, and those that merely shared a worker with it are cleared.
        """
        is_empty = limit >= self.threads
        if not is_empty and time.monotonic() < self._alone_until:
            return []
        worker, claimed = self._lease().worker, []
        self._alone_until = 0.0
        if not self._suspects_have_waited():
            claimed = claim(worker, self.known, limit)
        if not claimed and is_empty:
            claimed = claim(worker, self.known, 1, suspects=True)
            self._looked_for_suspects, self._room_since = time.monotonic(), 0.0
            self._alone_until = time.monotonic() + _ALONE_SECONDS if claimed else 0.0
        self._claimed |= {(run.pk, run.fence) for run in claimed}
        return claimed

    def _suspects_have_waited(self) -> bool:
        """Whether a worker that is never empty by itself should become so for their sake."""
        now = time.monotonic()
        if now - self._looked_for_suspects < _SUSPECT_SECONDS:
            return False
        there = Run.objects.filter(
            status=RunStatus.PENDING,
            turns_lost__gte=SUSPECT_TURNS,
            ready_at__lte=clock.now() - timedelta(seconds=_SUSPECT_SECONDS),
        ).exists()
        self._room_since = self._room_since or now
        if there and now - self._room_since < _ROOM_SECONDS:
            return True
        self._looked_for_suspects, self._room_since = now, 0.0
        return False

    def _turns(self) -> object:
        while not self.stopping:
            self._idle.release()
            self._wake.set()
            run = self._work.get()
            if run is not None:
                statements.freshen()  # the database may have been away while this thread was idle
                self.take(run)
                if connection.errors_occurred:
                    connection.close()
                if self.was_replaced(run):
                    return ENDS
        return None

    def _sweeps(self) -> None:
        lock, housekeeper = SweeperLock(), Housekeeper()
        try:
            while not self._stopping.wait(SWEEP_SECONDS):
                with lock as mine:
                    if mine:
                        # A worker that is stopped in the middle of a transaction keeps its run, not all of them.
                        statements.be_impatient(_LOCK_MILLISECONDS)
                        sweeper.sweep(patience_seconds=lock.patience_seconds)
                        self._note_sweep()
                        housekeeper.look()
        finally:
            lock.close()

    def _note_sweep(self) -> None:
        """For those who ask how old the last sweep is; not each time, so that an idle system writes little."""
        if time.monotonic() - self._noted_sweep >= _NOTE_SWEEP_SECONDS:
            WorkerRow.objects.filter(pk=self._lease().worker.pk).update(swept_at=clock.Now())
            self._noted_sweep = time.monotonic()

    def _probes(self) -> None:
        """Look-ups run author code: whatever they do, nothing else of this worker waits for them."""
        while not self._stopping.wait(_POLL_SECONDS):
            probes.work_off()

    def _listen(self) -> None:
        """LISTEN carries hints where PostgreSQL is there; a lost one costs a poll."""
        own = connections.create_connection("default")
        try:
            with own.cursor() as cursor:
                cursor.execute(f"LISTEN {outbox.CHANNEL}")
            while not self.stopping:
                with own.wrap_database_errors:
                    told = list(own.connection.notifies(timeout=1.0, stop_after=1))
                if told:
                    self._wake.set()
        finally:
            own.close()

    # --- without threads --------------------------------------------------------------------------

    def run_until_idle(self) -> int:
        """Everything runnable, in this thread, until nothing is; how many turns that took.

        A `Crashed` from a fault point leaves everything as SIGKILL would: the row stays, the locks go.
        """
        self.lease = Lease(name=self.name, queue=self.queue_name, known=self.known)
        turns = 0
        try:
            while True:
                moved = sweeper.sweep() + probes.work_off()
                claimed = self._claim(1)
                for run in claimed:
                    self.take(run)
                turns += len(claimed)
                if not claimed and not moved:
                    break
        except Crashed:
            self._lease().die()
            raise
        self._lease().release()
        return turns


def default_threads() -> int:
    """WORKER_THREADS."""
    return int(getattr(settings, "APPROVALS_WORKER_THREADS", 4))
