"""The state tables against ARCHITECTURE.md, written down here a second time and compared pair by pair."""

from __future__ import annotations

import itertools

import pytest

from approvals.states import (
    EFFECT_DONE,
    EFFECT_FINAL,
    EFFECT_UNSETTLED,
    EVENTS,
    RUN_FINAL,
    STATUSES,
    TABLES,
    WAIT_CLOSED,
    next_state,
)

# from | event | to, as the page has it; "–" is what does not exist yet.
RUN = """
– start pending
pending claim running
running suspend suspended
running yield pending
running lose_lease pending
suspended wake pending
pending strand suspended
running stop suspended
pending pause paused
suspended pause paused
running pause paused
suspended unwind pending
paused unwind pending
paused resume pending
running complete completed
running fail failed
suspended fail failed
pending cancel cancelled
running cancel cancelled
suspended cancel cancelled
paused cancel cancelled
"""

EFFECT = """
– intend intended
intended dispatch dispatched
intended revise intended
intended withdraw withdrawn
dispatched commit committed
dispatched not_sent intended
dispatched refuse refused
dispatched doubt in_doubt
in_doubt redispatch dispatched
in_doubt confirm committed
in_doubt disprove intended
in_doubt abandon withdrawn
committed verify verified
verified verify verified
committed contradict contradicted
verified contradict contradicted
contradicted accept verified
contradicted confirm verified
contradicted redo intended
committed compensate compensated
verified compensate compensated
contradicted compensate compensated
"""

WAIT = """
– open open
open decide open
open withdraw open
open revise open
open escalate open
open resolve resolved
open expire expired
open cancel cancelled
resolved invalidate resolved
"""

PAGE = {
    machine: {
        (None if source == "–" else source, event): to
        for source, event, to in (line.split() for line in text.strip().splitlines())
    }
    for machine, text in {"run": RUN, "effect": EFFECT, "wait": WAIT}.items()
}
FINAL = {"run": RUN_FINAL, "effect": EFFECT_FINAL, "wait": {"expired", "cancelled"}}


@pytest.mark.parametrize("machine", PAGE)
def test_every_pair_of_status_and_event_is_as_the_page_says(machine):
    events = {event for _, event in PAGE[machine]}
    assert set(EVENTS[machine]) == events
    for status, event in itertools.product([None, *STATUSES[machine], "no such status"], [*events, "odd"]):
        assert next_state(machine, status, event) == PAGE[machine].get((status, event)), (status, event)


@pytest.mark.parametrize("machine", PAGE)
def test_the_statuses_are_those_of_the_page(machine):
    page = {s for (s, _), to in PAGE[machine].items() for s in (s, to) if s}
    assert set(STATUSES[machine]) == page
    assert set(TABLES[machine]) == set(PAGE[machine])


@pytest.mark.parametrize("machine", PAGE)
def test_nothing_leaves_a_final_state(machine):
    assert not [pair for pair in TABLES[machine] if pair[0] in FINAL[machine]]


def test_the_groups_of_statuses_are_those_of_the_page():
    assert {"completed", "failed", "cancelled"} == RUN_FINAL
    assert {"compensated", "refused", "withdrawn"} == EFFECT_FINAL
    assert {"dispatched", "in_doubt"} == EFFECT_UNSETTLED
    assert {"committed", "verified"} == EFFECT_DONE
    assert {"resolved", "expired", "cancelled"} == WAIT_CLOSED
