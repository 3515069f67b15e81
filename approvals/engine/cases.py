"""How a turn ends otherwise than by its function's return: cases for an operator, and the database's trouble."""

from __future__ import annotations

import json
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from approvals.errors import Leave
from approvals.models import Wait
from approvals.states import RunStatus, WaitKind
from approvals.transitions import Transaction, runs

_OURS = str(Path(__file__).parents[1])


def is_interrupt(error: BaseException) -> bool:
    """Somebody at the terminal: Python tells only the main thread, and no worker moves runs there."""
    return isinstance(error, KeyboardInterrupt) and current_thread() is main_thread()


class EndOfJournal(Leave):
    """A replay reached what is not recorded yet."""


class Diverged(Leave):
    """A replay that performs nothing found a difference."""

    def __init__(self, why: str, data: dict[str, Any]) -> None:
        super().__init__(why)
        self.why, self.data = why, data


class Interrupted(Leave):
    """The database's trouble ended this turn; the run is given up and tried again."""


def open_case(tx: Transaction, why: str, position: int, data: dict[str, Any]) -> Wait:
    """Opens a reconciliation and stops the run at it."""
    ordinal = Wait.objects.filter(run=tx.run, position=position, kind=WaitKind.RECONCILIATION).count()
    case = Wait(
        position=position,
        kind=WaitKind.RECONCILIATION,
        ordinal=ordinal,
        name=why,
        opened_at=tx.now,
        data=json.dumps(data, default=str),
    )
    (runs.stop if tx.run.status == RunStatus.RUNNING else runs.strand)(tx, case)
    return case


def where_of(error: BaseException) -> str:
    """File and line at which workflow code raised: the innermost that is not the engine's own."""
    found, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not found or not code.co_filename.startswith(_OURS):
            found = f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return found
