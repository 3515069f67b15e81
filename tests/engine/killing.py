"""A workflow for real worker processes; its outside world is a file with one line per order."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from approvals import Context, Effect, Receipt, step, workflow


def world() -> Path:
    return Path(os.environ["KILLING_WORLD"])


class Line(Effect[str]):
    """Appends a line: the key, and when."""

    kind = "killing.line"
    deadline = timedelta(seconds=5)

    def perform(self, request: str, key: str) -> Receipt[str]:
        with (world() / "lines").open("a") as file:
            file.write(f"{key} {time.time()}\n")
        return Receipt(key)

    def lookup(self, request: str, key: str) -> Receipt[str] | None:
        lines = world() / "lines"
        there = lines.read_text().splitlines() if lines.exists() else []
        return Receipt(key) if any(line.split()[0] == key for line in there) else None


def wait_at_the_gate() -> str:
    """Until the test, which holds the gate's lock, lets it go: meanwhile the run has a worker."""
    with (world() / "gate").open() as gate:
        (world() / "entered").touch()
        fcntl.flock(gate, fcntl.LOCK_SH)
    return "open"


@step(durability="sync")
def stop_here() -> str:
    """The first process that comes here is stopped (SIGSTOP), as a machine that hangs would be."""
    try:
        (world() / "stopped").touch(exist_ok=False)
    except FileExistsError:
        return "passed by"
    os.kill(os.getpid(), signal.SIGSTOP)
    (world() / "woken").touch()
    return "woke up"


@workflow(name="killing", version=1)
def killing(ctx: Context, n: int) -> str:
    ctx.step("gate", wait_at_the_gate)
    return ctx.effect("line", Line, "a line").external_id


@workflow(name="stopping", version=1)
def stopping(ctx: Context, n: int) -> str:
    told = ctx.step("stop", stop_here)
    ctx.effect("line", Line, "a line")
    return told
