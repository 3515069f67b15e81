"""Small workflows that the pages are tried on."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, Field, SecretStr

from approvals import Check, Context, Diff, Effect, Object, Receipt, StoredFile, Text, workflow


class Letter(BaseModel):
    """What to send, and to whom."""

    to: str = Field(max_length=100)
    body: str = Field("Good morning", max_length=20_000)
    copies: int = Field(1, ge=1, le=9)


class Send(Effect[Letter]):
    """Counts as sent: the world outside is not what these tests are about."""

    kind = "browser.send"
    policy = "one-reviewer"
    risk: Literal["low", "medium", "high"] = "medium"

    def perform(self, request: Letter, key: str) -> Receipt[Letter]:
        return Receipt(f"letter:{key}")

    def describe(self, request: Letter) -> str:
        return f"Send a letter to {request.to}"

    def target(self, request: Letter) -> str:
        return f"letterbox of {request.to}"


class Seal(Send):
    """A letter that two reviewers must agree on."""

    kind = "browser.seal"
    policy = "two-reviewers"
    risk = "high"
    reversible = False


def draft(letter: Letter) -> str:
    return f"Dear {letter.to},\n{letter.body}"


@workflow(name="browser-letter", version=1, startable_by=["requesters", "operators"])
def letter(ctx: Context, request: Letter) -> str:
    """Sends a letter, once a reviewer has read it."""
    text = ctx.step("draft", draft, request)
    sent = ctx.effect(
        "send",
        Send,
        request,
        title=f"Letter to {request.to}",
        summary="Somebody asked for it.",
        evidence=[
            Check("the address is known", True, "it is in the book"),
            Check("nobody is offended", None, "cannot be said"),
            Diff("since the last letter", {"body": "Good evening"}, {"body": request.body}),
            Text("the letter", text),
            Object("the letter, to be kept", StoredFile.put(text.encode(), "letter.txt")),
        ],
    )
    return sent.external_id


class Address(BaseModel):
    """Where somebody lives."""

    street: str
    town: str = "Bilbao"


class Order(BaseModel):
    """One field of every kind that a form knows."""

    customer: str = Field(max_length=80, description="As on the invoice")
    express: bool = False
    quantity: int = Field(1, ge=1)
    price: Decimal = Decimal("9.90")
    colour: Literal["red", "green", "blue"] = "red"
    on: date | None = None
    at: datetime | None = None
    notes: list[str] = ["handle with care"]
    address: Address = Address(street="Calle Mayor 1")
    extra: dict[str, str] = {}
    drawing: StoredFile | None = None
    password: SecretStr | None = None


@workflow(name="browser-form", version=1, startable_by=["requesters", "operators"])
def form(ctx: Context, request: Order) -> str:
    """Takes an order, and does nothing with it."""
    return request.customer


def fall(number: int) -> int:
    return number // 0


@workflow(name="browser-broken", version=1, startable_by=["requesters", "operators"])
def broken(ctx: Context, number: int) -> int:
    """Its author has made a mistake: an operator is asked."""
    return fall(number)


@workflow(name="browser-seal", version=1, startable_by=["requesters", "operators"])
def seal(ctx: Context, request: Letter) -> str:
    """Seals a letter, once two reviewers have read it."""
    return ctx.effect("seal", Seal, request, title=f"Sealed letter to {request.to}").external_id


@workflow(name="browser-gate", version=1, startable_by=["requesters", "operators"])
def gate(ctx: Context, steps: int) -> int:
    """Waits for one signal after another; a test moves it on when it has looked."""
    for number in range(steps):
        ctx.wait(ctx.signal(f"gate {number}", schema=int))
    return steps
