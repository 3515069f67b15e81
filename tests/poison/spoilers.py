"""What spoils the process that it runs in: workflows for real workers."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from django.db import connection

from approvals import Context, step, workflow
from approvals.errors import ApprovalsError


@workflow(name="spoilers-exits", version=1)
def exits(ctx: Context, n: int) -> int:
    ctx.step("exit", lambda: os._exit(3))
    return n


def _set_session() -> None:
    is_postgres = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on" if is_postgres else "PRAGMA query_only = ON")


@workflow(name="spoilers-sets-session", version=1)
def sets_session(ctx: Context, n: int) -> int:
    ctx.step("set", _set_session)
    return n


@workflow(name="spoilers-leaves-open", version=1)
def leaves_open(ctx: Context, n: int) -> int:
    ctx.step("open", lambda: connection.set_autocommit(False))
    return n


@workflow(name="spoilers-uses-late", version=1)
def uses_late(ctx: Context, n: int) -> str:
    """A thread calls the context while the function waits for it."""
    told: list[Any] = []

    def late() -> None:
        for name in ("a", "b"):
            try:
                told.append(ctx.step(name, lambda: "it ran"))
            except ApprovalsError as error:
                told.append(error.code)

    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    return ",".join(map(str, told))


@step(durability="sync")
def _note(n: int) -> int:
    with (Path(os.environ["KILLING_WORLD"]) / "lines").open("a") as file:
        file.write(f"{n} 0\n")
    return n


@workflow(name="spoilers-healthy", version=1)
def healthy(ctx: Context, n: int) -> int:
    return ctx.step("note", _note, n)


def _fork(how: str) -> str:
    """The copy comes back first, in one way or another; what counts is what the process itself returns."""
    if (copy := os.fork()) == 0:
        if how == "raises":
            raise ValueError("in the copy")
        if how == "exits":
            sys.exit(7)
        return "what the copy returned"
    return str(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))


@workflow(name="spoilers-forks", version=1)
def forks(ctx: Context, n: int) -> str:
    ended = [ctx.step(how, _fork, how) for how in ("returns", "raises", "exits")]
    if (copy := os.fork()) == 0:
        ctx.step("in the copy", lambda: n)
    os.waitpid(copy, 0)
    return ",".join(ended)
