"""What is moved while everything around it fails; the outside world is a folder that counts what was done to it."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path

from approvals import Context, Effect, Receipt, step, workflow

_LOOK = threading.Event()  # never set


def world() -> Path:
    """The ledger: a file for each kind and key, one line for each time that it was done."""
    return Path(os.environ["CHAOS_WORLD"])


class _Entry(Effect[str]):
    """Leaves a line in the world."""

    deadline = timedelta(seconds=2)

    def perform(self, request: str, key: str) -> Receipt[str]:
        path = world() / self.kind / key
        path.parent.mkdir(exist_ok=True)
        if not (self.deduplicates and path.exists()):
            with path.open("a") as file:
                file.write(f"{request}\n")
                file.flush()
                os.fsync(file.fileno())
        _LOOK.wait(0.05)  # the answer takes its time
        return Receipt(key)


class _Findable(_Entry):
    def lookup(self, request: str, key: str) -> Receipt[str] | None:
        return Receipt(key) if (world() / self.kind / key).exists() else None


class Reserve(_Findable):
    kind = "chaos.reserve"


class Pay(_Entry):
    kind = "chaos.pay"
    deduplicates = True


class Refund(_Findable):
    kind = "chaos.refund"
    policy = "one-reviewer"


class Mail(_Entry):
    """Nobody can tell whether it went out."""

    kind = "chaos.mail"


def draft(n: int) -> str:
    return f"draft {n}"


@step(durability="sync")
def price(text: str) -> int:
    return len(text)


@workflow(name="chaos-order", version=1)
def order(ctx: Context, n: int) -> str:
    text = ctx.step("draft", draft, n)
    ctx.step("price", price, text)
    reserved = ctx.effect("reserve", Reserve, text)
    ctx.step("draft again", draft, n + 1)
    ctx.effect("pay", Pay, text)
    return reserved.external_id


@workflow(name="chaos-mail", version=1)
def mail(ctx: Context, n: int) -> str:
    return ctx.effect("mail", Mail, ctx.step("draft", draft, n)).external_id


@workflow(name="chaos-refund", version=1)
def refund(ctx: Context, n: int) -> str:
    text = ctx.step("draft", draft, n)
    return ctx.effect("refund", Refund, text, title=f"Refund {n}").external_id


def at_the_gate(n: int) -> int:
    """Until the gate is there: meanwhile the run has a worker."""
    (world() / f"entered-{n}").touch()
    while not (world() / "gate").exists():
        _LOOK.wait(0.05)
    return n


@workflow(name="chaos-gate", version=1)
def gate(ctx: Context, n: int) -> str:
    """Stands at a gate for as long as a test wants; then does one thing to the world."""
    ctx.step("gate", at_the_gate, n)
    return ctx.effect("reserve", Reserve, f"gate {n}").external_id


EFFECTS = {"chaos-order": 2, "chaos-mail": 1, "chaos-refund": 1, "chaos-gate": 1}
"""How often each workflow acts on the world."""
