"""Timers and deadlines of a wait: when they fire, and that they fire once (CASES 19, 21)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from approvals import Context, StillOpen
from approvals.errors import ContextMisuse
from approvals.models import Wait
from approvals.services import runs
from approvals.testing import clock, drive
from tests.engine.make import flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")

HOUR = timedelta(hours=1)


# --- timers ----------------------------------------------------------------------------------------


@flow
def timed(ctx: Context, when: timedelta | datetime) -> str:
    return ctx.wait(ctx.timer("t", when)).at.isoformat()


@flow
def asleep(ctx: Context, n: int) -> str:
    ctx.sleep("a", 60 * 24 * HOUR)
    return "awake"


@pytest.mark.parametrize("zone", [UTC, datetime.now().astimezone().tzinfo])
def test_an_absolute_instant_fires_at_it(zone) -> None:
    when = (datetime.now(UTC) + 26 * HOUR).astimezone(zone)
    run = ran(timed, when)
    clock.shift(25.9 * HOUR)
    drive()
    assert runs.get(run.id).status == "suspended"
    clock.shift(0.2 * HOUR)
    drive()
    assert datetime.fromisoformat(runs.get(run.id).output) == when


def test_an_instant_that_has_passed_fires_at_once() -> None:
    assert ran(timed, datetime.now(UTC) - HOUR).status == "completed"
    assert ran(timed, timedelta(0)).status == "completed"


def test_a_sixty_day_sleep_fires_once() -> None:
    run = ran(asleep)
    for _ in range(4):
        clock.shift(20 * 24 * HOUR)
        drive()
    assert runs.get(run.id).output == "awake"
    assert kinds(run).count("wait.resolve") == 1 and kinds(run).count("run.wake") == 1


@flow
def naive(ctx: Context, n: int) -> str:
    try:
        ctx.timer("t", datetime(2026, 1, 1))  # noqa: DTZ001
    except ContextMisuse:
        ctx.sleep("a", HOUR)
        return "refused"
    return ""


def test_an_instant_without_a_zone_is_refused() -> None:
    run = ran(naive)
    clock.shift(HOUR)
    drive()
    assert runs.get(run.id).output == "refused"


# --- at most ---------------------------------------------------------------------------------------


@flow
def limited(ctx: Context, n: int) -> list[str]:
    told: list[str] = []
    handle = ctx.signal("go")
    while True:
        answer = ctx.wait(handle, at_most=HOUR)
        if not isinstance(answer, StillOpen):
            return [*told, answer.payload]
        told.append("still open")


def test_at_most_leaves_the_handle_open() -> None:
    run = ran(limited)
    for _ in range(2):
        clock.shift(HOUR)
        drive()
        assert Wait.objects.get(run=run.id, kind="signal").status == "open"
    runs.signal(run.id, "go", "here")
    drive()
    assert runs.get(run.id).output == ["still open", "still open", "here"]
    assert not Wait.objects.filter(run=run.id, status="open").exists()
    assert list(Wait.objects.filter(run=run.id, kind="timer").values_list("status", flat=True)) == [
        "resolved",
        "resolved",
        "cancelled",
    ]


def test_at_most_of_what_is_closed_already_takes_a_position_and_no_timer() -> None:
    run = runs.start(limited, 0)
    runs.signal(run.id, "go", "here")
    drive()
    assert runs.get(run.id).output == ["here"] and "wait" in kinds(run)
    assert not Wait.objects.filter(kind="timer").exists()


def test_at_most_and_a_message_before_the_resume_go_by_journal_order() -> None:
    run = ran(limited)
    clock.shift(HOUR)
    runs.signal(run.id, "go", "late")  # both are closed now, the timer first
    drive()
    assert runs.get(run.id).output == ["still open", "late"]


@flow
def instant(ctx: Context, n: int) -> str:
    return type(ctx.wait(ctx.signal("go"), at_most=timedelta(0))).__name__


def test_at_most_nothing_is_a_look() -> None:
    assert ran(instant).output == "StillOpen"
