"""What it costs to commit only where something leaves the process, beside committing every step (ARCHITECTURE 6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from approvals.models import Effect, Entry
from approvals.services import runs
from approvals.testing import assert_invariants, decide, drive, people
from tests.crash.peers import Ledger, world
from tests.crash.scenes import Trip, agent
from tests.engine.make import commits


def _played(*, every: bool, applied: int) -> int:
    """The commits of one run of the twenty-turn agent, its two claims counted in; `applied`: by the world, after it."""
    who = people()
    run = runs.start(agent, Trip(every=every), requester=who.requester)
    with commits() as first:
        drive()
    decide(run, who.reviewers[0], "approved")
    with commits() as second:
        drive()
    assert runs.get(run.id).status == "completed" and Effect.objects.filter(run=run.id).count() == 3
    assert len(world.ledger.arrivals()) == applied
    return len(first) + len(second) + Entry.objects.filter(run=run.id, kind="run.claim").count()


@pytest.mark.usefixtures("engine")
def test_the_twenty_turn_agent_needs_a_quarter_of_the_commits_that_every_step_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger", late=False, lost=False)
    ledger.create()
    monkeypatch.setattr(world, "ledger", ledger, raising=False)
    selective, full = _played(every=False, applied=3), _played(every=True, applied=6)
    assert (selective, full) == (10, 41) and 4 * selective <= full
    assert_invariants()
