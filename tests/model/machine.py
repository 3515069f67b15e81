"""A state machine over public events: whatever is done in whatever order, what ARCHITECTURE.md promises holds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from approvals import faults as points
from approvals.errors import Crashed
from approvals.models import Run, Wait
from approvals.testing import clock, crash_at, drive
from tests.model.acts import Acts, held_up
from tests.model.flows import FLOWS, Errand
from tests.model.world import ANSWERS, Found, world

SHIFTS = (7, 20, 41, 2_400, 3_700, 9_000, 20_000)
"""Seconds: within a lease and beyond it, beyond deadline and grace, and around what is waited for."""
MOST_RUNS = 3
EVENTS = ("cancel", "undo", "pause", "signal", "approve", "reject", "late")

which = st.integers(0, 3)
times = st.sampled_from([1, 1, 2])
seldom = st.sampled_from([False, False, False, True])
flows = st.sampled_from(FLOWS)
errands = st.builds(Errand, peer=st.sampled_from(["once", "found", "blind"]), fails=seldom)
points_ = st.sampled_from(points.POINTS)
passages = st.integers(1, 3)


def event(**draws: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule; half the time the workers go on right after it."""

    def made(do: Callable[..., None]) -> Any:
        def act(self: Machine, goes_on: bool, **drawn: Any) -> None:
            do(self, **drawn)
            if goes_on:
                self.drives()

        act.__name__ = do.__name__
        made_rule: Any = rule
        return made_rule(goes_on=st.booleans(), **draws)(act)

    return made


class Machine(Acts, RuleBasedStateMachine):
    """The rules; `Acts` does and predicts, `Memory` looks."""

    @initialize(flow=flows, asked=errands)
    def first(self, flow: Any, asked: Errand) -> None:
        self.starts(flow, asked, None)
        self.drives()

    @event(flow=flows, asked=errands, key=st.sampled_from([None, "a"]))
    def start(self, flow: Any, asked: Errand, key: str | None) -> None:
        if len(self.runs) < MOST_RUNS or (flow.name, key) in self.keys:
            self.starts(flow, asked, key)

    # --- people -----------------------------------------------------------------------------------

    @event(
        n=which,
        by=st.sampled_from(["vera", "sam", "vera", "sam", "requester", "outsider"]),
        outcome=st.sampled_from(["approved", "approved", "approved", "rejected", "changes_requested"]),
        stale=seldom,
        key=st.sampled_from([None, None, "k"]),
        times=times,
        dies=seldom,
    )
    def decide(
        self, n: int, by: str, outcome: str, stale: bool, key: str | None, times: int, dies: bool
    ) -> None:
        for _ in range(times if (wait := self.wait_at(n, "approval")) else 0):
            assert wait is not None
            self.decides(wait, by, outcome, stale=stale, key=key, dies=dies)

    @event(n=which, sam=st.booleans())
    def withdraw(self, n: int, sam: bool) -> None:
        if wait := self.wait_at(n, "approval"):
            self.withdraws(wait, sam)

    @event(
        n=which,
        name=st.sampled_from(["go", "on"]),
        payload=st.sampled_from(["x", "x", "y"]),
        message=st.sampled_from("ab"),
        times=times,
    )
    def signal(self, n: int, name: str, payload: str, message: str, times: int) -> None:
        for _ in range(times):
            self.signals(self.run_at(n), name, payload, message)

    # --- operators --------------------------------------------------------------------------------

    @event(n=which, compensate=st.booleans(), times=times)
    def cancel(self, n: int, compensate: bool, times: int) -> None:
        for _ in range(times):
            self.cancels(self.run_at(n), compensate)

    @event(n=which, times=times)
    def pause(self, n: int, times: int) -> None:
        for _ in range(times):
            self.pauses(self.run_at(n))

    @event(n=which, times=times)
    def resume(self, n: int, times: int) -> None:
        for _ in range(times):
            self.resumes(self.run_at(n))

    @event(n=which, how=st.integers(0, 3), times=times)
    def settle(self, n: int, how: int, times: int) -> None:
        if case := self.wait_at(n, "reconciliation"):
            for _ in range(times):
                self.settles(case, how)

    # --- the world --------------------------------------------------------------------------------

    @event(answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=3))
    def peers_will(self, answers: list[str]) -> None:
        world.answers = answers

    @event(n=which)
    def vanish(self, n: int) -> None:
        """Something that was done is gone."""
        kinds = zip(world.kinds, world.keys, strict=True)
        if there := [key for kind, key in kinds if kind.startswith(Found.kind)]:
            world.there.discard(there[n % len(there)])

    @event(seconds=st.sampled_from(SHIFTS))
    def time_passes(self, seconds: int) -> None:
        world.land()  # what is under way lands before its deadline
        clock.shift(timedelta(seconds=seconds))

    # --- workers ----------------------------------------------------------------------------------

    @event(point=points_, passage=passages)
    def crash(self, point: str, passage: int) -> None:
        with crash_at(f"{point}:{passage}"):
            drive()

    @event(point=points_, passage=passages, n=which, event=st.sampled_from(EVENTS), dies=seldom)
    def meanwhile(self, point: str, passage: int, n: int, event: str, dies: bool) -> None:
        """Something happens in the middle of a turn."""

        def happens() -> None:
            run = self.run_at(n)
            if event in ("cancel", "undo"):
                self.cancels(run, event == "undo")
            elif event == "pause":
                self.pauses(run)
            elif event == "signal":
                self.signals(run, "go", "x", "a")
            elif event == "late":
                clock.shift(timedelta(hours=2, minutes=1))
            elif wait := self.wait_at(n, "approval"):
                self.decides(wait, "vera", f"{event}d" if event == "approve" else "rejected")
            if dies:
                raise Crashed(point)

        with held_up(point, passage, happens):
            drive()

    @event(point=points_, passage=passages)
    def zombie(self, point: str, passage: int) -> None:
        self.sleeps_past_its_lease(point, passage)

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        found = self.memory.look()
        assert not found, "\n".join(found)
        odd = Wait.objects.filter(kind="reconciliation", name__in=("crashed", "replay diverged"))
        assert not odd.exists(), list(odd.values())

    def teardown(self) -> None:
        if sys.exc_info()[0] is None and Run.objects.exists():
            self.come_to_an_end()
            self.holds()
        super().teardown()
