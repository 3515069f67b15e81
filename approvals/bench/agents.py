"""Two agents as workloads: one of twenty turns that does things and asks, and one that works for a minute."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from pydantic import BaseModel

from approvals import Context, Effect, Receipt, step, workflow

PURE_TURNS = 15
ACTS = 3
"""Effects of the long run, evenly among its steps."""


class Deed(BaseModel):
    """What a peer is asked to do."""

    what: str
    note: str = ""


class _Instant(Effect[Deed]):
    """A peer that costs nothing, so that what is measured is the engine."""

    deduplicates = True

    def perform(self, request: Deed, key: str) -> Receipt[Deed]:
        return Receipt(f"peer:{key}")


class Reserve(_Instant):
    kind = "bench.reserve"


class Refund(_Instant):
    kind = "bench.refund"


class Mail(_Instant):
    kind = "bench.mail"


def _think(turn: int, seen: str) -> str:
    return hashlib.sha256(f"{turn} {seen}".encode()).hexdigest()


def _look(thought: str) -> str:
    return thought * 3


@step(durability="sync")
def _think_committed(turn: int, seen: str) -> str:
    return _think(turn, seen)


@step(durability="sync")
def _look_committed(thought: str) -> str:
    return _look(thought)


def _pure(ctx: Context, turns: range, seen: str, *, every: bool) -> str:
    think, look = (_think_committed, _look_committed) if every else (_think, _look)
    for turn in turns:
        seen = ctx.step(f"look {turn}", look, ctx.step(f"think {turn}", think, turn, seen[:64]))
    return seen


def _twenty(ctx: Context, *, every: bool) -> str:
    """Fifteen turns that only think and look, a reservation, a draft, an approval, a refund, a mail."""
    seen = _pure(ctx, range(6), "", every=every)
    booked = ctx.effect("reserve", Reserve, Deed(what="a seat", note=seen[:16]))
    seen = _pure(ctx, range(6, 12), booked.external_id, every=every)
    draft = ctx.step("draft", _look_committed if every else _look, seen[:64])
    refund = Deed(what="refund", note=booked.external_id)
    said = ctx.approval("refund?", policy="one-reviewer", action=refund, effect=Refund, title="Refund 125.00")
    paid = ctx.effect("refund", Refund, refund, approved_by=said)
    _pure(ctx, range(12, PURE_TURNS), paid.external_id, every=every)
    return ctx.effect("mail", Mail, Deed(what="mail", note=draft[:64])).external_id


@workflow(name="bench-selective", version=1)
def selective(ctx: Context, n: int) -> str:
    return _twenty(ctx, every=False)


@workflow(name="bench-full", version=1)
def full(ctx: Context, n: int) -> str:
    return _twenty(ctx, every=True)


class Shift(BaseModel):
    """A long piece of work: `steps` steps that wait for `seconds` each, as for a model's answer."""

    n: int
    steps: int
    seconds: float


def record(n: int) -> Path:
    """One line per step that was begun: process, step, when (seconds since the epoch)."""
    return Path(settings.DATA_DIR) / f"overhead-{n}"


def labour(n: int, turn: int, seconds: float) -> str:
    """One step of it."""
    with record(n).open("a") as file:
        file.write(f"{os.getpid()} {turn} {time.time_ns() / 1e9}\n")
    time.sleep(seconds)
    return "x" * 200


def is_act(turn: int, steps: int) -> bool:
    """Whether something is done in the world after this step."""
    return (turn + 1) % max(steps // (ACTS + 1), 1) == 0 and turn + 1 < steps


@workflow(name="bench-overhead", version=1)
def overhead(ctx: Context, shift: Shift) -> int:
    for turn in range(shift.steps):
        ctx.step(f"labour {turn}", labour, shift.n, turn, shift.seconds)
        if is_act(turn, shift.steps):
            ctx.effect(f"act {turn}", Mail, Deed(what="mail", note=str(turn)))
    return shift.steps


def bare(shift: Shift) -> None:
    """The same work without an engine."""
    peer: Any = Mail()
    for turn in range(shift.steps):
        labour(shift.n, turn, shift.seconds)
        if is_act(turn, shift.steps):
            peer.perform(Deed(what="mail", note=str(turn)), f"bare-{shift.n}-{turn}")
