"""Steps: durabilities and their commits, the buffer, and what a crash does to each."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import connection

from approvals import Context, queries, step
from approvals.engine import positions
from approvals.engine.turn import Turn
from approvals.errors import StepFailed
from approvals.models import Entry, Run
from approvals.services import runs
from approvals.testing import clock, crash_at, drive
from tests.engine.make import calls, commits, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")


def double(n: int) -> int:
    calls.append("double")
    return 2 * n


@step(durability="sync")
def add(a: int, b: int) -> int:
    calls.append("add")
    return a + b


@step(durability="none")
def half(n: int) -> int:
    calls.append("half")
    return n // 2


async def triple(n: int) -> int:
    calls.append("triple")
    return await asyncio.to_thread(lambda: 3 * n)


# --- durabilities ----------------------------------------------------------------------------------


@flow
def sums(ctx: Context, n: int) -> int:
    return ctx.step("triple", triple, ctx.step("add", add, ctx.step("double", double, n), 1))


@flow
def twelve_async(ctx: Context, n: int) -> int:
    for i in range(12):
        n = ctx.step(f"double {i}", double, n)
    return n


@flow
def twelve_sync(ctx: Context, n: int) -> int:
    for i in range(12):
        n = ctx.step(f"add {i}", add, n, 1)
    return n


@flow
def computed(ctx: Context, n: int) -> int:
    n = ctx.step("half", half, n)
    ctx.sleep("a while", timedelta(seconds=5))
    return ctx.step("half again", half, n)


def test_a_run_completes_with_the_result_of_its_steps() -> None:
    assert ran(sums, 5).output == 33
    assert calls == ["double", "add", "triple"]


def test_twelve_async_steps_cost_one_commit_with_the_completion() -> None:
    run = runs.start(twelve_async, 1)
    with commits() as made:
        drive()
    assert runs.get(run.id).output == 4096
    assert len(made) == 1, made
    assert kinds(run) == ["run.start", "run.claim", *["step.complete"] * 12, "run.complete"]


def test_twelve_sync_steps_cost_one_commit_each() -> None:
    run = runs.start(twelve_sync, 1)
    with commits() as made:
        drive()
    assert runs.get(run.id).output == 13
    assert len(made) == 13, made
    if connection.vendor == "postgresql":
        assert all(sql.startswith("WITH held AS (UPDATE approvals_run") for sql in made), (
            "one fenced statement each"
        )


def test_a_step_that_is_never_stored_is_computed_at_every_resume() -> None:
    run = ran(computed, 20)
    assert calls == ["half"] and "step.complete" not in kinds(run)
    clock.shift(timedelta(seconds=5))
    drive()
    assert runs.get(run.id).output == 5 and calls == ["half"] * 3
    assert [e.position for e in Entry.objects.filter(run=run.id, kind="wait.open")] == [2]


def test_buffered_results_before_a_sync_step_are_committed_with_it() -> None:
    run = runs.start(sums, 5)
    with crash_at("after_flush"):
        drive()
    assert kinds(run) == ["run.start", "run.claim", "step.complete", "step.sync.complete"]
    drive()
    assert runs.get(run.id).output == 33 and calls == ["double", "add", "triple"]


@step(durability="sync")
def broken(n: int) -> int:
    raise OSError("no space")


@flow
def durable(ctx: Context, n: int) -> int:
    with suppress(StepFailed):
        ctx.step("broken", broken, n)
    return ctx.step("double", double, ctx.step("add", add, n, 1))


def test_the_journal_tells_how_a_step_was_stored_and_by_the_kinds_of_the_contract() -> None:
    run = ran(durable, 5)
    assert kinds(run)[2:5] == ["step.sync.fail", "step.sync.complete", "step.complete"]
    told = [(e["kind"], e.get("durability")) for e in queries.run(run.id)["entries"]]
    assert told[2:6] == [
        ("step.fail", "sync"), ("step.complete", "sync"), ("step.complete", "async"), ("run.complete", None)
    ]  # fmt: skip
    assert runs.replay(run.id).same


def test_a_journal_from_before_durabilities_were_told_is_answered_from_all_the_same() -> None:
    run = ran(durable, 5)
    Entry.objects.filter(run=run.id, kind="step.sync.complete").update(kind="step.complete")
    Entry.objects.filter(run=run.id, kind="step.sync.fail").update(kind="step.fail")
    calls.clear()
    assert runs.replay(run.id).same and not calls


@pytest.mark.parametrize(
    ("point", "again"),
    [
        ("step_done", ["double"]),
        ("before_flush", ["double", "add"]),
        ("after_flush", []),
        ("before_complete", ["triple"]),
    ],
)
def test_after_a_crash_exactly_what_was_not_committed_is_done_again(point: str, again: list[str]) -> None:
    run = runs.start(sums, 5)
    with crash_at(point):
        drive()
    before, calls[:] = list(calls), []
    drive()
    assert runs.get(run.id).output == 33
    assert [c for c in calls if c in before] == again


# --- the buffer ------------------------------------------------------------------------------------


@flow
def slow_second(ctx: Context, n: int) -> int:
    n = ctx.step("double", double, n)
    ctx.progress(1, 3, "beating")
    n = ctx.step("beat", beat, n)
    return ctx.step("double again", double, n)


held: list[Turn] = []


def beat(n: int) -> int:
    """The heartbeat looks at the turn while the second step runs."""
    turn, seen = held[0], []
    for waited in (0.5, 0.6):
        calls.append(waited)
        at = time.monotonic() + waited

        def look(at: float = at) -> None:
            try:
                with mock.patch.object(positions, "time", Fixed(at)):
                    turn.flush_due()
            finally:
                connection.close()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        seen.append(Entry.objects.filter(run=turn.run_id, kind="step.complete").count())
        shown = Run.objects.get(pk=turn.run_id).progress
        assert ("beating" in shown) == (seen[-1] == 1)
    calls.append(seen)
    return n


class Fixed:
    """A module `time` that stands still."""

    def __init__(self, at: float) -> None:
        self.at = at

    def monotonic(self) -> float:
        return self.at


def test_the_heartbeat_commits_a_prefix_so_that_none_waits_longer_than_a_second(monkeypatch) -> None:
    execute = Turn.execute

    def watched(self: Turn) -> None:
        held[:] = [self]
        execute(self)

    monkeypatch.setattr(Turn, "execute", watched)
    since: list[float] = []
    keep = Turn.keep

    def kept(self: Turn, *args: Any, **options: Any) -> None:
        keep(self, *args, **options)
        since.append(self._buffered_since)
        # It looks twice a second: 0.45 s have passed at the first look, 0.55 s at the second.
        self._buffered_since = time.monotonic() + 0.05

    monkeypatch.setattr(Turn, "keep", kept)
    run = ran(slow_second, 1)
    assert calls == ["double", 0.5, 0.6, [0, 1], "double"] and run.output == 4
    assert kinds(run)[2:] == ["step.complete"] * 3 + ["run.complete"]


def test_the_buffer_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(positions, "BUFFER_ENTRIES", 5)
    run = runs.start(twelve_async, 1)
    with crash_at("after_flush:2"):
        drive()
    assert kinds(run).count("step.complete") == 10
    drive()
    assert runs.get(run.id).output == 4096 and calls.count("double") == 12
