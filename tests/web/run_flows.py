"""Small workflows that bring a run into every state that its page shows."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db.models import Max
from pydantic import BaseModel, SecretStr

from approvals import MATCH, Context, Effect, Receipt, Retry, Verification, step, workflow
from approvals.errors import Failed, PolicyDenied, StepFailed
from approvals.models import Entry, Run
from approvals.services import runs
from approvals.testing import crash_at, drive, peer, people

ODD = "pay\u202eload<script>alert(1)</script>"


class Order(BaseModel):
    sku: str = "A"
    steps: int = 1
    token: SecretStr = SecretStr("hunter2-hunter2")


class Upload(Effect[Order]):
    kind = "runpage.upload"
    risk = "high"
    reversible = False

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        return Receipt(f"object:{request.sku}", checksum="9f2c" + "0" * 56 + "e1b0")

    def target(self, request: Order) -> str:
        return f"shelf of {request.sku}"

    def lookup(self, request: Order, key: str) -> Receipt[Order] | None:
        raise AssertionError("tests replace the peer")

    def verify(self, receipt: Receipt[Order]) -> Verification:
        return MATCH


class Publish(Effect[Order]):
    kind = "runpage.publish"
    policy = "one-reviewer"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        return Receipt(f"public:{request.sku}")

    def describe(self, request: Order) -> str:
        return f"Publishes {request.sku}"


class Blind(Effect[Order]):
    kind = "runpage.blind"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")


class Forbidden(Effect[Order]):
    kind = "runpage.forbidden"
    policy = "runpage-never"

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("its policy denies it")


NEVER = {"slug": "runpage-never", "rules": [{"when": "false", "automatic": True}]}

tries: list[int] = []


@step(retry=Retry(attempts=3, first_seconds=1))
def shaky(sku: str) -> str:
    tries.append(1)
    if len(tries) == 1:
        raise ConnectionError("the shelf is away")
    return sku


def count(number: int) -> int:
    return number


@step(durability="sync")
def keep(number: int) -> int:
    return number


def hopeless() -> None:
    raise OSError("no space")


@workflow(name="runpage-story", version=3, startable_by=["operators"])
def story(ctx: Context, order: Order) -> dict[str, Any]:
    """Everything that a journal can hold, nearly."""
    for number in range(order.steps):
        ctx.progress(number, order.steps, f"counting {number}")
        ctx.step(f"count {number}", count, number)
    draft = ctx.effect("upload draft", Upload, order)
    ctx.wait(ctx.signal("go"))
    published = ctx.effect("make public", Publish, order, title=f"Publish {order.sku}")
    return {"draft": draft.external_id, "public": published.external_id}


@workflow(name="runpage-steps", version=1, visible_to=["insiders"])
def steps(ctx: Context, order: Order) -> int:
    for number in range(order.steps):
        ctx.step(f"count {number}", count, number)
    ctx.wait(ctx.signal("go"))
    return order.steps


@workflow(name="runpage-shaky", version=1)
def unsteady(ctx: Context, order: Order) -> str:
    with suppress(StepFailed):
        ctx.step("hopeless", hopeless)
    got = ctx.step("shaky", shaky, order.sku)
    ctx.sleep("a nap", timedelta(days=2))
    return got


@workflow(name="runpage-rest", version=1)
def rest(ctx: Context, order: Order) -> str:
    ctx.step("keep", keep, 6)
    ctx.transaction("book", count, 7)
    ctx.now()
    with suppress(PolicyDenied):
        ctx.effect("forbidden", Forbidden, order)
    answer = ctx.signal("maybe")
    ctx.wait(answer, at_most=timedelta(hours=1))
    return "no answer"


@workflow(name="runpage-family", version=1)
def family(ctx: Context, order: Order) -> str:
    child = ctx.child("the little one", steps, order)
    slow = ctx.timer("too long", timedelta(days=60))
    ctx.wait_any(child, slow)
    return "grown up"


@workflow(name="runpage-failing", version=1)
def failing(ctx: Context, order: Order) -> str:
    raise Failed(f"no {ODD} today")


@workflow(name="runpage-buggy", version=1)
def buggy(ctx: Context, order: Order) -> str:
    raise KeyError(order.sku)


@workflow(name="runpage-odd", version=1)
def odd(ctx: Context, order: Order) -> str:
    ctx.step(ODD, count, 1)
    ctx.step("x" * 5_000, count, 1)
    return ODD


@workflow(name="runpage-blind", version=1)
def blind(ctx: Context, order: Order) -> str:
    return ctx.effect("order", Blind, order).external_id


def waiting(*, requester: Any = None, key: str | None = None, order: Order | None = None) -> Any:
    """A run that has uploaded a draft and waits for its signal."""
    run = runs.start(story, order or Order(), requester=requester or people().requester, key=key)
    with peer(Upload):
        drive()
    return run


def asking(*, key: str | None = None) -> Any:
    """A run that waits for people."""
    run = waiting(key=key)
    with peer(Upload) as shelf:
        shelf.keys.append(f"{run.id}-2-1")
        runs.signal(run.id, "go", {})
        drive()
    return run


def lost_at(point: str) -> Any:
    """A run whose first worker was lost there; another one has brought it to its signal."""
    run = runs.start(story, Order(), requester=people().requester)
    with peer(Upload):
        with crash_at(point):
            drive()
        drive()
    return run


def doubtful() -> Any:
    """A run that stands at a case: a blind peer's answer was lost."""
    run = runs.start(blind, Order(), requester=people().requester)
    with peer(Blind):
        with crash_at("performed"):
            drive()
        drive()
    return run


def grown(run: Any, positions: int) -> None:
    """Makes the journal of a suspended run longer, as a run of so many steps would have left it."""
    row = Run.objects.get(pk=run.id)
    top = Entry.objects.filter(run=row).aggregate(top=Max("position"))["top"]
    last = Entry.objects.filter(run=row).order_by("-seq").first()
    assert last is not None
    rows = [
        Entry(run=row, seq=last.seq + n, position=top + n, kind="step.complete", name=f"long {n}",
              data=str(n), at=last.at + timedelta(seconds=n))
        for n in range(1, positions + 1)
    ]  # fmt: skip
    Entry.objects.bulk_create(rows)
    Run.objects.filter(pk=row.pk).update(seq=last.seq + positions, position=top + positions)
