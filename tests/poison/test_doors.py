"""By whatever door a poison comes in: refused with its name, or kept whole; and the others go on (CASES 16, 33)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from approvals import Context
from approvals.errors import ApprovalsError
from approvals.models import Entry, Run, Wait
from approvals.services import runs
from approvals.testing import clock, drive
from approvals.workflows import effects, registry
from tests.engine.make import flow
from tests.engine.workers import alone
from tests.poison import doors
from tests.poison.poisons import POISONS, Poison

CODES = frozenset({"not_serializable", "payload_too_large", "context_misuse", "limit_exceeded"})
ENDS = frozenset({"input", "output"})
"""Not within a call of the context; and an input is read in the main thread, where an interrupt is the terminal's."""
OFTEN = frozenset({"input", "request", "title"})
"""Every poison is tried at a step. At these each third one, in turn; at the others, which go by the code of one of
them, each sixth; and nothing that costs much time."""
ASK_THE_DATABASE = frozenset({"nul", "surrogate", "nul in a key", "2^200", "198 levels", "5 MB of text"})
"""What PostgreSQL could answer in another way than SQLite; tried there by one door for each column."""
COLUMNS = (
    "step", "input", "output", "request", "action", "title", "name", "name of a signal", "identifier of a receipt",
    "error of a step", "progress",
)  # fmt: skip
DOORS = COLUMNS if connection.vendor == "postgresql" else (*doors.VALUES, *doors.TEXTS)
UNNAMED = frozenset({"verdict", "bug"})
"""What the workflow's own lines raise: the case names the line."""


@pytest.fixture(autouse=True)
def _apart(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_workflows", dict(registry._workflows))
    monkeypatch.setattr(effects, "_kinds", dict(effects._kinds))
    monkeypatch.setattr(doors, "_made", {})
    monkeypatch.setattr(doors, "seen", {})


@flow
def healthy(ctx: Context, n: int) -> int:
    ctx.sleep("a while", timedelta(seconds=1))
    return ctx.step("it", lambda: n)


def _drive() -> None:
    drive()


def in_a_worker_s_thread() -> None:
    """Where no Ctrl-C of a terminal ever comes, and so none is believed."""
    thread = threading.Thread(target=alone(_drive))
    thread.start()
    thread.join()


@pytest.mark.parametrize("door", DOORS)
def test_a_poison_is_refused_by_name_or_kept_whole_and_the_others_go_on(door: str) -> None:
    started: dict[str, Any] = {}
    problems = []
    for poison in _tried(door):
        try:
            started[poison.name] = runs.start(
                doors.behind(door, poison), poison.make() if door == "input" else 1
            )
        except ApprovalsError as error:
            if error.code not in CODES or "the input of" not in str(error):
                problems.append(f"{poison.name}: {error!r}")
    others = [runs.start(healthy, n) for n in range(2)]
    for _ in range(2):
        in_a_worker_s_thread()
        clock.shift(timedelta(seconds=3))
    in_a_worker_s_thread()
    for poison in POISONS:
        if (run := started.get(poison.name)) is not None:
            problems += [
                f"{poison.name}: {told}" for told in _wrong(door, poison, Run.objects.get(pk=run.id))
            ]
    assert problems == []
    assert [runs.get(run.id).output for run in others] == [0, 1]


def _tried(door: str) -> Iterator[Poison]:
    which, each = DOORS.index(door), 3 if door in OFTEN else 6
    for number, poison in enumerate(POISONS):
        if door in ENDS and poison.name == "keyboard interrupt":
            continue
        if connection.vendor == "postgresql":
            is_tried = poison.name in ASK_THE_DATABASE and (door == "step" or not poison.costs)
        else:
            is_tried = door == "step" or (not poison.costs and (number + which) % each == 0)
        if is_tried:
            yield poison


def _wrong(door: str, poison: Poison, run: Run) -> Iterator[str]:
    if Entry.objects.filter(run=run, kind="run.lose_lease").exists():
        yield "its turn was lost"
    if run.status == "suspended" and not Wait.objects.filter(run=run, kind="reconciliation").exists():
        child = Run.objects.filter(parent_run=run.pk).first()
        if child is None or child.status != "suspended":
            yield "it waits for nobody knows what"
        return
    if run.status in ("suspended", "failed"):
        yield from _said_wrongly(door, run)
    elif run.status != "completed":
        yield run.status
    else:
        first, *_, last = doors.seen[poison.name]
        if type(first) is not type(last) or (repr(first), door) != (repr(last), door):
            yield "it came back as something else"
        if not runs.replay(run.pk).same:
            yield "its replay differs"


def _said_wrongly(door: str, run: Run) -> Iterator[str]:
    """A run that stopped or failed says of what, by a code that callers may rely on."""
    case = Wait.objects.filter(run=run, kind="reconciliation").first()
    told = json.loads(case.data if case is not None else run.error)
    if case is None and told["code"] not in ("step_failed", "failed"):
        yield f"it failed with {told}"
    if case is not None and case.name not in ("crashed", "in doubt"):
        yield f"it stopped: {case.name} {case.data[:200]}"
    named = any(name in json.dumps(told) for name in ("'it'", "the output of", "the input of", "ctx."))
    in_doubt = case is not None and case.name == "in doubt"  # of the effect at its position
    if door not in UNNAMED and not named and not in_doubt:
        yield f"it names no call: {told}"
