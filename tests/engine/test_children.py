"""Children: their output, failure and cancel; the parent's wake is a transaction of its own (CASES 12)."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from pydantic import BaseModel

from approvals import Context, Failed
from approvals.engine import sweeper
from approvals.errors import ChildFailed
from approvals.models import Entry, Outbox, Run, Wait
from approvals.services import runs
from approvals.testing import clock, crash_at, decide, drive, people
from tests.engine.make import case, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")


class Sum(BaseModel):
    total: Decimal


@flow
def adder(ctx: Context, n: int) -> Sum:
    if n < 0:
        raise Failed(f"{n} is negative")
    if n > 10:
        ctx.wait(ctx.signal("go"))
    return Sum(total=ctx.step("double", Decimal, 2 * n))


@flow
def gate(ctx: Context, n: int) -> str:
    return ctx.approval("gate", policy="one-reviewer", action=n, title=f"Gate {n}").outcome


@flow
def parent(ctx: Context, n: int) -> list[str]:
    result = ctx.wait(ctx.child("sum", adder, n))
    return [type(result).__name__, str(result.total)]


@flow
def careful(ctx: Context, n: int) -> str:
    try:
        ctx.wait(ctx.child("sum", adder, n))
    except ChildFailed as error:
        ctx.sleep("a while", timedelta(seconds=5))
        return f"{error.child} {error.outcome} {json.loads(error.error or '{}').get('message')}"  # type: ignore[attr-defined]
    return "well"


@flow
def grandparent(ctx: Context, n: int) -> list[str]:
    return ctx.wait(ctx.child("parent", parent, n))


@flow
def gates(ctx: Context, n: int) -> list[str]:
    return list(ctx.wait_all(*[ctx.child(f"gate {i}", gate, i) for i in range(n)]))


@flow
def impatient(ctx: Context, n: int) -> str:
    won = ctx.wait_any(ctx.child("slow", grandparent, 11), ctx.child("quick", adder, 1))
    return won.name


def child_of(run, name: str = "") -> Run:
    return Run.objects.get(parent_run=run.id, workflow__endswith=name)


def test_a_childs_output_is_decoded() -> None:
    run = ran(parent, 5)
    assert run.output == ["Sum", "10"] and runs.replay(run.id).same
    child = child_of(run)
    assert child.requester_name == run.requester and child.parent_wait == Wait.objects.get(run=run.id).pk


def test_the_childs_end_and_the_parents_wake_are_two_transactions() -> None:
    run = ran(parent, 11)
    child = child_of(run)
    runs.signal(child.pk, "go", 1)
    with crash_at("completed"):
        drive()
    assert Run.objects.get(pk=child.pk).status == "completed" and runs.get(run.id).status == "suspended"
    assert Outbox.objects.get().kind == "child_ended"
    drive()
    assert runs.get(run.id).output == ["Sum", "22"] and not Outbox.objects.exists()


def test_a_child_that_failed_raises_the_same_on_every_replay() -> None:
    run = ran(careful, -1)
    clock.shift(timedelta(seconds=5))
    drive()
    assert runs.get(run.id).output == "sum failed -1 is negative"


def test_a_child_that_was_cancelled_raises() -> None:
    run = ran(careful, 11)
    runs.cancel(child_of(run).pk, actor=people().operator, reason="no")
    drive()
    clock.shift(timedelta(seconds=5))
    drive()
    assert runs.get(run.id).output == "sum cancelled None"


def test_an_uncaught_failure_of_a_child_fails_the_parent() -> None:
    run = ran(grandparent, -1)
    assert run.status == "failed" and run.error is not None and run.error["type"] == "ChildFailed"
    assert child_of(run).status == "failed"


def test_children_of_children_answer() -> None:
    assert ran(grandparent, 3).output == ["Sum", "6"]


def test_a_losing_child_is_asked_to_cancel_and_its_children_with_it() -> None:
    run = ran(impatient)
    assert run.output == "quick"
    slow = child_of(run, "grandparent")
    drive()
    assert slow.status == "cancelled"
    middle = Run.objects.get(parent_run=slow.pk)
    assert middle.status == "cancelled" and Run.objects.get(parent_run=middle.pk).status == "cancelled"
    assert not Outbox.objects.exists()


@pytest.mark.parametrize("how", ["cancel", "complete"])
def test_a_parent_that_ends_asks_its_children_to_cancel(how: str) -> None:
    run = ran(grandparent, 11) if how == "cancel" else ran(forgetful)
    if how == "cancel":
        runs.cancel(run.id, actor=people().operator, reason="enough")
    drive()
    assert set(Run.objects.exclude(pk=run.id).values_list("status", flat=True)) == {"cancelled"}


@flow
def forgetful(ctx: Context, n: int) -> str:
    ctx.child("sum", adder, 11)
    return "done"


def test_several_gates_in_children_are_all_decided_before_the_parent_goes_on() -> None:
    who = people()
    run = ran(gates, 3, requester=who.requester)
    children = list(Run.objects.filter(parent_run=run.id).order_by("created_at"))
    for child, outcome in zip(reversed(children), ("approved", "rejected", "approved"), strict=True):
        assert runs.get(run.id).status == "suspended"
        decide(runs.get(child.pk), who.reviewers[0], outcome)
        drive()
    assert runs.get(run.id).output == ["approved", "rejected", "approved"]
    assert kinds(run).count("run.wake") == 1


def test_a_child_that_ends_twice_over_changes_nothing() -> None:
    """The outbox may be worked off again after a crash."""
    run = ran(parent, 5)
    before = Entry.objects.count()
    row = Outbox(kind="child_ended", subject=child_of(run).pk)
    sweeper._child_ended(row)
    assert Entry.objects.count() == before


@pytest.mark.parametrize(
    "point", ["claimed:1", "claimed:2", "claimed:3", "suspended", "before_complete", "completed:1"]
)
def test_a_crash_starts_one_child_and_loses_no_answer(point: str) -> None:
    run = runs.start(parent, 4)
    with crash_at(point):
        drive()
    drive()
    assert runs.get(run.id).output == ["Sum", "8"] and Run.objects.count() == 2


@flow
def asks_by_name(ctx: Context, n: int) -> None:
    ctx.child("one", "children.child", n)  # type: ignore[arg-type]


def test_a_child_is_no_name() -> None:
    told = json.loads(case(ran(asks_by_name)).data)
    assert told["code"] == "context_misuse" and "'children.child'" in told["message"]
