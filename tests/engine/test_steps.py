"""Steps: durabilities, retries, what may not be done in them, and what replay answers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from approvals import Context, Retry, step, workflow
from approvals.models import Entry
from approvals.services import runs
from approvals.testing import assert_invariants, clock, crash_at, drive

pytestmark = pytest.mark.usefixtures("engine")

calls: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


def double(n: int) -> int:
    calls.append("double")
    return 2 * n


@step(durability="sync")
def add(a: int, b: int) -> int:
    calls.append("add")
    return a + b


async def triple(n: int) -> int:
    calls.append("triple")
    return 3 * n


@step(retry=Retry(attempts=3))
def flaky() -> str:
    calls.append("flaky")
    if calls.count("flaky") < 3:
        raise OSError("not yet")
    return "done"


@workflow(name="sums", version=1)
def sums(ctx: Context, n: int) -> int:
    return ctx.step("triple", triple, ctx.step("add", add, ctx.step("double", double, n), 1))


@workflow(name="flaky", version=1)
def flaky_workflow(ctx: Context, n: int) -> str:
    return ctx.step("flaky", flaky)


def test_a_run_completes_with_the_result_of_its_steps() -> None:
    run = runs.start(sums, 5)
    drive()
    assert runs.get(run.id).output == 33
    assert calls == ["double", "add", "triple"]
    assert_invariants()


def test_a_completed_sync_step_is_not_run_again_after_a_crash() -> None:
    run = runs.start(sums, 5)
    with crash_at("before_complete"):
        drive()
    drive()
    assert runs.get(run.id).output == 33
    assert calls == ["double", "add", "triple", "triple"]
    assert_invariants()


def test_a_retry_waits_on_a_timer_and_holds_nothing() -> None:
    run = runs.start(flaky_workflow, 1)
    drive()
    assert runs.get(run.id).status == "suspended"
    clock.shift(timedelta(seconds=2))
    drive()
    clock.shift(timedelta(seconds=3))
    drive()
    assert runs.get(run.id).output == "done"
    assert calls == ["flaky"] * 3
    assert Entry.objects.filter(run=run.id, kind="wait.open").count() == 2
    assert_invariants()
