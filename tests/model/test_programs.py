"""Random programs, each played without a fault, and then with processes that die and answers that are lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from approvals.models import Effect, Run
from approvals.services import policies, runs
from approvals.states import NOT_UNDONE
from tests.emptying import empty
from tests.model.budget import examples
from tests.model.playing import Play, Schedule, play
from tests.model.programs import ONE_YES, Program, program, programs, undoing
from tests.model.world import world

pytestmark = pytest.mark.usefixtures("engine")

BAD = ("lose", "late", "apply")
schedules = st.builds(
    Schedule,
    deaths=st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    answers=st.lists(st.sampled_from(BAD), max_size=2).map(tuple),
)


@examples(5)
@given(
    asked=programs,
    flow=st.sampled_from([program, program, undoing]),
    faults=st.lists(schedules, min_size=1, max_size=2),
)
def test_no_crash_and_no_lost_answer_changes_what_a_program_does(
    asked: Program, flow: Any, faults: list[Schedule]
) -> None:
    empty()
    world.clear()
    policies.load(ONE_YES)
    oracle = play(flow, asked, Schedule())
    assert all(case.name == NOT_UNDONE for case in oracle.cases), oracle.cases
    for schedule in faults:
        shown = play(flow, asked, schedule)
        note(f"died at {shown.died_at}; cases: {[case.name for case in shown.cases]}")
        same(shown, oracle)
    found = world.problems(Run.objects.all())
    assert not found, "\n".join(found)


def same(shown: Play, oracle: Play) -> None:
    """The same end, the same world, the same rows, the same journal; and asked only where doubt is allowed."""
    assert shown.end == oracle.end
    assert shown.applied == oracle.applied and shown.rows == oracle.rows
    assert shown.journal == oracle.journal
    for case in shown.cases:
        if case.name == "in doubt":
            effect = Effect.objects.get(run=case.run_id, position=case.position)
            assert _may_be_doubtful(effect), f"a person was asked about {effect.kind}"
    for run in Run.objects.all():
        assert runs.replay(run.pk).same


def _may_be_doubtful(effect: Effect) -> bool:
    """A no proves nothing of an earlier send without an answer; and what is not gone, may or may not be undone."""
    is_blind = effect.kind.startswith("model.blind")
    return is_blind or json.loads(effect.request)["refused"] or effect.compensates_id is not None
