"""Any and all: who wins, what the losers become, how often a run is woken (CASES 1, 11)."""

from __future__ import annotations

import itertools
import json
import random
from datetime import timedelta
from typing import Any

import pytest

from approvals import Context, StillOpen
from approvals.engine.turn import Turn
from approvals.errors import ContextMisuse
from approvals.models import Entry, Run, Wait
from approvals.services import decisions, runs
from approvals.testing import clock, crash_at, drive, pending, people
from tests.engine.make import case, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")

HOUR = timedelta(hours=1)


# --- any -------------------------------------------------------------------------------------------


@flow
def race(ctx: Context, cancel_losers: bool) -> list[str]:
    a, b, late = ctx.signal("a"), ctx.signal("b"), ctx.timer("late", HOUR)
    won = ctx.wait_any(a, b, late, cancel_losers=cancel_losers)
    told = [won.name]
    ctx.sleep("a while", timedelta(minutes=1))
    if not cancel_losers:
        told.append(str(ctx.wait(b).payload))
    return told


def of(run: Any, name: str) -> Wait:
    return Wait.objects.get(run=run.id, name=name)


def test_the_first_wins_and_the_losers_are_closed_in_its_transaction() -> None:
    run = ran(race, True)
    runs.signal(run.id, "b", 1)
    assert [of(run, n).status for n in ("a", "b", "late")] == ["cancelled", "resolved", "cancelled"]
    entries = list(Entry.objects.filter(run=run.id).order_by("seq"))
    closing = [e.kind for e in entries[-4:]]
    assert closing == ["wait.resolve", "wait.cancel", "wait.cancel", "run.wake"]
    clock.shift(2 * HOUR)
    drive()
    clock.shift(HOUR)
    drive()
    assert runs.get(run.id).output == ["b"]


def test_time_wins_too() -> None:
    run = ran(race, True)
    clock.shift(HOUR)
    runs.signal(run.id, "b", 1)  # too late: kept, for nobody
    drive()
    clock.shift(HOUR)
    drive()
    assert runs.get(run.id).output == ["late"] and of(run, "b").status == "cancelled"


def test_losers_may_stay_open_and_do_not_wake_the_run() -> None:
    run = ran(race, False)
    runs.signal(run.id, "a", 1)
    drive()
    assert [of(run, n).status for n in ("a", "b", "late")] == ["resolved", "open", "open"]
    wakes = kinds(run).count("run.wake")
    runs.signal(run.id, "b", 2)
    drive()
    assert kinds(run).count("run.wake") == wakes and runs.get(run.id).status == "suspended"
    clock.shift(timedelta(minutes=1))
    drive()
    assert runs.get(run.id).output == ["a", "2"]


def test_both_closed_before_the_resume_go_by_journal_order() -> None:
    for first, second in (("a", "b"), ("b", "a")):
        run = ran(race, False)
        runs.signal(run.id, first, 1)
        runs.signal(run.id, second, 2)
        drive()
        if first == "a":
            clock.shift(timedelta(minutes=1))
            drive()
        told = json.loads(Entry.objects.get(run=run.id, kind="wait_any").data)
        assert told["winner"] == str(of(run, first).pk)
        runs.cancel(run.id, actor=people().operator, reason="enough") if first == "b" else None


@flow
def early(ctx: Context, n: int) -> list[str]:
    a, b, c = ctx.signal("a"), ctx.signal("b"), ctx.signal("c")
    won = ctx.wait_any(c, b, a)
    told = [won.name, str(won.value.payload), str(a.value.payload)]
    try:
        told.append(str(c.value.payload))
    except ContextMisuse:
        told.append("lost")
    return told


def test_met_on_arrival_one_transaction_names_the_winner_and_closes_the_open_losers() -> None:
    run = runs.start(early, 0)
    runs.signal(run.id, "b", 2)
    runs.signal(run.id, "a", 1)
    drive()
    # `a` opened first, so its message closed it first: journal order, not the order of sending.
    assert runs.get(run.id).output[0] == "a" or runs.get(run.id).status == "suspended"
    told = kinds(run)
    assert told[told.index("wait_any") + 1] == "wait.cancel" and of(run, "c").status == "cancelled"


@flow
def many(ctx: Context, n: int) -> str:
    asked = [
        ctx.request_approval(f"q{i}", policy="one-reviewer", action=i, title=f"Question {i}")
        for i in range(5)
    ]
    late = ctx.timer("late", HOUR)
    won = ctx.wait_any(*asked, late, cancel_losers=False)
    return won.name


@pytest.mark.parametrize("seed", range(3))
def test_any_of_five_approvals_and_a_timer_has_the_same_winner_a_hundred_times(seed: int) -> None:
    who = people()
    run = ran(many, requester=who.requester)
    order = pending(run)
    random.Random(seed).shuffle(order)
    if seed == 2:
        clock.shift(HOUR)
        order.clear()
        drive()
    for wait in order[:3]:
        decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
    with crash_at("before_complete"):
        drive()
    for wait in order[3:]:
        decisions.decide(wait.id, actor=who.reviewers[1], outcome="rejected", digest=wait.digest)
    drive()
    expected = order[0].name if order else "late"
    reports = [runs.replay(run.id) for _ in range(100)]
    assert runs.get(run.id).output == expected
    assert {(r.same, r.output) for r in reports} == {(True, f'"{expected}"')}
    assert not Wait.objects.filter(run=run.id, status="open").exists()


@flow
def twice(ctx: Context, n: int) -> str:
    a, b = ctx.signal("a"), ctx.signal("b")
    ctx.wait_any(a, b)
    told = []
    calls: list[tuple[Any, list[Any]]] = [
        (ctx.wait_any, [b]),
        (ctx.wait, [b]),
        (ctx.wait_all, [a, b]),
        (ctx.wait_any, []),
    ]
    for call, waited in calls:
        try:
            call(*waited)
        except ContextMisuse:
            told.append("refused")
    c = ctx.signal("c")
    told.append(ctx.wait_any(b, c, c).name)
    return " ".join(told)


def test_a_loser_is_never_waited_for_again() -> None:
    run = ran(twice)
    runs.signal(run.id, "a", 1)
    assert drive() == 1, "one turn, then it is parked"
    assert runs.get(run.id).status == "suspended"
    runs.signal(run.id, "c", 1)
    drive()
    assert runs.get(run.id).output == "refused refused refused refused c"


@flow
def same_twice(ctx: Context, n: int) -> str:
    a = ctx.signal("a")
    ctx.wait_all(a, a)
    return ctx.wait_any(a, a).name


def test_the_same_handle_twice_counts_once() -> None:
    run = runs.start(same_twice, 0)
    assert drive() == 1 and Run.objects.get().parked_left == 1
    runs.signal(run.id, "a", 1)
    drive()
    assert runs.get(run.id).output == "a"


# --- all -------------------------------------------------------------------------------------------


@flow
def everything(ctx: Context, n: int) -> list[int]:
    opened = [ctx.signal(f"s{i}") for i in range(n)]
    return [m.payload for m in ctx.wait_all(*opened)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[:4])
def test_all_wakes_once_and_answers_in_the_order_of_the_handles(order: tuple[int, ...]) -> None:
    run = ran(everything, 3)
    for i in order:
        assert runs.get(run.id).status == "suspended"
        runs.signal(run.id, f"s{i}", i)
        drive()
    assert runs.get(run.id).output == [0, 1, 2]
    assert kinds(run).count("run.wake") == 1 and Run.objects.get().fence == 2


def test_all_with_some_closed_before_parks_on_the_rest() -> None:
    run = runs.start(everything, 3)
    runs.signal(run.id, "s1", 1)
    drive()
    assert Run.objects.get().parked_left == 2
    for i in (2, 0):
        runs.signal(run.id, f"s{i}", i)
    drive()
    assert runs.get(run.id).output == [0, 1, 2]


@flow
def open_handle(ctx: Context, n: int) -> Any:
    return ctx.signal("s").value


def test_the_value_of_an_open_handle_is_misuse() -> None:
    run = ran(open_handle)
    assert "still open" in case(run).data


@pytest.mark.parametrize("point", ["before_suspend", "suspended", "claimed", "before_complete", "completed"])
def test_a_wait_survives_a_crash_at_every_point(point: str) -> None:
    run = runs.start(race, True)
    with crash_at(point):
        drive()
    drive()
    runs.signal(run.id, "a", 1)
    with crash_at(point):
        drive()
    drive()
    clock.shift(HOUR)
    with crash_at(point):
        drive()
    drive()
    assert runs.get(run.id).output == ["a"]


# --- a message between "is there one yet?" and "I am waiting" (CASES 1) ----------------------------


@flow
def between(ctx: Context, how: str) -> str:
    handle = ctx.signal("go")
    ctx.now()  # opens it: a wait that opens with its suspension leaves nothing between the two
    answer = ctx.wait(handle, at_most=HOUR) if how == "at most" else ctx.wait(handle)
    told = "still open" if isinstance(answer, StillOpen) else str(answer.payload)
    ctx.sleep("a while", 2 * HOUR)
    return told


@pytest.mark.parametrize("how", ["at most", "wait"])
def test_a_message_just_before_the_suspension_is_delivered_once(how: str, monkeypatch) -> None:
    reach = Turn.reach
    sent: list[str] = []

    def reached(self: Turn, point: str) -> None:
        if point == "before_suspend" and not sent:
            sent.append(point)
            runs.signal(self.run_id, "go", "here")
        reach(self, point)

    monkeypatch.setattr(Turn, "reach", reached)
    run = ran(between, how)
    assert "run.yield" in kinds(run) and sent
    clock.shift(3 * HOUR)  # the limit of `at most`, never parked on, is due as well
    drive()
    assert runs.get(run.id).output == "here" and runs.replay(run.id).same
