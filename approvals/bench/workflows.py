"""The workloads as workflows: trivial steps with a 200-byte result, so that what is measured is the engine."""

from __future__ import annotations

import time
from collections.abc import Callable

from pydantic import BaseModel

from approvals import Context, step, workflow

PAYLOAD = {"ok": True, "v": "x" * 179}
"""200 bytes of JSON, as the peers' harness stores for every step."""
STEPS = 12


def lazily(n: int) -> dict[str, bool | str]:
    """A result that is committed with the next boundary."""
    return {"ok": True, "v": "x" * 179}


def _twelve(ctx: Context, fn: Callable[[int], object]) -> int:
    for n in range(STEPS):
        ctx.step(f"step {n}", fn, n)
    return STEPS


@step(durability="sync")
def committed(n: int) -> dict[str, bool | str]:
    """A result that is committed before the next line runs."""
    return {"ok": True, "v": "x" * 179}


@workflow(name="bench-w1-sync", version=1)
def w1_sync(ctx: Context, n: int) -> int:
    return _twelve(ctx, committed)


@workflow(name="bench-w1-async", version=1)
def w1_async(ctx: Context, n: int) -> int:
    return _twelve(ctx, lazily)


def started_at(n: int) -> int:
    """When this step's body began, in nanoseconds since the epoch."""
    return time.time_ns()


class Question(BaseModel):
    """What W2 asks people."""

    n: int


@workflow(name="bench-w2-signal", version=1)
def w2_signal(ctx: Context, n: int) -> int:
    ctx.step("before", committed, n)
    ctx.wait(ctx.signal("go"))
    return ctx.step("after", started_at, n)


@workflow(name="bench-w2-decision", version=1)
def w2_decision(ctx: Context, n: int) -> int:
    ctx.step("before", committed, n)
    ctx.approval("go", policy="one-reviewer", action=Question(n=n), title=f"Question {n}")
    return ctx.step("after", started_at, n)
