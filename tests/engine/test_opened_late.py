"""A signal's wait opens with the call that waits for it: nothing may be lost, stuck or endless by that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from approvals import Context, Failed
from approvals.engine import boundaries
from approvals.limits import limits
from approvals.services import runs
from approvals.testing import drive
from tests.engine.make import case, commits, flow, kinds, ran, resume

pytestmark = pytest.mark.usefixtures("checked")


@flow
def winner_came_first(ctx: Context, cancel_losers: bool) -> Any:
    a = ctx.signal("a")
    ctx.wait(a)
    b = ctx.signal("b")
    winner = ctx.wait_any(a, b, cancel_losers=cancel_losers)
    return [winner.name, b.value.payload]


@flow
def sleeps_for_ever(ctx: Context, n: int) -> None:
    ctx.sleep("for ever", timedelta.max)


@flow
def waits(ctx: Context, n: int) -> Any:
    return ctx.wait(ctx.signal("go")).payload


@flow
def fails(ctx: Context, n: int) -> Any:
    ctx.signal("go")
    raise Failed("no")


@flow
def asks_for_many(ctx: Context, n: int) -> int:
    for _ in range(n):
        ctx.signal("go")
    return n


@pytest.mark.parametrize("cancel_losers", [True, False])
def test_a_loser_whose_message_had_come_early_stays_readable(cancel_losers: bool) -> None:
    run = runs.start(winner_came_first, cancel_losers)
    runs.signal(run.id, "a", 1)
    runs.signal(run.id, "b", 2)
    drive()
    assert runs.get(run.id).output == ["a", 2] and runs.replay(run.id).same


def test_a_wait_that_is_too_long_stops_its_run_at_once_with_the_reason() -> None:
    run = ran(sleeps_for_ever)
    assert case(run).name == "crashed" and "name: for ever" in case(run).data
    assert "run.lose_lease" not in kinds(run)


@pytest.mark.parametrize("of", [waits, fails])
def test_a_message_that_cannot_be_unsealed_stops_the_run_and_is_kept_for_the_mended_key(
    of: Any, settings: Any
) -> None:
    run = runs.start(of, 0)
    runs.signal(run.id, "go", 1)
    key, settings.SECRET_KEY = settings.SECRET_KEY, "another" * 10
    drive()
    assert case(run).name == "crashed" and "SealBroken" in case(run).data
    settings.SECRET_KEY = key
    ended = resume(run)
    assert (ended.status, ended.output) in [("completed", 1), ("failed", None)]
    assert runs.replay(run.id).same


def test_what_is_not_opened_yet_counts_against_the_length_of_a_journal() -> None:
    few = mock.Mock(wraps=limits(), journal_entries=20, buffer_seconds=60.0)
    with mock.patch("approvals.engine.positions.limits", return_value=few):
        run = ran(asks_for_many, 1000)
    assert case(run).name == "crashed" and "LimitExceeded" in case(run).data


def test_not_more_than_a_bufferful_is_left_unopened() -> None:
    run = runs.start(asks_for_many, 10)
    with mock.patch.object(boundaries, "BUFFER_ENTRIES", 4), commits() as made:
        drive()
    assert len(made) == 3 and kinds(run).count("wait.open") == 10
    assert runs.replay(run.id).same
