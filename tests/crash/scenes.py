"""The workflows that are killed at every boundary, and what the world must look like after each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from approvals import Context, Text, step, workflow
from approvals.workflows.registry import Durability
from tests.crash.peers import MAIL, REFUND, RESERVE, Asked, Kind

TWO_OF_THREE = """
slug: crash-two-of-three
rules:
  - stages: [{needed: 2, from: ["group:crash"]}]
"""
GATE = "one-reviewer"


class Trip(BaseModel):
    """How a scene is played; `every`: every step commits by itself; `labels`: how the draft is labelled."""

    peer: Kind = "once"
    every: bool = False
    draft: Durability = "async"
    turns: int = 15


def _think(turn: int, seen: str) -> str:
    return hashlib.sha256(f"{turn} {seen}".encode()).hexdigest()


def _look(thought: str) -> str:
    return thought[::-1] * 8


def _draft(about: str) -> str:
    """What a model writes: other words each time it is asked."""
    return f"{about[:8]} {os.urandom(16).hex()}"


def _variants[F: Callable[..., Any]](fn: F) -> dict[Durability, F]:
    """The same function with each label, under names of their own so that no label reaches another's."""

    def labelled(durability: Durability) -> Any:
        @step(durability=durability)
        def call(*args: Any) -> str:
            return str(fn(*args))

        return call

    return {label: labelled(label) for label in ("async", "sync", "none")}


THINK, LOOK, DRAFT = _variants(_think), _variants(_look), _variants(_draft)


def _pure(ctx: Context, trip: Trip, turns: range, seen: str) -> str:
    """Turns of an agent that only thinks and looks: a model's answer, and what the tool that it chose showed."""
    label: Durability = "sync" if trip.every else "async"
    for turn in turns:
        thought = ctx.step(f"think {turn}", THINK[label], turn, seen[:64])
        seen = ctx.step(f"look {turn}", LOOK[label], thought)
    return seen


@workflow(name="crash-agent", version=1)
def agent(ctx: Context, trip: Trip) -> str:
    """Twenty turns: fifteen pure, a reservation, a draft, an approval, a refund, a mail."""
    one, two = trip.turns * 2 // 5, trip.turns * 4 // 5
    seen = _pure(ctx, trip, range(one), "")
    booked = ctx.effect("reserve", RESERVE[trip.peer], Asked(what="a seat", note=seen[:16]))
    seen = _pure(ctx, trip, range(one, two), booked.external_id)
    draft = ctx.step("draft", DRAFT["sync" if trip.every else trip.draft], seen)
    refund = Asked(what="refund", amount_minor=12_500, note=booked.external_id)
    said = ctx.approval(
        "refund?",
        policy=GATE,
        action=refund,
        effect=REFUND[trip.peer],
        title="Refund 125.00",
        evidence=[Text("Draft", draft)],
    )
    paid = ctx.effect("refund", REFUND[trip.peer], refund, approved_by=said)
    seen = _pure(ctx, trip, range(two, trip.turns), paid.external_id)
    return ctx.effect("mail", MAIL[trip.peer], Asked(what="mail", note=draft)).external_id


@workflow(name="crash-gate", version=1)
def gate(ctx: Context, trip: Trip) -> str:
    seen = _pure(ctx, trip, range(2), ctx.key or "")
    asked = Asked(what="refund", note=seen[:8])
    return ctx.effect("refund", REFUND[trip.peer], asked, policy=GATE, title="Refund").external_id


@workflow(name="crash-children", version=1)
def children(ctx: Context, trip: Trip) -> str:
    """Two gates in parallel children: their parent goes on when both are decided (CASES 12)."""
    both = [ctx.child(f"child {n}", gate, trip) for n in (1, 2)]
    told = ctx.wait_all(*both)
    return ctx.effect("mail", MAIL[trip.peer], Asked(what="mail", note=" ".join(told))).external_id


@workflow(name="crash-quorum", version=1)
def quorum(ctx: Context, trip: Trip) -> str:
    """Two of three people, against a timer; the timer that loses is closed with the winner."""
    ctx.sleep("a moment", timedelta(minutes=1))  # no machine is so slow that it has passed already
    asked = Asked(what="refund", amount_minor=99)
    question = ctx.request_approval(
        "refund?", policy="crash-two-of-three", action=asked, effect=REFUND[trip.peer], title="Refund 0.99"
    )
    first = ctx.wait_any(question, ctx.timer("too late", timedelta(hours=1)))
    if first.id != question.id:
        return "too late"
    return ctx.effect("refund", REFUND[trip.peer], asked, approved_by=question.value).external_id


@workflow(name="crash-loop", version=1)
def loop(ctx: Context, trip: Trip) -> str:
    """The same gate three times; each question is answered for itself (CASES 9)."""
    seen = ""
    for n in range(3):
        seen = _pure(ctx, trip, range(n, n + 1), seen)
        asked = Asked(what="refund", amount_minor=n)
        seen = ctx.effect("refund", REFUND[trip.peer], asked, policy=GATE, title=f"Refund {n}").external_id
    return seen


def write_line(run: str, n: int) -> int:
    """A row of the application's own, in a table in which nothing is unique: a second one would stay."""
    from django.contrib.admin.models import ADDITION, LogEntry

    return LogEntry.objects.create(user_id=1, object_id=run, action_flag=ADDITION, object_repr=str(n)).pk


@workflow(name="crash-tables", version=1)
def tables(ctx: Context, trip: Trip) -> str:
    """Transactions that write the application's own tables, around an effect."""
    for n in range(3):
        seen = _pure(ctx, trip, range(n, n + 1), "")
        ctx.transaction(f"write {n}", write_line, str(ctx.run_id), n)
        if n == 1:
            ctx.effect("mail", MAIL[trip.peer], Asked(what="mail", note=seen[:8]))
    return "written"


@dataclass(frozen=True)
class Scene:
    """A workflow, and how often the world must have done what when it is over."""

    flow: Any
    applied: Mapping[str, int]
    lines: int = 0
    roles: Sequence[str] = ("worker", "web", "sweeper")
    """Who has anything to do in it, and so can die."""


SCENES = {
    "agent": Scene(agent, {"reserve": 1, "refund": 1, "mail": 1}),
    "children": Scene(children, {"refund": 2, "mail": 1}, roles=("worker", "web", "sweeper", "outbox")),
    "quorum": Scene(quorum, {"refund": 1}),
    "loop": Scene(loop, {"refund": 3}),
    "tables": Scene(tables, {"mail": 1}, lines=3, roles=("worker", "sweeper")),
}
