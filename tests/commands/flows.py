"""Small workflows that the commands are tried on, here and in processes of their own."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, SecretStr

from approvals import Context, Effect, Receipt, workflow


class Order(BaseModel):
    sku: str
    note: SecretStr = SecretStr("")


class Place(Effect[Order]):
    kind = "commands.place"
    policy = "one-reviewer"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        return Receipt(f"order:{key}")


class Lose(Effect[Order]):
    kind = "commands.lose"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise ConnectionError("the answer was lost")


def double(number: int) -> int:
    return 2 * number


@workflow(name="commands-double", version=1)
def doubling(ctx: Context, number: int) -> int:
    return ctx.step("double", double, number)


@workflow(name="commands-order", version=1)
def order(ctx: Context, what: Order) -> str:
    return ctx.effect("place", Place, what, title=f"Order {what.sku}").external_id


@workflow(name="commands-lose", version=1)
def losing(ctx: Context, what: Order) -> str:
    return ctx.effect("send", Lose, what).external_id


@workflow(name="commands-wait", version=1)
def waiting(ctx: Context, number: int) -> str:
    return ctx.wait(ctx.signal("go", schema=Order)).payload.sku


def hold(marker: str) -> None:
    """Says that it has begun, and waits for what nobody writes."""
    os.mkfifo(marker)
    Path(marker).read_bytes()


@workflow(name="commands-hold", version=1)
def holding(ctx: Context, marker: str) -> None:
    ctx.step("hold", hold, marker)


@workflow(name="commands-sleep", version=1)
def sleeping(ctx: Context, seconds: int) -> str:
    ctx.sleep("nap", timedelta(seconds=seconds))
    return "awake"
