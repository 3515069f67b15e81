"""A step that spoils its worker: its run asks an operator or goes on, and the worker's other runs go on (CASES 16)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection

from approvals import Context
from approvals.errors import Leave, Suspended
from approvals.models import Entry
from approvals.services import runs
from approvals.testing import assert_invariants, clock
from tests.engine.make import case, flow
from tests.poison.test_doors import healthy, in_a_worker_s_thread

pytestmark = pytest.mark.usefixtures("engine")
done: list[Callable[[], object]] = []


@flow
def spoiled(ctx: Context, n: int) -> int:
    ctx.step("it", lambda: done[0]() and None)
    return n


def _raising(error: BaseException) -> Callable[[], object]:
    def it() -> None:
        raise error

    return it


def _beside_a_healthy_one(body: Callable[[], object]) -> tuple[runs.Run[int], runs.Run[int]]:
    done[:] = [body]
    run, other = runs.start(spoiled, 1), runs.start(healthy, 2)
    in_a_worker_s_thread()
    clock.shift(timedelta(seconds=2))
    in_a_worker_s_thread()
    return run, runs.get(other.id)


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), GeneratorExit(), SystemExit(3), asyncio.CancelledError(), Suspended(), Leave()],
    ids=lambda error: type(error).__name__,
)
def test_what_no_except_holds_stops_the_run_at_once_and_names_its_step(error: BaseException) -> None:
    run, other = _beside_a_healthy_one(_raising(error))
    assert case(run).name == "crashed" and "step 'it'" in case(run).data
    assert f'"type": "{type(error).__name__}"' in case(run).data
    assert not Entry.objects.filter(run=run.id, kind="run.lose_lease").exists()
    assert other.output == 2
    assert_invariants()


@pytest.mark.parametrize(
    ("spoil", "goes_on"), [("close", True), ("leave", False)], ids=["closed", "left open"]
)
def test_a_connection_that_a_step_spoils_spoils_no_other_run(spoil: str, goes_on: bool) -> None:
    def body() -> None:
        connection.close() if spoil == "close" else connection.set_autocommit(False)

    run, other = _beside_a_healthy_one(body)
    assert other.output == 2
    assert (runs.get(run.id).output == 1) if goes_on else ("left a transaction" in case(run).data)
    assert_invariants()


def test_a_step_that_fails_with_a_transaction_open_fails_with_its_own_error() -> None:
    def body() -> None:
        connection.set_autocommit(False)
        raise ValueError("the first error")

    run, other = _beside_a_healthy_one(body)
    assert other.output == 2
    assert runs.get(run.id).status == "failed" and "the first error" in str(runs.get(run.id).error)
    assert_invariants()
