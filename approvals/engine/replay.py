"""Runs the code of a run against its journal, performing nothing, and says where they differ."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from approvals.engine import bodies
from approvals.engine.cases import Diverged, is_interrupt, where_of
from approvals.engine.turn import Turn
from approvals.errors import DomainError, Failed, NotFound, words_of
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
    """completed, failed, crashed, or waiting (the journal ends here)."""
    output: str | None = None
    difference: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def replay(run_id: UUID) -> Report:
    """Compares position, kind and name of every entry, request digests, and the output. No row is written."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound(run=run_id)
    turn = Turn(run, registry.resolve(run.workflow, run.version), replaying=True)
    difference: dict[str, Any] = {}
    ended, output = "waiting", None
    try:
        with bodies.guarded():
            result = turn.workflow.fn(Context(turn), turn.input())
        if turn.leaving is None:
            output = turn.finished(result)
            ended = "completed"
    except BaseException as error:
        if turn.leaving is None:
            ended, difference = _raised(run, turn, error)
    if isinstance(turn.leaving, Diverged):
        difference = {"why": turn.leaving.why, **turn.leaving.data}
    if not difference:
        difference = _end_differs(run, turn, ended, output)
    return Report(run_id, not difference, turn.position, ended, output, difference, tuple(turn.warnings))


def _raised(run: Run, turn: Turn, error: BaseException) -> tuple[str, dict[str, Any]]:
    """How the run ends with this error, and whether that is another end than the recorded one."""
    if is_interrupt(error):
        raise error
    if not isinstance(error, DomainError | Failed):
        told = {"type": type(error).__name__, "message": words_of(error), "where": where_of(error)}
        return "crashed", {} if _by_operator(run) else {"why": "crashed", **told}
    with suppress(Diverged):
        seen = turn.failed(error)
        if run.status == RunStatus.FAILED and not _by_operator(run) and json.loads(run.error) != seen:
            return "failed", {"why": "another error", "recorded": run.error, "seen": seen}
    return "failed", {}


def _by_operator(run: Run) -> bool:
    """Whether somebody ended the run where it stood, or has it undone there, whatever its code would have done next."""
    if run.error:
        return bool(json.loads(run.error)["code"] == "operator")
    return run.status == RunStatus.CANCELLED or run.unwinding == Run.Unwinding.BEGUN


def _end_differs(run: Run, turn: Turn, ended: str, output: str | None) -> dict[str, Any]:
    """A finished run must come to the end that is recorded; outputs are compared as values."""
    if run.status not in (RunStatus.COMPLETED, RunStatus.FAILED) or _by_operator(run):
        return {}
    codec, same = turn.workflow.output, ended == run.status
    if same and run.output is not None and output is not None and output != run.output:
        same = bool(codec.decode(output, what="the output") == codec.decode(run.output, what="the output"))
    if same:
        return {}
    return {
        "why": "another end",
        "recorded": run.output if run.status == RunStatus.COMPLETED else run.error,
        "seen": output if ended == "completed" else ended,
    }
