"""Runs the code of a run against its journal, performing nothing, and says where they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from approvals.engine.turn import Diverged, EndOfJournal, Turn
from approvals.errors import DomainError, Failed, NotFound
from approvals.models import Run
from approvals.states import RunStatus
from approvals.workflows import registry
from approvals.workflows.context import Context


@dataclass(frozen=True)
class Report:
    """What a replay came to. `difference` is empty where code and journal agree."""

    run_id: UUID
    same: bool
    positions: int
    ended: str
    """completed, failed, or waiting (the journal ends here)."""
    output: str | None = None
    difference: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def replay(run_id: UUID) -> Report:
    """Compares position, kind and name of every entry, request digests, and the output. No row is written."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound(run=run_id)
    turn = Turn(run, registry.resolve(run.workflow, run.version), replaying=True)
    ended, difference, output = "waiting", {}, None
    try:
        result = turn.workflow.fn(Context(turn), turn.input())
        if turn.leaving is None:
            output = turn.finished(result)
            ended = "completed"
    except (DomainError, Failed) as error:
        ended, difference = "failed", _error_differs(run, error)
    except (EndOfJournal, Diverged):
        pass
    except Exception as error:
        if turn.leaving is None:
            difference = {"why": "crashed", "type": type(error).__name__, "message": str(error)}
    if isinstance(turn.leaving, Diverged):
        difference = {"why": turn.leaving.why, **turn.leaving.data}
    if not difference:
        difference = _end_differs(run, ended, output)
    return Report(run_id, not difference, turn.position, ended, output, difference, tuple(turn.warnings))


def _error_differs(run: Run, error: Exception) -> dict[str, Any]:
    if run.status == RunStatus.FAILED and type(error).__name__ not in run.error:
        return {"why": "another error", "recorded": run.error, "seen": f"{type(error).__name__}: {error}"}
    return {}


def _end_differs(run: Run, ended: str, output: str | None) -> dict[str, Any]:
    if run.status == RunStatus.COMPLETED and (ended != "completed" or output != run.output):
        return {
            "why": "another end",
            "recorded": run.output,
            "seen": output if ended == "completed" else ended,
        }
    return {}
