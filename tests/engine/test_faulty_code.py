"""Workflow code with a mistake: the run stops where an operator sees it, and mended code goes on."""

from __future__ import annotations

import pytest

from approvals import Context
from approvals.engine import positions
from approvals.errors import LimitExceeded
from approvals.limits import Limits
from approvals.models import Run, Wait
from tests.engine.make import calls, case, flow, kinds, ran, resume

pytestmark = pytest.mark.usefixtures("checked")


fault: list[BaseException] = []


def helper() -> None:
    if fault:
        raise fault[0]


@flow
def crashing(ctx: Context, n: int) -> int:
    ctx.step("before", calls.append, "once")
    helper()
    return n + ctx.step("after", len, "abc")


@pytest.mark.parametrize("error", [ValueError("no such key"), SystemExit(3), KeyError("\x00\ud800")])
def test_a_crash_stops_the_run_and_says_what_and_where(error: BaseException) -> None:
    fault[:] = [error]
    try:
        run = ran(crashing, 1)
        wait = case(run)
        assert run.status == "suspended" and wait.name == "crashed" and wait.position == 1
        assert f'"type": "{type(error).__name__}"' in wait.data
        assert "test_faulty_code.py" in wait.data and "in helper" in wait.data
        assert kinds(run)[2] == "step.complete", "what was done before is kept"
    finally:
        fault.clear()
    assert resume(run).output == 4 and calls == ["once"]


def test_a_crash_that_is_not_mended_stops_again() -> None:
    fault[:] = [ValueError("no")]
    try:
        run = ran(crashing, 1)
        assert resume(run).status == "suspended" and resume(run).status == "suspended"
    finally:
        fault.clear()
    assert Wait.objects.filter(run=run.id, kind="reconciliation").count() == 3
    assert resume(run).output == 4 and calls == ["once"]


def test_a_journal_that_is_too_long_stops_the_run_visibly(monkeypatch) -> None:
    monkeypatch.setattr(positions, "limits", lambda: Limits(journal_entries=20))
    run = ran(endless)
    assert run.status == "suspended" and '"code": "limit_exceeded"' in case(run).data
    assert 20 <= Run.objects.get(pk=run.id).seq <= 23
    monkeypatch.setattr(positions, "limits", Limits)
    assert resume(run).output == "enough"


@flow
def endless(ctx: Context, n: int) -> str:
    for i in range(40):
        ctx.step("again", len, i * "x")
    return "enough"


@flow
def endless_caught(ctx: Context, n: int) -> str:
    for i in range(40):
        try:
            ctx.step("again", len, i * "x")
        except LimitExceeded:
            return "caught"
    return "enough"


def test_an_author_may_catch_the_limit(monkeypatch) -> None:
    monkeypatch.setattr(positions, "limits", lambda: Limits(journal_entries=20))
    assert ran(endless_caught).output == "caught"
    Run.objects.all().delete()  # with the limit back at its default it would not replay
