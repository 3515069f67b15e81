"""Steps that spoil the worker process they run in; its other runs go on and end (CASES 16)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from approvals.models import Entry, Run
from approvals.services import runs
from approvals.testing import assert_invariants, wait_for
from tests.engine.make import case
from tests.poison import spoilers

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.sigkill]

HERE = {"WORKFLOW_MODULES": "tests.poison.spoilers", "DJANGO_SETTINGS_MODULE": "tests.poison.settings"}


def _have_stopped(*of: Any) -> bool:
    return Run.objects.filter(pk__in=[run.id for run in of], status="suspended").count() == len(of)


def _have_ended(of: list[Any]) -> bool:
    return Run.objects.filter(pk__in=[run.id for run in of], finished_at=None).count() == 0


def test_what_spoils_a_process_stops_for_a_person_and_everything_beside_it_ends(
    worker: Callable[..., Any], tmp_path: Path
) -> None:
    flows = (spoilers.sets_session, spoilers.leaves_open, spoilers.uses_late, spoilers.forks)
    spoilt = [runs.start(flow, 1) for flow in flows]
    beside = [runs.start(spoilers.healthy, n) for n in range(6)]
    living = worker(**HERE)  # of two threads
    wait_for(lambda: _have_ended(beside) and _have_stopped(spoilt[1]))
    after = [runs.start(spoilers.healthy, n) for n in (6, 7)]
    wait_for(lambda: _have_ended([*after, spoilt[0], *spoilt[2:]]))
    assert living.poll() is None
    assert "left a transaction" in case(spoilt[1]).data
    assert runs.get(spoilt[0].id).output == 1
    assert runs.get(spoilt[2].id).output == "context_misuse,context_misuse"
    assert runs.get(spoilt[3].id).output == "1,1,7", "no copy of a process is believed"
    assert not Entry.objects.filter(kind="run.lose_lease").exists()

    exits = runs.start(spoilers.exits, 1)
    more = [runs.start(spoilers.healthy, n) for n in (8, 9)]
    assert living.wait(60) == 3
    while not _have_stopped(exits):
        process = worker(**HERE)
        wait_for(lambda: process.poll() is not None or _have_stopped(exits))  # noqa: B023
    wait_for(lambda: _have_ended(more))
    assert case(exits).name == "no progress"
    assert Entry.objects.filter(run=exits.id, kind="run.lose_lease").count() == 3
    noted = [line.split()[0] for line in (tmp_path / "lines").read_text().splitlines()]
    assert sorted(set(noted)) == [str(n) for n in range(10)]
    assert_invariants()
