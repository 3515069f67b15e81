"""Workflows for open pages: one that everybody sees, one that only a group sees."""

from __future__ import annotations

from approvals import Context, workflow


@workflow(name="live-open", version=1)
def anybodys(ctx: Context, number: int) -> int:
    return ctx.wait(ctx.signal("go", schema=int)).payload + number


@workflow(name="live-closed", version=1, visible_to=["insiders"])
def insiders(ctx: Context, number: int) -> int:
    return ctx.wait(ctx.signal("go", schema=int)).payload + number
