"""Durations that are negative, none, or longer than calendars: refused by name, or due at once (CASES 19, 21)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from approvals import Context, Effect, Receipt, Retry, step
from approvals.errors import InvalidPolicy, InvalidWorkflow
from approvals.policy import parse
from approvals.services import runs
from approvals.testing import assert_invariants
from tests.engine.make import case, flow, ran

pytestmark = pytest.mark.usefixtures("engine")

HUGE = [timedelta.max, timedelta(days=36_526), timedelta(seconds=10**12)]
DUE = [timedelta(), timedelta(seconds=-1), timedelta.min]
CALLS: dict[str, Callable[[Context, Any], Any]] = {
    "ctx.timer": lambda ctx, delta: ctx.wait(ctx.timer("it", delta)),
    "ctx.sleep": lambda ctx, delta: ctx.sleep("it", delta),
    "ctx.signal": lambda ctx, delta: ctx.wait(ctx.signal("it", expires_in=delta)),
    "ctx.wait": lambda ctx, delta: ctx.wait(ctx.signal("it"), at_most=delta),
}
given: list[Any] = []


@flow
def waits(ctx: Context, call: str) -> str:
    return type(CALLS[call](ctx, given[0])).__name__


@pytest.mark.parametrize("call", CALLS)
def test_a_wait_longer_than_a_hundred_years_is_refused_by_its_name(call: str) -> None:
    for given[:] in ([delta] for delta in HUGE):
        run = ran(waits, call)
        told = case(run).data
        assert '"code": "limit_exceeded"' in told and "name: it" in told and f"call: {call}" in told
    assert_invariants()


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_duration_is_refused_by_its_name(call: str) -> None:
    for given[:] in ([5], [float("nan")]):
        told = case(ran(waits, call)).data
        assert '"code": "context_misuse"' in told and "name: it" in told and f"call: {call}" in told


@pytest.mark.parametrize(
    ("call", "got"),
    [("ctx.timer", "Fired"), ("ctx.sleep", "NoneType"), ("ctx.signal", "Expired"), ("ctx.wait", "StillOpen")],
)
def test_what_has_passed_already_is_due_at_once(call: str, got: str) -> None:
    for given[:] in ([delta] for delta in DUE):
        run = ran(waits, call)
        assert run.output == got and runs.replay(run.id).same
    assert_invariants()


@pytest.mark.parametrize("moment", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
def test_a_moment_beyond_calendars_is_refused_by_its_name(moment: datetime) -> None:
    given[:] = [moment]
    assert "name: it" in case(ran(waits, "ctx.timer")).data


@pytest.mark.parametrize("wrong", [*DUE, *HUGE, 30])
def test_a_deadline_or_a_timeout_that_no_turn_can_keep_is_refused_when_it_is_written(wrong: Any) -> None:
    with pytest.raises(InvalidWorkflow, match="at most 1 day"):
        step(timeout=wrong)
    with pytest.raises(InvalidWorkflow, match="Late"):

        class Late(Effect[int]):
            deadline = wrong

            def perform(self, request: int, key: str) -> Receipt[int]:
                raise AssertionError


@pytest.mark.parametrize(
    "wrong",
    [-1, float("nan"), float("inf"), 1e300, 10**5000, "1"],
    ids=lambda value: f"{type(value).__name__}",
)
def test_a_pause_between_attempts_is_a_number_of_seconds_within_a_year(wrong: Any) -> None:
    for name in ("first_seconds", "factor", "max_seconds"):
        with pytest.raises(ValueError, match=f"Retry: {name} must be a number from"):
            Retry(**{name: wrong})


def test_pauses_that_grow_beyond_all_numbers_end_at_the_longest() -> None:
    steep = Retry(100, first_seconds=1e-9, factor=30_000_000, max_seconds=31_000_000)
    assert steep.delay(100) == timedelta(seconds=31_000_000)
    assert Retry(first_seconds=0, factor=30_000_000).delay(100) == timedelta()


@pytest.mark.parametrize("key", ["respond_within", "valid_for"])
@pytest.mark.parametrize("wrong", ["0d", "-1d", "999999999w", "3651d", "P1D", 3600, "1e9s", ""])
def test_a_policy_s_duration_is_refused_by_its_key(key: str, wrong: Any) -> None:
    rules = [{"stages": [{"needed": 1, "from": ["group:reviewers"]}]}]
    with pytest.raises(InvalidPolicy, match=f"{key}: found"):
        parse({"slug": "p", "rules": rules, key: wrong})
