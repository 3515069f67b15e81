"""Stores what a peer answered. Only this process knows it, so a database that is away is waited for."""

from __future__ import annotations

import time

from django.db import Error as DatabaseError
from django.db import connection

from approvals.engine.calls import Call
from approvals.models import Effect
from approvals.models.trouble import is_trouble
from approvals.states import EffectStatus
from approvals.transitions import effects as events

PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.2


def store(call: Call, row: Effect, data: events.ReceiptData) -> None:
    """Commits a receipt. Raises what the database raised, if that lasts or if it cannot be told what landed.

    A turn that gave up here would leave its effect in doubt, and a blind peer's to a person, though nothing is.
    """
    ends = time.monotonic() + PATIENCE_SECONDS
    unheard: DatabaseError | None = None
    while True:
        try:
            with call.turn.boundary(honour=False) as tx:
                if unheard is not None:
                    _look_again(row, unheard)
                tx.position = max(tx.position, row.position)
                events.commit(tx, row, data)
            return
        except DatabaseError as error:
            if not is_trouble(error) or not _is_unrecorded(row, ends):
                raise
            unheard = error


def _look_again(row: Effect, unheard: DatabaseError) -> None:
    """Under the lock of the run: a commit that was still on its way when one looked has landed, or never will."""
    row.refresh_from_db()
    if row.status != EffectStatus.DISPATCHED:
        raise unheard


def _is_unrecorded(row: Effect, ends: float) -> bool:
    """Whether the database, once it answers again, still waits for this receipt; a commit may have landed unheard.

    A request to stop is no reason to forget it. A worker that ends waits for its turns no longer than it does
    for any other (`Worker.stop`), and one that lost the run meanwhile is refused at the commit.
    """
    while time.monotonic() < ends and not connection.in_atomic_block:
        time.sleep(_LOOK_SECONDS)  # first, too: a database may read well and be unable to write
        connection.close()
        try:
            row.refresh_from_db()
        except DatabaseError:
            continue
        return row.status == EffectStatus.DISPATCHED
    return False
