"""Small workflows that bring a run into every state that the admin shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

from pydantic import BaseModel, SecretStr

from approvals import MATCH, Context, Effect, Receipt, Verification, workflow
from approvals.models import Reconciliation
from approvals.services import runs
from approvals.testing import crash_at, decide, drive, peer, people


class Order(BaseModel):
    sku: str
    token: SecretStr = SecretStr("hunter2-hunter2")


class Blind(Effect[Order]):
    kind = "admin.blind"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")


class Findable(Effect[Order]):
    kind = "admin.findable"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")

    def lookup(self, request: Order, key: str) -> Receipt[Order] | None:
        raise AssertionError("tests replace the peer")

    def verify(self, receipt: Receipt[Order]) -> Verification:
        return MATCH


class Guarded(Effect[Order]):
    kind = "admin.guarded"
    policy = "one-reviewer"
    risk = "high"
    reversible = False

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")

    def describe(self, request: Order) -> str:
        return f"Orders one {request.sku}"


@workflow(name="admin-blind", version=1)
def blind(ctx: Context, order: Order) -> str:
    return ctx.effect("order", Blind, order).external_id


@workflow(name="admin-findable", version=1)
def findable(ctx: Context, order: Order) -> str:
    receipt = ctx.effect("upload", Findable, order)
    ctx.wait(ctx.signal("go"))
    return receipt.external_id


@workflow(name="admin-guarded", version=1)
def guarded(ctx: Context, order: Order) -> str:
    return ctx.effect("order", Guarded, order, title=f"Order {order.sku}").external_id


broken = True


@workflow(name="admin-crashing", version=1)
def crashing(ctx: Context, order: Order) -> str:
    ctx.wait(ctx.timer("a moment", timedelta(seconds=0)))
    if broken:
        raise KeyError(order.sku)
    return order.sku


def in_doubt() -> Any:
    """A case: a blind peer acted, and its answer was lost with the worker."""
    with peer(Blind):
        run = runs.start(blind, Order(sku="A"), key="doubt")
        with crash_at("performed"):
            drive()
        drive()
    return case_of(run)


def contradicted(what: str = "missing") -> Any:
    """A case: what had been made is gone, or is something else, when the run is resumed."""
    with peer(Findable) as shop:
        run = runs.start(findable, Order(sku="B"))
        drive()
        runs.signal(run.id, "go", {"by": "test"})
        shop.keys.clear()
        if what == "changed":
            changes: dict[str, Any] = {
                "verify": lambda self, receipt: Verification.CHANGED,
                "lookup": lambda self, request, key: Receipt("peer:other", checksum="9f2c"),
            }
            with mock.patch.multiple(Findable, **changes):
                drive()
        else:
            drive()
    return case_of(run)


def crashed() -> Any:
    """A case: the workflow's own code raised."""
    run = runs.start(crashing, Order(sku="C"))
    drive()
    return case_of(run)


def asked() -> Any:
    """A run that waits for people."""
    with peer(Guarded):
        run = runs.start(guarded, Order(sku="D"), requester=people().requester)
        drive()
    return run


def decided() -> Any:
    """A run that people approved, and that is over."""
    with peer(Guarded):
        run = runs.start(guarded, Order(sku="E"), requester=people().requester, key="order-e")
        drive()
        decide(run, people().reviewers[0], "approved", comment="Looks right.")
        drive()
    return run


def case_of(run: Any) -> Any:
    return Reconciliation.objects.get(run=run.id, kind="reconciliation")
