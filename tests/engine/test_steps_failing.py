"""Steps that fail: retries on timers, the same failure at every replay, timeouts."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from approvals import Context, Retry, step
from approvals.errors import StepFailed, StepTimeout
from approvals.models import Wait
from approvals.services import runs
from approvals.testing import clock, drive
from tests.engine.make import calls, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"one {one} two {two}")


@step(retry=Retry(attempts=3, first_seconds=1, factor=2))
def flaky() -> str:
    calls.append("flaky")
    if calls.count("flaky") < 3:
        raise OSError("not yet")
    return "done"


@step(retry=Retry(attempts=2))
def hopeless() -> str:
    calls.append("hopeless")
    raise Odd(1, 2)


@step(retry=Retry(attempts=5, on=(OSError,), never=(FileNotFoundError,)))
def picky(name: str) -> str:
    calls.append(name)
    raise {"os": OSError, "never": FileNotFoundError, "other": ValueError}[name](name)


def broken() -> str:
    raise Odd(1, 2)


@step(durability="none")
def broken_none() -> str:
    raise Odd(1, 2)


async def cancelled() -> str:
    raise asyncio.CancelledError


def unspeakable() -> str:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Silent


def dirty() -> str:
    raise ValueError("\x00 \ud800 " + 9999 * "x")


@flow
def flaky_flow(ctx: Context, n: int) -> str:
    return ctx.step("flaky", flaky)


@flow
def failing(ctx: Context, which: str) -> list[str]:
    fn = {
        "broken": broken, "hopeless": hopeless, "none": broken_none, "cancelled": cancelled,
        "unspeakable": unspeakable, "dirty": dirty,
    }[which]  # fmt: skip
    try:
        ctx.step("it", fn)
    except StepFailed as error:
        told = [error.type, error.message, str(error), error.code, str(error.values["step"])]
        ctx.sleep("a while", timedelta(seconds=60))
        return told
    return []


@flow
def uncaught(ctx: Context, n: int) -> str:
    return ctx.step("broken", broken)


def test_a_retry_waits_on_a_timer_and_holds_nothing() -> None:
    run = ran(flaky_flow)
    for waiting, delay in ((1, 1), (2, 2)):
        assert runs.get(run.id).status == "suspended"
        (wait,) = Wait.objects.filter(run=run.id, status="open")
        assert (wait.kind, wait.position, wait.ordinal) == ("timer", 1, waiting)
        assert wait.due_at is not None and (wait.due_at - wait.opened_at).total_seconds() == delay
        clock.shift(timedelta(seconds=delay - 0.5))
        drive()
        assert calls.count("flaky") == waiting, "tried before its time"
        clock.shift(timedelta(seconds=0.6))
        drive()
    assert runs.get(run.id).output == "done" and calls == ["flaky"] * 3


@pytest.mark.parametrize(("name", "tries"), [("os", 5), ("never", 1), ("other", 1)])
def test_only_what_the_retry_names_is_tried_again(name: str, tries: int) -> None:
    run = ran(picky_flow, name)
    for _ in range(6):
        clock.shift(timedelta(seconds=60))
        drive()
    assert calls == [name] * tries and runs.get(run.id).status == "failed"


@flow
def picky_flow(ctx: Context, name: str) -> str:
    return ctx.step("picky", picky, name)


@pytest.mark.parametrize("which", ["broken", "hopeless", "none"])
def test_step_failed_is_the_same_on_the_first_run_and_on_replay(which: str) -> None:
    run = ran(failing, which)
    for _ in range(3):
        clock.shift(timedelta(seconds=60))
        drive()
    told = runs.get(run.id).output
    assert told[:2] == ["Odd", "one 1 two 2"] and told[3:] == ["step_failed", "it"] and "'it'" in told[2]
    assert runs.replay(run.id).same


@pytest.mark.parametrize("which", ["cancelled", "unspeakable", "dirty"])
def test_an_odd_failure_is_a_failure_of_the_step_like_any_other(which: str) -> None:
    run = ran(failing, which)
    clock.shift(timedelta(seconds=60))
    drive()
    assert runs.get(run.id).status == "completed"


def test_an_uncaught_step_failure_ends_the_run_as_failed() -> None:
    run = ran(uncaught)
    assert run.status == "failed" and run.error is not None
    assert (run.error["type"], run.error["code"]) == ("StepFailed", "step_failed")
    assert "one 1 two 2" in run.error["message"]


release = threading.Event()


@step(timeout=timedelta(seconds=0.05))
def stuck(n: int) -> int:
    calls.append("stuck")
    release.wait(20)
    return n


@step(timeout=timedelta(seconds=20))
def quick(n: int) -> int:
    return n + Group.objects.count()


@flow
def timed(ctx: Context, n: int) -> str:
    n = ctx.step("quick", quick, n)
    try:
        ctx.step("stuck", stuck, n)
    except StepTimeout as error:
        told = f"{error.code}: {error}"
        ctx.sleep("a while", timedelta(seconds=5))
        return told
    return "no timeout"


def test_a_step_past_its_timeout_is_abandoned() -> None:
    run = ran(timed, 1)
    release.set()
    clock.shift(timedelta(seconds=5))
    drive()
    assert str(runs.get(run.id).output).startswith("step_timeout: step 'stuck'")
    assert calls == ["stuck"] and kinds(run).count("step.fail") == 1
