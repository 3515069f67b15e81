"""One cell: its processes, the people who answer, and the verdict. Runs in a process of its own, forked for it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import OperationalError

from approvals import clock
from approvals.errors import AlreadyDecided, ApprovalsError, IllegalTransition, WaitClosed
from approvals.models import Effect, Run, Wait, Worker
from approvals.services import decisions, reconciliation
from tests.crash import verdicts
from tests.crash.ablations import WHOLE
from tests.crash.cells import Cell, Outcome
from tests.crash.databases import OPERATOR, use
from tests.crash.peers import Ledger, world
from tests.crash.processes import VICTIM, Folder, fork, rescuer, undecided, victim

PATIENCE_SECONDS = 45.0
_IMPATIENCE_SECONDS = 8.0
"""Where a guard was taken away: what has gone wrong by then has, and such a run may never end."""
_LOOK_SECONDS = 0.08


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
        _insist(lambda: Worker.objects.filter(name=VICTIM).update(lease_until=clock.Now()))
    os.write(release, b"g")
    patience = PATIENCE_SECONDS if cell.ablation == WHOLE else _IMPATIENCE_SECONDS
    see_through(folder, patience, clicked_again=bool(died_at))
    zombie = None
    if os.WIFSTOPPED(status):
        sent, zombie = len(world.ledger.arrivals()), dying
        os.kill(dying, signal.SIGCONT)
        _, status = os.waitpid(dying, 0)
        woke = world.ledger.arrivals()[sent:]
        see_through(folder, patience, clicked_again=False)
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


def see_through(folder: Folder, patience_seconds: float, *, clicked_again: bool) -> None:
    """Answers what is asked, as people would, until every run is over, or for so long.

    No crash should lead to a case other than doubt: where there is one, nothing that comes after it matters.
    """
    ends = time.monotonic() + patience_seconds
    if clicked_again and folder.clicked.exists():
        _insist(lambda: _click_again(*folder.clicked.read_text().split()))
    odd = Wait.objects.filter(kind="reconciliation", status="open").exclude(name="in doubt")
    while time.monotonic() < ends and Run.objects.filter(finished_at=None).exists() and not odd.exists():
        if not _answer():
            threading.Event().wait(_LOOK_SECONDS)


def _insist(do: Callable[[], Any]) -> None:
    """A row may be held by a zombie for a while."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends:
        with suppress(OperationalError):
            do()
            return


def _click_again(wait: str, name: str, digest: str) -> None:
    """The page did not answer: the same person does the same again, and is told the truth."""
    with suppress(AlreadyDecided, WaitClosed):
        decisions.decide(UUID(wait), actor=_user(name), outcome="approved", digest=digest)


def _user(name: str) -> Any:
    return User.objects.get(username=name)


def _answer() -> bool:
    """Somebody does something; False if there is nothing to do now."""
    with suppress(ApprovalsError, OperationalError):  # the world has moved on, or a row is held: look again
        if (question := undecided()) is not None:
            asked, name = question
            decisions.decide(asked.pk, actor=_user(name), outcome="approved", digest=asked.digest)
            return True
        if (
            case := Wait.objects.filter(status="open", kind="reconciliation", name="in doubt").first()
        ) is not None:
            return _settle(case)
    return False


def _settle(case: Wait) -> bool:
    """The operator looks for himself, and says what is so."""
    effect = Effect.objects.get(pk=json.loads(case.data)["effect"])
    there = world.ledger.has(effect.key, landed=True)
    try:
        reconciliation.resolve(
            case.pk,
            actor=_user(OPERATOR),
            resolution="confirm" if there else "disprove",
            note="looked at the peer's own list",
            external_id=f"peer:{effect.key}" if there else None,
        )
    except IllegalTransition:  # too early to say that it did not happen
        return False
    return True
