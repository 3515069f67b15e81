"""One cell: its processes, the people who answer, and the verdict. Runs in a process of its own, forked for it."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from django.db import OperationalError

from approvals import clock
from approvals.errors import ApprovalsError
from approvals.models import Entry, Run, Wait, Worker
from tests.crash import ablations, passing, people, verdicts
from tests.crash.cells import Cell, Outcome
from tests.crash.databases import end_transactions, use
from tests.crash.peers import Ledger, world
from tests.crash.processes import VICTIM, Folder, fork, rescuer, victim

PATIENCE_SECONDS = 120.0
"""In which nothing at all happens, before a run is believed to stand still."""
_LOOK_SECONDS = 0.15


def play(cell: Cell, path: Path, database: str) -> Outcome:
    """Kills the victim where the cell says, sees everything through to its end, and judges."""
    began, folder = time.monotonic(), Folder(path)
    use(database, path)
    world.ledger = Ledger(folder.ledger, late=cell.lands == "late", lost=cell.answer == "lost")
    world.ledger.create()
    (ready, told_ready), (told, release) = os.pipe(), os.pipe()
    other = fork(lambda: rescuer(cell, told_ready, told), folder.log)
    os.close(told_ready)
    if os.read(ready, 1) != b"r":
        return Outcome(str(cell), "broken", "the second worker did not start")
    dying = fork(lambda: victim(cell, folder), folder.log)
    _, status = os.waitpid(dying, os.WUNTRACED)
    died_at = folder.died_at.read_text() if folder.died_at.exists() else ""
    if not died_at and status:
        return Outcome(str(cell), "broken", f"the victim ended by itself: {status}")
    passed = tuple(folder.passed.read_text().splitlines()) if folder.passed.exists() else ()
    died = time.monotonic()
    if os.WIFSTOPPED(status):  # it sleeps for longer than its lease
        end_transactions(VICTIM)
        Worker.objects.filter(name=VICTIM).update(lease_until=clock.Now())
    os.write(release, b"g")
    see_through(cell, folder, clicked_again=bool(died_at))
    zombie = None
    if os.WIFSTOPPED(status):
        sent, zombie = len(world.ledger.arrivals()), dying
        os.kill(dying, signal.SIGCONT)
        _, status = os.waitpid(dying, 0)
        woke = world.ledger.arrivals()[sent:]
        see_through(cell, folder, clicked_again=False)
    else:
        woke = []
    why, verdict = verdicts.judge(cell, died_at, woke)
    if zombie is not None and status:
        verdict, why = "broken", f"the zombie ended by itself: {folder.log.read_text()[-3000:]}"
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    seconds = round(time.monotonic() - began, 3)
    after = round(time.monotonic() - died, 3) if died_at else None
    return Outcome(str(cell), verdict, why, died_at, seconds, after, passed)


def see_through(cell: Cell, folder: Folder, *, clicked_again: bool) -> None:
    """Answers what is asked, as people would, until every run is over.

    No crash should lead to a case other than doubt: where there is one, nothing that comes after it matters.
    Without a guard a run may never end: there it is enough that the harm is done.
    """
    seen, since = -1, time.monotonic()
    if clicked_again and folder.clicked.exists():
        people.click_again(*folder.clicked.read_text().split())
    odd = Wait.objects.filter(kind="reconciliation", status="open").exclude(name="in doubt")
    while Run.objects.filter(finished_at=None).exists() and not odd.exists():
        entries = Entry.objects.count()
        if entries != seen:
            seen, since = entries, time.monotonic()
        elif time.monotonic() - since > PATIENCE_SECONDS:
            return
        if ablations.harm_in(cell.ablation, "; ".join(verdicts.problems(cell))):
            return
        if not _answer() and not _time_passes():
            threading.Event().wait(_LOOK_SECONDS)


def _time_passes() -> bool:
    """Nobody has anything to do: what comes next comes at once."""
    return passing.nothing_moves() and passing.on_to(world.ledger.time, passing.next_due())


def _answer() -> bool:
    """Somebody does something; False if there is nothing to do now."""
    with suppress(ApprovalsError, OperationalError):  # the world has moved on, or a row is held: look again
        if (question := people.undecided()) is not None:
            asked, name = question
            people.approve(asked.pk, name, asked.digest)
            return True
        return people.settle()
    return False
