"""The two processes of a cell beside its harness: the victim, and a second worker that idles until it has died."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.test import Client
from django.urls import reverse

from approvals.engine import leases, loop, sweeper
from approvals.engine.leases import Lease
from approvals.engine.loop import Worker
from approvals.models import Run
from approvals.services import runs
from tests.crash import ablations, passing, people
from tests.crash.boundaries import Boundaries, watch
from tests.crash.cells import Cell
from tests.crash.databases import REQUESTER, known_as
from tests.crash.peers import world
from tests.crash.scenes import SCENES, Trip

VICTIM = "the victim"
_browser = Client(SERVER_NAME="localhost")


class Folder:
    """What the processes of a cell tell each other in files."""

    def __init__(self, path: Path) -> None:
        self.died_at, self.passed, self.clicked = path / "died_at", path / "passed", path / "clicked"
        self.ledger, self.log, self.outcome = path / "ledger.sqlite3", path / "log", path / "outcome.json"


def load_pages() -> None:
    """Once for all cells, which are forked from this process; opens no connection."""
    _browser.handler.load_middleware()
    reverse("inbox")


def fork(work: Callable[[], None], log: Path) -> int:
    """Starts a process whose words go to a file."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        told = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(told, 2)
        work()
        code = 0
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


# --- the victim ------------------------------------------------------------------------------------


def victim(cell: Cell, folder: Folder) -> None:
    """Plays worker, reviewers' web process, sweeper and sender of the outbox in turn, in one thread without timers.

    So boundary N is the same each time. Ends when everything is over.
    """
    how = signal.SIGKILL if cell.death == "kill" else signal.SIGSTOP

    def die(label: str) -> None:
        folder.died_at.write_text(label)
        os.kill(os.getpid(), how)

    known_as(VICTIM)
    setattr(loop, "_SUSPECT_SECONDS", math.inf)  # noqa: B010  # a look of its own, by the time that has passed
    ablations.apply(cell.ablation)
    world.pid = os.getpid()
    world.ledger.time.followed()
    boundaries = Boundaries(cell.role, cell.at, die)
    watch(boundaries)
    _name_the_outbox(boundaries)
    worker = Worker(threads=1)
    worker.lease = Lease(name=VICTIM, known=worker.known)
    _play(cell, folder, worker, boundaries)
    worker.lease.release()
    folder.passed.write_text("\n".join(boundaries.passed))


def _name_the_outbox(boundaries: Boundaries) -> None:
    send = sweeper._outbox

    def outbox() -> int:
        with boundaries.within("outbox"):
            return send()

    sweeper._outbox = outbox


def _play(cell: Cell, folder: Folder, worker: Worker, boundaries: Boundaries) -> None:
    scene = SCENES[cell.scene]
    trip = Trip(peer=cell.peer, every=cell.steps == "every", draft=ablations.draft_label(cell.ablation))
    runs.start(scene.flow, trip, requester=User.objects.get(username=REQUESTER))
    while True:
        try:
            if not Run.objects.filter(finished_at=None).exists() or not _round(folder, worker, boundaries):
                return
        except DatabaseError:  # a zombie's session was ended while it slept
            if not folder.died_at.exists():
                raise
            connection.close()


def _round(folder: Folder, worker: Worker, boundaries: Boundaries) -> bool:
    """Each role once; False if nothing can go on."""
    with boundaries.within("worker"):
        claimed = worker._claim(1)
        for run in claimed:
            worker.take(run)
    moved = len(claimed) or _click(folder, boundaries) or people.settle()
    with boundaries.within("sweeper"):
        moved += sweeper.sweep()
    return bool(moved) or passing.on_to(world.ledger.time, passing.next_due())


def _click(folder: Folder, boundaries: Boundaries) -> int:
    """One reviewer approves on the page, through the real view."""
    if (question := people.undecided()) is None:
        return 0
    asked, name = question
    _browser.force_login(User.objects.get(username=name))
    folder.clicked.write_text(f"{asked.pk} {name} {asked.digest}")
    form = {"outcome": "approved", "digest": asked.digest, "revision": asked.revision, "comment": "seen"}
    with boundaries.within("web"):
        answer: Any = _browser.post(reverse("approval", args=[asked.pk]), form)
    if answer.status_code != 303 and not folder.died_at.exists():
        raise RuntimeError(
            f"the decision was answered by {answer.status_code}: {answer.content.decode()[:2000]}"
        )
    return 1


# --- the rescuer -----------------------------------------------------------------------------------


def rescuer(cell: Cell, ready: int, release: int) -> None:
    """A real worker with all its threads. Until it is released it beats and looks for the dead, and takes nothing.

    It would move the runs of a victim that still lives. That the victim is dead it has to notice by itself.
    """
    ablations.apply(cell.ablation)
    world.pid = os.getpid()
    world.ledger.time.followed()
    released = threading.Event()
    claim, sweep = Worker._claim, sweeper.sweep

    def _claim(worker: Worker, limit: int) -> list[Run]:
        return claim(worker, limit) if released.is_set() else []

    def _sweep(*, patience_seconds: float = 0) -> int:
        if released.is_set():
            return sweep(patience_seconds=patience_seconds)
        return sweeper._take_from_the_dead(patience_seconds) if cell.death == "kill" else 0

    setattr(leases, "_SETTLED_SECONDS", 0)  # noqa: B010  # its sweeper has long been connected
    setattr(Worker, "_claim", _claim)  # noqa: B010
    setattr(sweeper, "sweep", _sweep)  # noqa: B010
    worker = Worker(threads=2)
    worker.start()
    os.write(ready, b"r")
    os.read(release, 1)
    released.set()
    worker._wake.set()
    signal.pause()
