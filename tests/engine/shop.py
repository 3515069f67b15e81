"""A shop whose orders are effects of every kind; the tests of effects, crashes and races buy there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

from pydantic import BaseModel

from approvals import MATCH, Context, Effect, Receipt, Retry, Verification, workflow
from approvals.models import Approval
from approvals.models import Effect as Row
from approvals.services import decisions, policies, reconciliation, runs
from approvals.testing import Peer, clock, decide, drive, pending, people
from tests.engine.make import case


class Order(BaseModel):
    sku: str = "A"
    quantity: int = 1


class _Shop(Effect[Order]):
    def perform(self, request: Order, key: str) -> Receipt[Order]:
        raise AssertionError("tests replace the peer")


class Blind(_Shop):
    kind = "shop.blind"


class Findable(_Shop):
    kind = "shop.findable"

    def lookup(self, request: Order, key: str) -> Receipt[Order] | None:
        raise AssertionError("tests replace the peer")


class Verifiable(Findable):
    kind = "shop.verifiable"

    def verify(self, receipt: Receipt[Order]) -> Verification:
        return MATCH


class Guarded(Findable):
    kind = "shop.guarded"
    policy = "one-reviewer"


class GuardedBlind(_Shop):
    kind = "shop.guarded-blind"
    policy = "one-reviewer"


class Claimed(Findable):
    """No policy of its own: a policy claims its kind."""

    kind = "shop.claimed"


class Once(_Shop):
    kind = "shop.once"
    retry = Retry(attempts=1)


class Targeted(Guarded):
    kind = "shop.targeted"

    def target(self, request: Order) -> str:
        return f"shelf {request.sku}"


class Other(Guarded):
    kind = "shop.other"


def buying(effect: type[Effect[Order]], name: str = "") -> Any:
    """The workflow that places one order."""

    def buy(ctx: Context, order: Order) -> str:
        receipt = ctx.effect("order", effect, order, title="Order it")
        return f"{receipt.request.sku}×{receipt.request.quantity} {receipt.external_id}"

    buy.__qualname__ = f"buying.{effect.__name__}"
    return workflow(name=name or f"buy-{effect.kind.removeprefix('shop.')}", version=1)(buy)


buy_blind, buy_findable, buy_once = buying(Blind), buying(Findable), buying(Once)
buy_guarded, buy_guarded_blind = buying(Guarded), buying(GuardedBlind)
buy_claimed, buy_targeted = buying(Claimed), buying(Targeted)
BUYING: dict[type[Effect[Order]], Any] = {
    Blind: buy_blind,
    Findable: buy_findable,
    Once: buy_once,
    Guarded: buy_guarded,
    GuardedBlind: buy_guarded_blind,
    Claimed: buy_claimed,
    Targeted: buy_targeted,
}


@workflow(name="buy-then-wait", version=1)
def buy_then_wait(ctx: Context, order: Order) -> str:
    """Buys, waits for a word, and uses the receipt."""
    receipt = ctx.effect("order", Verifiable, order)
    ctx.wait(ctx.signal("go"))
    return f"{receipt.external_id} {receipt.checksum} {receipt.key}"


@contextmanager
def answers(effect: type[Effect[Any]], *script: Any) -> Iterator[list[str]]:
    """The peer answers call by call: an exception is raised (nothing is applied), a text is a mode of `peer`.

    After the script, it works as `peer` has it. Yields the keys of the calls.
    """
    works: Callable[..., Any] = effect.perform
    left, keys = list(script), []

    def perform(self: Any, request: Any, key: str) -> Any:
        keys.append(key)
        answer = left.pop(0) if left else "apply"
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            return answer(request, key)
        receipt = works(self, request, key)
        if answer == "lose":
            raise ConnectionError("the answer was lost")
        return receipt

    with mock.patch.object(effect, "perform", perform):
        yield keys


def reads(answer: Any) -> Any:
    """Every read-back of the shop says this, or raises it."""
    side = {"side_effect": answer} if isinstance(answer, Exception) else {"return_value": answer}
    return mock.patch.object(Verifiable, "verify", **side)


def bought() -> Any:
    """A run that has bought, and waits for a word."""
    run = runs.start(buy_then_wait, Order())
    drive()
    return run


def lose_it(shop: Peer, key: str) -> None:
    """What the peer had is gone."""
    at = shop.keys.index(key)
    del shop.keys[at], shop.requests[at]


def later(**delta: float) -> int:
    """Time passes, then everything runs."""
    clock.shift(timedelta(**delta))
    return drive()


def settle(run: Any, resolution: str, **more: Any) -> None:
    """An operator settles the open case of a run."""
    reconciliation.resolve(
        case(run).pk, actor=people().operator, resolution=resolution, note="looked myself", **more
    )


def row(run: Any) -> Row:
    """The one effect of a run."""
    return Row.objects.get(run=run.id)


def status(run: Any) -> str:
    """Where a run is."""
    return runs.get(run.id).status


def error(run: Any) -> str:
    """By what kind of error a run failed."""
    told = runs.get(run.id).error
    return told["type"] if told else ""


def summary(run: Any) -> str:
    """The summary of the one open approval."""
    (one,) = pending(run)
    return Approval.objects.get(pk=one.id).summary


REVIEWERS = [{"needed": 1, "from": ["group:reviewers"]}]
TWO = [{"needed": 2, "from": ["group:reviewers"]}]


def load(slug: str = "p", **more: Any) -> None:
    """A policy that asks one reviewer, unless `more` says otherwise."""
    policies.load({"slug": slug, "rules": [{"stages": REVIEWERS}], **more})


def start(flow: Any, order: Order | None = None) -> Any:
    """A run of the requester's, driven until idle."""
    run = runs.start(flow, order or Order(), requester=people().requester)
    drive()
    return run


def approve(run: Any, which: int = 0, name: str | None = None) -> None:
    """One reviewer approves the one open approval, or that of a policy."""
    if name is None:
        decide(run, people().reviewers[which], "approved")
        return
    wait = Approval.objects.get(wait__run=run.id, wait__status="open", policy__slug=name)
    decisions.decide(wait.pk, actor=people().reviewers[which], outcome="approved", digest=wait.digest)
