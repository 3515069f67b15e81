"""Steps: durabilities and their commits, retries, timeouts, what may not be done in them, replay's answers."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from approvals import Context, Retry, step
from approvals.engine import positions
from approvals.engine.turn import Turn
from approvals.errors import ContextMisuse, StepFailed, StepTimeout, StepWrites
from approvals.models import Entry, Run, Wait
from approvals.services import runs
from approvals.testing import assert_invariants, clock, crash_at, drive
from tests.engine.make import case, code, commits, flow, kinds, ran, resume

pytestmark = pytest.mark.usefixtures("engine")

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _checked(engine):
    calls.clear()
    yield
    assert_invariants()


def double(n: int) -> int:
    calls.append("double")
    return 2 * n


@step(durability="sync")
def add(a: int, b: int) -> int:
    calls.append("add")
    return a + b


@step(durability="none")
def half(n: int) -> int:
    calls.append("half")
    return n // 2


async def triple(n: int) -> int:
    calls.append("triple")
    await asyncio.sleep(0)
    return 3 * n


# --- durabilities ----------------------------------------------------------------------------------


@flow
def sums(ctx: Context, n: int) -> int:
    return ctx.step("triple", triple, ctx.step("add", add, ctx.step("double", double, n), 1))


@flow
def twelve_async(ctx: Context, n: int) -> int:
    for i in range(12):
        n = ctx.step(f"double {i}", double, n)
    return n


@flow
def twelve_sync(ctx: Context, n: int) -> int:
    for i in range(12):
        n = ctx.step(f"add {i}", add, n, 1)
    return n


@flow
def computed(ctx: Context, n: int) -> int:
    n = ctx.step("half", half, n)
    ctx.sleep("a while", timedelta(seconds=5))
    return ctx.step("half again", half, n)


def test_a_run_completes_with_the_result_of_its_steps() -> None:
    assert ran(sums, 5).output == 33
    assert calls == ["double", "add", "triple"]


def test_twelve_async_steps_cost_one_commit_with_the_completion() -> None:
    run = runs.start(twelve_async, 1)
    with commits() as made:
        drive()
    assert runs.get(run.id).output == 4096
    assert len(made) == 1, made
    assert kinds(run) == ["run.start", "run.claim", *["step.complete"] * 12, "run.complete"]


def test_twelve_sync_steps_cost_one_commit_each() -> None:
    run = runs.start(twelve_sync, 1)
    with commits() as made:
        drive()
    assert runs.get(run.id).output == 13
    assert len(made) == 13, made
    if connection.vendor == "postgresql":
        assert all(sql.startswith("WITH held AS (UPDATE approvals_run") for sql in made), (
            "one fenced statement each"
        )


def test_a_step_that_is_never_stored_is_computed_at_every_resume() -> None:
    run = ran(computed, 20)
    assert calls == ["half"] and "step.complete" not in kinds(run)
    clock.shift(timedelta(seconds=5))
    drive()
    assert runs.get(run.id).output == 5 and calls == ["half"] * 3
    assert [e.position for e in Entry.objects.filter(run=run.id, kind="wait.open")] == [2]


def test_buffered_results_before_a_sync_step_are_committed_with_it() -> None:
    run = runs.start(sums, 5)
    with crash_at("after_flush"):
        drive()
    assert kinds(run) == ["run.start", "run.claim", "step.complete", "step.complete"]
    drive()
    assert runs.get(run.id).output == 33 and calls == ["double", "add", "triple"]


@pytest.mark.parametrize(
    ("point", "again"),
    [
        ("step_done", ["double"]),
        ("before_flush", ["double", "add"]),
        ("after_flush", []),
        ("before_complete", ["triple"]),
    ],
)
def test_after_a_crash_exactly_what_was_not_committed_is_done_again(point: str, again: list[str]) -> None:
    run = runs.start(sums, 5)
    with crash_at(point):
        drive()
    before, calls[:] = list(calls), []
    drive()
    assert runs.get(run.id).output == 33
    assert [c for c in calls if c in before] == again


# --- the buffer ------------------------------------------------------------------------------------


@flow
def slow_second(ctx: Context, n: int) -> int:
    n = ctx.step("double", double, n)
    ctx.progress(1, 3, "beating")
    n = ctx.step("beat", beat, n)
    return ctx.step("double again", double, n)


held: list[Turn] = []


def beat(n: int) -> int:
    """The heartbeat looks at the turn while the second step runs."""
    turn, seen = held[0], []
    for waited in (0.5, 0.6):
        calls.append(waited)
        at = time.monotonic() + waited

        def look(at: float = at) -> None:
            try:
                with mock.patch.object(positions, "time", Fixed(at)):
                    turn.flush_due()
            finally:
                connection.close()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        seen.append(Entry.objects.filter(run=turn.run_id, kind="step.complete").count())
        shown = Run.objects.get(pk=turn.run_id).progress
        assert ("beating" in shown) == (seen[-1] == 1)
    calls.append(seen)
    return n


class Fixed:
    """A module `time` that stands still."""

    def __init__(self, at: float) -> None:
        self.at = at

    def monotonic(self) -> float:
        return self.at


def test_the_heartbeat_commits_a_prefix_so_that_none_waits_longer_than_a_second(monkeypatch) -> None:
    execute = Turn.execute

    def watched(self: Turn) -> None:
        held[:] = [self]
        execute(self)

    monkeypatch.setattr(Turn, "execute", watched)
    since: list[float] = []
    keep = Turn.keep

    def kept(self: Turn, *args: Any, **options: Any) -> None:
        keep(self, *args, **options)
        since.append(self._buffered_since)
        # It looks twice a second: 0.45 s have passed at the first look, 0.55 s at the second.
        self._buffered_since = time.monotonic() + 0.05

    monkeypatch.setattr(Turn, "keep", kept)
    run = ran(slow_second, 1)
    assert calls == ["double", 0.5, 0.6, [0, 1], "double"] and run.output == 4
    assert kinds(run)[2:] == ["step.complete"] * 3 + ["run.complete"]


def test_the_buffer_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(positions, "_BUFFER_ENTRIES", 5)
    run = runs.start(twelve_async, 1)
    with crash_at("after_flush:2"):
        drive()
    assert kinds(run).count("step.complete") == 10
    drive()
    assert runs.get(run.id).output == 4096 and calls.count("double") == 12


# --- retry, failure, timeout -----------------------------------------------------------------------


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"one {one} two {two}")


@step(retry=Retry(attempts=3, first_seconds=1, factor=2))
def flaky() -> str:
    calls.append("flaky")
    if calls.count("flaky") < 3:
        raise OSError("not yet")
    return "done"


@step(retry=Retry(attempts=2))
def hopeless() -> str:
    calls.append("hopeless")
    raise Odd(1, 2)


@step(retry=Retry(attempts=5, on=(OSError,), never=(FileNotFoundError,)))
def picky(name: str) -> str:
    calls.append(name)
    raise {"os": OSError, "never": FileNotFoundError, "other": ValueError}[name](name)


def broken() -> str:
    raise Odd(1, 2)


@step(durability="none")
def broken_none() -> str:
    raise Odd(1, 2)


async def cancelled() -> str:
    raise asyncio.CancelledError


def unspeakable() -> str:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Silent


def dirty() -> str:
    raise ValueError("\x00 \ud800 " + 9999 * "x")


@flow
def flaky_flow(ctx: Context, n: int) -> str:
    return ctx.step("flaky", flaky)


@flow
def failing(ctx: Context, which: str) -> list[str]:
    fn = {
        "broken": broken, "hopeless": hopeless, "none": broken_none, "cancelled": cancelled,
        "unspeakable": unspeakable, "dirty": dirty,
    }[which]  # fmt: skip
    try:
        ctx.step("it", fn)
    except StepFailed as error:
        told = [error.type, error.message, str(error), error.code, str(error.values["step"])]
        ctx.sleep("a while", timedelta(seconds=60))
        return told
    return []


@flow
def uncaught(ctx: Context, n: int) -> str:
    return ctx.step("broken", broken)


def test_a_retry_waits_on_a_timer_and_holds_nothing() -> None:
    run = ran(flaky_flow)
    for waiting, delay in ((1, 1), (2, 2)):
        assert runs.get(run.id).status == "suspended"
        (wait,) = Wait.objects.filter(run=run.id, status="open")
        assert (wait.kind, wait.position, wait.ordinal) == ("timer", 1, waiting)
        assert wait.due_at is not None and (wait.due_at - wait.opened_at).total_seconds() == delay
        clock.shift(timedelta(seconds=delay - 0.5))
        drive()
        assert calls.count("flaky") == waiting, "tried before its time"
        clock.shift(timedelta(seconds=0.6))
        drive()
    assert runs.get(run.id).output == "done" and calls == ["flaky"] * 3


@pytest.mark.parametrize(("name", "tries"), [("os", 5), ("never", 1), ("other", 1)])
def test_only_what_the_retry_names_is_tried_again(name: str, tries: int) -> None:
    run = ran(picky_flow, name)
    for _ in range(6):
        clock.shift(timedelta(seconds=60))
        drive()
    assert calls == [name] * tries and runs.get(run.id).status == "failed"


@flow
def picky_flow(ctx: Context, name: str) -> str:
    return ctx.step("picky", picky, name)


@pytest.mark.parametrize("which", ["broken", "hopeless", "none"])
def test_step_failed_is_the_same_on_the_first_run_and_on_replay(which: str) -> None:
    run = ran(failing, which)
    for _ in range(3):
        clock.shift(timedelta(seconds=60))
        drive()
    told = runs.get(run.id).output
    assert told[:2] == ["Odd", "one 1 two 2"] and told[3:] == ["step_failed", "it"] and "'it'" in told[2]
    assert runs.replay(run.id).same


@pytest.mark.parametrize("which", ["cancelled", "unspeakable", "dirty"])
def test_an_odd_failure_is_a_failure_of_the_step_like_any_other(which: str) -> None:
    run = ran(failing, which)
    clock.shift(timedelta(seconds=60))
    drive()
    assert runs.get(run.id).status == "completed"


def test_an_uncaught_step_failure_ends_the_run_as_failed() -> None:
    run = ran(uncaught)
    assert run.status == "failed" and run.error is not None
    assert (run.error["type"], run.error["code"]) == ("StepFailed", "step_failed")
    assert "one 1 two 2" in run.error["message"]


release = threading.Event()


@step(timeout=timedelta(seconds=0.05))
def stuck(n: int) -> int:
    calls.append("stuck")
    release.wait(20)
    return n


@step(timeout=timedelta(seconds=20))
def quick(n: int) -> int:
    return n + Group.objects.count()


@flow
def timed(ctx: Context, n: int) -> str:
    n = ctx.step("quick", quick, n)
    try:
        ctx.step("stuck", stuck, n)
    except StepTimeout as error:
        told = f"{error.code}: {error}"
        ctx.sleep("a while", timedelta(seconds=5))
        return told
    return "no timeout"


def test_a_step_past_its_timeout_is_abandoned() -> None:
    run = ran(timed, 1)
    release.set()
    clock.shift(timedelta(seconds=5))
    drive()
    assert str(runs.get(run.id).output).startswith("step_timeout: step 'stuck'")
    assert calls == ["stuck"] and kinds(run).count("step.fail") == 1


# --- writes ----------------------------------------------------------------------------------------


def by_orm() -> int:
    return Group.objects.create(name="x").pk


async def by_async_orm() -> int:
    return (await Group.objects.acreate(name="x")).pk


@step(timeout=timedelta(seconds=20))
def timed_orm() -> int:
    return by_orm()


@step(durability="none")
def computed_orm() -> int:
    return by_orm()


def sql(text: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(text)
    return 0


INSERT = "INSERT INTO auth_group (name) VALUES ('x')"
WRITES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "orm": (by_orm, ()),
    "async orm": (by_async_orm, ()),
    "bulk": (lambda: len(Group.objects.bulk_create([Group(name="x")])), ()),
    "in a timeout's thread": (timed_orm, ()),
    "computed": (computed_orm, ()),
    "sql": (sql, (INSERT,)),
    "sql behind a comment": (sql, (f"-- harmless\n /* really */ {INSERT}",)),
    "cte": (sql, ("WITH g AS (SELECT 'x' AS name) INSERT INTO auth_group (name) SELECT name FROM g",)),
    "update by alias": (sql, ("WITH g AS (SELECT 1) UPDATE auth_group AS h SET name = 'x'",)),
    "delete": (sql, ("delete from auth_group",)),
    "select into": (sql, ("SELECT 1 INTO TEMP odd",)),
    "atomic": (transaction.atomic()(by_orm), ()),
}


@flow
def writing(ctx: Context, which: str) -> str:
    fn, args = WRITES[which]
    try:
        ctx.step("write", fn, *args)
    except StepWrites as error:
        calls.append(error)
    ctx.sleep("a while", timedelta(seconds=5))
    return "refused"


@pytest.mark.parametrize("which", WRITES)
def test_a_step_may_not_write(which: str) -> None:
    Group.objects.create(name="there")
    run = ran(writing, which)
    clock.shift(timedelta(seconds=5))
    drive()
    assert list(Group.objects.values_list("name", flat=True)) == ["there"]
    assert runs.get(run.id).output == "refused"
    assert [type(c) for c in calls] == [StepWrites] * 2, "a caught refusal is the same at replay"


READS = (
    "SELECT name FROM auth_group",
    "WITH g AS (SELECT name FROM auth_group) SELECT * FROM g",
    "SELECT 'insert into update set delete from'",
    "SELECT 1 AS updated",
)


@flow
def reading(ctx: Context, n: int) -> int:
    for text in READS:
        ctx.step("read", sql, text)
    return ctx.step("count", Group.objects.count)


def test_a_step_may_read() -> None:
    assert ran(reading).output == 0


@flow
def writing_uncaught(ctx: Context, n: int) -> int:
    ctx.step("before", double, n)
    return ctx.step("write", by_orm)


def test_a_step_that_writes_stops_the_run_and_mended_code_goes_on() -> None:
    run = ran(writing_uncaught, 1)
    assert run.status == "suspended" and case(run).name == "crashed"
    assert '"code": "step_writes"' in case(run).data

    def mended(ctx: Context, n: int) -> int:
        ctx.step("before", double, n)
        return ctx.transaction("write", by_orm)

    with code(writing_uncaught, mended):
        assert resume(run).status == "completed"
        assert Group.objects.filter(name="x").count() == 1 and calls == ["double"]
        assert_invariants()
    Run.objects.all().delete()  # with the old code back in place it would not replay


# --- transactions ----------------------------------------------------------------------------------


def save(name: str) -> int:
    calls.append(name)
    return Group.objects.create(name=name).pk


def save_and_raise(name: str) -> int:
    Group.objects.create(name=name)
    raise OSError("after the write")


@step(retry=Retry(attempts=2))
def save_at_the_second(name: str) -> str:
    calls.append(name)
    Group.objects.create(name=name)
    if len(calls) < 2:
        raise OSError("after the write")
    return name


async def save_async(name: str) -> str:
    return (await Group.objects.acreate(name=name)).name


@flow
def saving(ctx: Context, name: str) -> int:
    n = ctx.step("double", double, 1)
    ctx.transaction("save", save, name)
    return n + ctx.step("count", Group.objects.count)


@pytest.mark.parametrize(
    "point", ["step_done:1", "step_done:2", "step_done:3", "before_complete", "completed"]
)
def test_a_transaction_commits_its_rows_and_its_entry_once(point: str) -> None:
    run = runs.start(saving, "g")
    with crash_at(point):
        drive()
    entries = Entry.objects.filter(run=run.id, kind="transaction.complete")
    assert entries.count() == Group.objects.count()
    drive()
    assert runs.get(run.id).output == 3
    assert Group.objects.count() == 1 and entries.count() == 1


def test_a_transaction_takes_buffered_results_with_it() -> None:
    run = runs.start(saving, "g")
    with commits() as made:
        drive()
    assert len(made) == 2, made
    assert kinds(run)[2:] == ["step.complete", "transaction.complete", "step.complete", "run.complete"]


@flow
def failing_transaction(ctx: Context, n: int) -> str:
    try:
        ctx.transaction("save", save_and_raise, "g")
    except StepFailed as error:
        return f"{error.type} {error.message}"
    return ""


def test_a_transaction_that_raises_is_rolled_back_and_remembered() -> None:
    run = ran(failing_transaction)
    assert run.output == "OSError after the write"
    assert Group.objects.count() == 0 and kinds(run)[2] == "transaction.fail"


@flow
def retried_transaction(ctx: Context, n: int) -> str:
    return ctx.transaction("save", save_at_the_second, "g")


def test_a_transaction_is_tried_again_from_nothing() -> None:
    run = ran(retried_transaction)
    assert Group.objects.count() == 0
    clock.shift(timedelta(seconds=2))
    drive()
    assert runs.get(run.id).output == "g" and Group.objects.count() == 1


@flow
def async_transaction(ctx: Context, n: int) -> str:
    return ctx.transaction("save", save_async, "g")  # type: ignore[return-value]


def test_a_transaction_may_be_async() -> None:
    assert ran(async_transaction).output == "g" and Group.objects.count() == 1


def twice(name: str) -> int:
    Group.objects.create(name=name)
    return Group.objects.create(name=name).pk


@flow
def violating(ctx: Context, n: int) -> str:
    try:
        ctx.transaction("twice", twice, "g")
    except StepFailed as error:
        return error.type
    return ""


def test_a_violated_constraint_is_a_failure_of_the_transaction() -> None:
    assert ran(violating).output == "IntegrityError" and Group.objects.count() == 0


@flow
def timed_transaction(ctx: Context, n: int) -> str:
    try:
        ctx.transaction("quick", quick, 1)
    except ContextMisuse:
        return "refused"
    return ""


def test_a_timeout_that_could_not_be_kept_is_refused() -> None:
    assert ran(timed_transaction).output == "refused"
