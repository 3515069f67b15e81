"""Every crash point, first and second passage, against everything that a workflow can do.

A dry run counts how often each point is passed; then, for each passage up to the second, a run of the same
workflow dies there. It is driven again by new workers, time passes, people and an operator answer what they
are asked. It ends completed with the same output, and the world was changed at most once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import Group

from approvals import Context, step, workflow
from approvals import faults as points
from approvals.errors import Crashed
from approvals.models import Effect as Row
from approvals.models import Run, Wait
from approvals.services import decisions, reconciliation, runs
from approvals.testing import Peer, assert_invariants, clock, crash_at, drive, peer, pending, people
from tests.engine.shop import (
    Blind,
    Findable,
    Guarded,
    GuardedBlind,
    Order,
    Verifiable,
    buy_blind,
    buy_findable,
    buy_guarded,
    buy_guarded_blind,
)

pytestmark = pytest.mark.usefixtures("engine")


@step(durability="sync")
def plus_one(n: int) -> int:
    return n + 1


def times_two(n: int) -> int:
    return 2 * n


def make_group(name: str) -> str:
    return Group.objects.create(name=name).name


@workflow(name="crash-steps", version=1)
def steps(ctx: Context, n: int) -> int:
    for _ in range(2):
        n = ctx.step("two", times_two, ctx.step("one", plus_one, n))
    return n


@workflow(name="crash-buffered", version=1)
def buffered(ctx: Context, n: int) -> int:
    for _ in range(3):
        n = ctx.step("two", times_two, n)
    ctx.sleep("a while", timedelta(seconds=5))
    return ctx.step("two", times_two, n)


@workflow(name="crash-transaction", version=1)
def transaction(ctx: Context, n: int) -> str:
    names = [ctx.transaction("group", make_group, f"{ctx.run_id}-{i}") for i in range(2)]
    return str(len(names))


@workflow(name="crash-waits", version=1)
def waits(ctx: Context, n: int) -> str:
    ctx.sleep("a while", timedelta(seconds=5))
    message = ctx.wait(ctx.signal("go"))
    either = ctx.wait_any(ctx.timer("long", timedelta(hours=1)), ctx.signal("on"))
    return f"{message.payload} {either.name}"


@workflow(name="crash-child", version=1)
def parent(ctx: Context, n: int) -> int:
    return ctx.wait(ctx.child("steps", steps, n)) + 1


@workflow(name="crash-approval", version=1)
def approved(ctx: Context, order: Order) -> str:
    decision = ctx.approval("may I", policy="one-reviewer", action=order, effect=Guarded, title="Buy?")
    return ctx.effect("order", Guarded, order, approved_by=decision).request.sku


@workflow(name="crash-everything", version=1)
def everything(ctx: Context, order: Order) -> str:
    """An order that is verified at every later resume, between steps and waits; then one that people approve."""
    quantity = ctx.step("two", times_two, ctx.step("one", plus_one, order.quantity))
    first = ctx.effect("order", Verifiable, Order(sku=order.sku, quantity=quantity))
    ctx.sleep("a while", timedelta(seconds=5))
    second = ctx.effect("guarded", GuardedBlind, Order(sku="B"), title="Buy?")
    return f"{first.request.quantity} {second.request.sku}"


@dataclass(frozen=True)
class Scene:
    """A workflow and the peers that it meets."""

    name: str
    flow: Any
    input: Any
    peers: tuple[tuple[type, str], ...] = ()


ORDER = Order()
SCENES = [
    Scene("steps", steps, 1),
    Scene("buffered steps, timer", buffered, 1),
    Scene("transaction", transaction, 1),
    Scene("timer, signal, either", waits, 1),
    Scene("child", parent, 1),
    Scene("approval, then effect", approved, ORDER, ((Guarded, "apply"),)),
    Scene("everything", everything, ORDER, ((Verifiable, "apply"), (GuardedBlind, "lose"))),
    *(
        Scene(f"{effect.kind} {mode}", flow, ORDER, ((effect, mode),))
        for effect, flow, modes in (
            (Blind, buy_blind, ("apply", "deduplicate", "lose", "late")),
            (Findable, buy_findable, ("apply", "deduplicate", "lose", "late")),
            (Guarded, buy_guarded, ("apply", "late")),
            (GuardedBlind, buy_guarded_blind, ("deduplicate", "lose")),
        )
        for mode in modes
    ),
]


TWICE = {
    "steps",
    "transaction",
    "shop.findable apply",
    "shop.blind deduplicate",
    "shop.guarded apply",
    "everything",
}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the passages of every crash point."""
    passed: Counter[str] = Counter()
    reach: Callable[[str], None] = points.reach

    def counting(point: str) -> None:
        passed[point] += 1
        reach(point)

    with mock.patch.object(points, "reach", counting):
        yield passed


@contextmanager
def every_time(point: str, most: int) -> Iterator[Counter[str]]:
    """Dies at each passage of a point, at most so often."""
    passed: Counter[str] = Counter()
    reach: Callable[[str], None] = points.reach

    def dying(at: str) -> None:
        reach(at)
        if at == point and passed[point] < most:
            passed[point] += 1
            raise Crashed(point)

    with mock.patch.object(points, "reach", dying):
        yield passed


class World:
    """People who answer what they are asked, and an operator who looks for himself."""

    def __init__(self, ledgers: list[Peer]) -> None:
        self.ledgers = ledgers
        self.who = people()

    def run_to_the_end(self, scene: Scene) -> Run:
        run = runs.start(scene.flow, scene.input, requester=self.who.requester)
        for _ in range(25):
            drive()
            row = Run.objects.get(pk=run.id)
            if row.finished_at is not None:
                return row
            for ledger in self.ledgers:
                ledger.land()
            if not self._answer(run):
                clock.shift(timedelta(seconds=20))
        raise AssertionError(
            f"{scene.name} does not end: {list(Wait.objects.filter(status='open').values())}"
        )

    def _answer(self, run: Any) -> bool:
        """Somebody does something; whoever is cut off in the middle tries again."""
        for asked in pending(run):
            with self._again():
                decisions.decide(
                    asked.id, actor=self.who.reviewers[0], outcome="approved", digest=asked.digest
                )
            return True
        for wait in Wait.objects.filter(run=run.id, status="open"):
            if wait.kind == "signal":
                runs.signal(run.id, wait.name, "now", message_id=str(wait.pk))
                return True
            if wait.kind == "reconciliation":
                return self._settle(wait)
        return False

    @contextmanager
    def _again(self) -> Iterator[None]:
        try:
            yield
        except Crashed:
            return

    def _settle(self, wait: Wait) -> bool:
        assert wait.name == "in doubt", wait.data
        effect = Row.objects.get(run=wait.run_id, status="in_doubt")
        there = any(effect.key in ledger.keys for ledger in self.ledgers)
        if not there and (
            effect.deadline_at is None or clock_now() < effect.deadline_at + timedelta(seconds=5)
        ):
            return False
        reconciliation.resolve(
            wait.pk,
            actor=self.who.operator,
            resolution="confirm" if there else "disprove",
            note="looked myself",
            external_id=f"peer:{effect.key}" if there else None,
        )
        return True


def clock_now() -> Any:
    from approvals.clock import now

    return now()


@contextmanager
def stage(scene: Scene) -> Iterator[World]:
    with ExitStack() as stack:
        modes: list[tuple[type, Any]] = list(scene.peers)
        yield World([stack.enter_context(peer(effect, mode)) for effect, mode in modes])


def output(run: Run) -> str:
    return (run.output or "").replace(str(run.pk), "RUN")


def check(scene: Scene, world: World, run: Run, expected: str, where: str) -> None:
    assert (run.status, output(run)) == ("completed", expected), f"{where}: {run.error}"
    for ledger in world.ledgers:
        assert len(ledger.requests) == 1, f"{where}: applied {len(ledger.requests)} times"
    if scene.flow is transaction:
        assert Group.objects.filter(name__startswith=str(run.pk)).count() == 2, where


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.name)
def test_no_crash_point_loses_a_run_or_repeats_an_effect(scene: Scene) -> None:
    with stage(scene) as world, counted() as passed:
        clean = world.run_to_the_end(scene)
        check(scene, world, clean, output(clean), "without a crash")
    passages = [(point, n) for n in (1, 2) for point in points.POINTS if passed[point] >= n]
    for point, n in passages:
        with stage(scene) as world, crash_at(f"{point}:{n}"):
            run = world.run_to_the_end(scene)
            assert points._armed[point][0] <= 0, f"{point}:{n} was not reached"
        check(scene, world, run, output(clean), f"{point}:{n}")
    assert_invariants()


@pytest.mark.parametrize("scene", [s for s in SCENES if s.name in TWICE], ids=lambda s: s.name)
def test_a_worker_that_dies_at_the_same_point_again_and_again(scene: Scene) -> None:
    for point in points.POINTS:
        with stage(scene) as world, every_time(point, 3) as passed:
            run = world.run_to_the_end(scene)
        check(scene, world, run, output(run), f"{point}, {passed[point]} times")
    assert_invariants()


def test_the_scenes_pass_every_point() -> None:
    total: Counter[str] = Counter()
    for scene in (steps_scene := SCENES[0], SCENES[6]):
        with stage(scene) as world, counted() as passed:
            world.run_to_the_end(scene)
        total += passed
    assert set(total) == set(points.POINTS) and steps_scene.flow is steps
