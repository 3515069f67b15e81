"""The database in steps, which may only read it, and in transactions, which write exactly once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from approvals import Context, Retry, step
from approvals.engine.turn import Turn
from approvals.errors import ContextMisuse, StepFailed, StepWrites
from approvals.models import Entry, Run
from approvals.services import runs
from approvals.testing import assert_invariants, clock, crash_at, drive
from tests.engine.make import calls, case, code, commits, flow, kinds, ran, resume

pytestmark = pytest.mark.usefixtures("checked")


def double(n: int) -> int:
    calls.append("double")
    return 2 * n


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
def counting(ctx: Context, n: int) -> int:
    ctx.step("double", double, n)
    return ctx.transaction("count", Entry.objects.filter(kind="step.complete").count)


def test_results_that_have_waited_are_committed_before_a_transaction_s_body_which_may_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep = Turn.keep

    def kept(self: Turn, *args: Any, **options: Any) -> None:
        keep(self, *args, **options)
        self._buffered_since -= 1

    monkeypatch.setattr(Turn, "keep", kept)
    assert ran(counting).output == 1


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


@step(retry=Retry(attempts=2))
def refused_at_commit() -> None:
    Group.permissions.through.objects.create(group_id=999, permission_id=999)


@flow
def dangling(ctx: Context, n: int) -> None:
    ctx.transaction("dangle", refused_at_commit)


def test_a_commit_that_the_database_refuses_completes_no_position() -> None:
    run = ran(dangling)
    assert run.status == "suspended" and Run.objects.get().position == 0
    clock.shift(timedelta(seconds=2))
    drive()
    assert runs.get(run.id).status == "failed" and kinds(run).count("transaction.fail") == 1


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


def ends_by_hand(statement: str) -> None:
    Group.objects.create(name="g")
    with transaction.atomic():
        Group.objects.create(name="h")  # a savepoint is no end
    with connection.cursor() as cursor:
        cursor.execute(statement)


@flow
def ended_by_hand(ctx: Context, statement: str) -> None:
    ctx.transaction("end", ends_by_hand, statement)


@pytest.mark.parametrize("statement", ["COMMIT", "/* all */ Rollback", "end transaction", "BEGIN"])
def test_a_transaction_is_not_ended_by_its_body(statement: str) -> None:
    run = ran(ended_by_hand, statement)
    assert "is ended by the engine" in case(run).data and statement in case(run).data
    assert Group.objects.count() == 0
    assert kinds(run)[2:] == ["wait.open", "run.stop"]


@flow
def timed_transaction(ctx: Context, n: int) -> str:
    try:
        ctx.transaction("quick", timed_orm)
    except ContextMisuse:
        return "refused"
    return ""


def test_a_timeout_that_could_not_be_kept_is_refused() -> None:
    assert ran(timed_transaction).output == "refused"
