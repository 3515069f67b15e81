"""Three workflows that use all that can go wrong: for the state machine."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from django.contrib.auth.models import Group
from pydantic import BaseModel

from approvals import Context, step, workflow
from approvals.errors import ChildFailed, EffectRefused, Failed, NotApproved, StepFailed
from tests.model.world import GUARDED, PLAIN, Order

ONE_YES = {
    "slug": "model-two",
    "rules": [{"stages": [{"needed": 2, "from": ["group:reviewers"]}]}],
    "respond_within": "2h",
    "valid_for": "4h",
}
NEEDED = {"model-two": 2, "one-reviewer": 1}


class Errand(BaseModel):
    """What a run of the machine is asked for."""

    peer: Literal["once", "found", "blind"] = "once"
    fails: bool = False


def draft(n: int) -> int:
    return n + 1


@step(durability="sync")
def check(n: int) -> int:
    return 2 * n


@step(durability="none")
def again(n: int) -> int:
    return n - 1


def book(name: str) -> str:
    return Group.objects.create(name=name).name


@workflow(name="model-errand", version=1)
def errand(ctx: Context, asked: Errand) -> str:
    """Steps, an effect, whichever comes first, and an effect that somebody must approve."""
    n = ctx.step("draft", draft, 1)
    ctx.transaction("book", book, f"{ctx.run_id}")
    first = ctx.effect("first", PLAIN[asked.peer], Order(n=n))
    either = ctx.wait_any(ctx.timer("an hour", timedelta(hours=1)), ctx.signal("go"))
    n = ctx.step("again", again, ctx.step("check", check, n))
    try:
        second = ctx.effect("second", GUARDED[asked.peer], Order(n=n), title="May I?").external_id
    except (NotApproved, EffectRefused, StepFailed) as error:
        second = type(error).__name__
    if asked.fails:
        raise Failed("as asked")
    return f"{first.external_id} {either.name} {second}"


@workflow(name="model-quorum", version=1)
def quorum(ctx: Context, asked: Errand) -> str:
    """Two people must agree in time; what they approved is done; a word that may not come in time."""
    order = Order(n=ctx.step("draft", draft, 2))
    effect = GUARDED[asked.peer]
    decision = ctx.approval("may I", policy="model-two", action=order, effect=effect, title="May I?")
    done = ""
    if decision:
        try:
            done = ctx.effect("agreed", effect, order, approved_by=decision).external_id
        except (NotApproved, EffectRefused, StepFailed) as error:
            done = type(error).__name__
    word = ctx.wait(ctx.signal("on", expires_in=timedelta(hours=1)))
    return f"{decision.outcome} {done} {type(word).__name__}"


@workflow(name="model-family", version=1, compensate=True)
def family(ctx: Context, asked: Errand) -> str:
    """Something that is undone where the child, or this run, fails."""
    done = ctx.effect("own", PLAIN[asked.peer], Order(n=ctx.step("draft", draft, 3)))
    child = ctx.child("errand", errand, asked)
    word = ctx.signal("go")
    try:
        told, _ = ctx.wait_all(child, word)
    except ChildFailed as error:
        raise Failed(f"the child {error}"[:40]) from None
    return f"{done.external_id} {told}"


FLOWS = (errand, quorum, family)
