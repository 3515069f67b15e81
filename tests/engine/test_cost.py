"""What the hot paths ask of the database, and that what makes them cheap gives nothing up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals import Context, step
from approvals.models import Message, Run, Wait, statements
from approvals.services import runs
from approvals.testing import assert_invariants, clock, drive
from tests.engine.make import commits, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("engine")

HOUR = timedelta(hours=1)
_AROUND = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")


@step(durability="sync")
def one(n: int) -> int:
    return n


@flow
def parks(ctx: Context, n: int) -> Any:
    return ctx.wait(ctx.signal("go")).payload


@flow
def sleeps(ctx: Context, n: int) -> str:
    ctx.sleep("a while", HOUR)
    return "awake"


@flow
def two_then_a_third(ctx: Context, n: int) -> list[Any]:
    first = ctx.wait_any(ctx.signal("a"), ctx.signal("b"), cancel_losers=False)
    return [first.name, ctx.wait(ctx.signal("c")).payload]


@flow
def between(ctx: Context, n: int) -> Any:
    handle = ctx.signal("go")
    ctx.step("one", one, n)
    return ctx.wait(handle).payload


@flow
def never_waits(ctx: Context, n: int) -> str:
    ctx.signal("go")
    return "done"


# --- waits that are opened by what waits for them --------------------------------------------------


@pytest.mark.parametrize("of", [parks, sleeps])
def test_a_run_parks_in_one_commit(of) -> None:
    run = runs.start(of, 0)
    with commits() as made:
        drive()
    assert len(made) == 1
    assert kinds(run) == ["run.start", "run.claim", "wait.open", "run.suspend"]
    assert Wait.objects.get(run=run.id).parked == Wait.TOGETHER
    clock.shift(2 * HOUR)
    runs.signal(run.id, "go", 1)
    drive()
    assert runs.get(run.id).status == "completed"
    assert_invariants()


def test_a_message_that_was_there_closes_the_wait_on_arrival() -> None:
    run = runs.start(parks, 0)
    runs.signal(run.id, "go", "early")
    drive()
    assert "run.yield" not in kinds(run) and "run.suspend" not in kinds(run)
    assert runs.get(run.id).output == "early" and runs.replay(run.id).same
    assert_invariants()


def test_what_lost_on_arrival_wakes_nobody_later() -> None:
    run = runs.start(two_then_a_third, 0)
    runs.signal(run.id, "a", 1)
    drive()
    runs.signal(run.id, "b", 2)
    drive()
    assert runs.get(run.id).status == "suspended"
    runs.signal(run.id, "c", 3)
    drive()
    assert runs.get(run.id).output == ["a", 3] and runs.replay(run.id).same
    assert kinds(run).count("run.wake") == 1
    assert_invariants()


def test_a_wait_comes_into_the_journal_before_the_step_that_follows_it() -> None:
    run = ran(between)
    assert kinds(run)[2:4] == ["wait.open", "step.sync.complete"]
    runs.signal(run.id, "go", "now")
    drive()
    assert runs.get(run.id).output == "now" and runs.replay(run.id).same
    assert_invariants()


def test_a_wait_that_nobody_waits_for_is_in_the_journal_all_the_same() -> None:
    run = ran(never_waits)
    assert kinds(run)[2:] == ["wait.open", "wait.cancel", "run.complete"]
    assert runs.replay(run.id).same
    assert_invariants()


def test_a_signal_costs_few_statements() -> None:
    run = ran(parks)
    with CaptureQueriesContext(connection) as captured:
        runs.signal(run.id, "go", 1)
    sent = [q["sql"] for q in captured.captured_queries if not q["sql"].startswith(_AROUND)]
    # lock, due, waiting; message, wait, run with its entries (SQLite: now, and each entry by itself).
    assert len(sent) <= (6 if connection.vendor == "postgresql" else 9), sent


# --- statements below the cursors ------------------------------------------------------------------


def test_whoever_watches_the_connection_sees_every_statement() -> None:
    seen: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    run = runs.start(between, 0)
    with connection.execute_wrapper(watch):
        drive()
    assert kinds(run)[3] == "step.sync.complete"
    assert sum("INSERT INTO approvals_entry" in sql for sql in seen) >= 3  # claim, wait and step, suspension


def test_a_statement_is_prepared_again_when_the_server_has_forgotten_it() -> None:
    run = runs.start(parks, 0)
    for _ in range(2):
        assert statements.run("SELECT seq FROM approvals_run WHERE id = %s", [run.id]) == [(1,)]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("DEALLOCATE ALL")


def test_values_of_every_kind_come_back_as_they_went() -> None:
    run = runs.start(parks, 0)
    message = Message(
        run_id=run.id, name='a "b" \\ é', message_id="1", payload="{}", received_at=run.created_at
    )
    statements.insert(message)
    (found,) = statements.fetch(Message, "run_id = %s AND name = %s", [run.id, message.name])
    assert (found.run_id, found.wait_id, found.received_at) == (run.id, None, run.created_at)
    statements.update(found, {"status": Message.Status.LATE})
    assert Message.objects.get(pk=found.pk).status == "late"
    assert statements.fetch(Run, "id = %s AND verify_due = %s", [run.id, False])[0].input == "0"


def test_a_failed_statement_raises_djangos_error_and_ends_its_transaction_alone() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        statements.run("SELECT nothing FROM nowhere WHERE 1 = %s", [1])
    with pytest.raises(DatabaseError):
        statements.run("SELECT nothing FROM nowhere WHERE 1 = %s", [1])
    assert statements.run("SELECT count(*) FROM approvals_run WHERE seq < %s", [0]) == [(0,)]


def test_a_text_with_nul_is_refused_rather_than_cut_off() -> None:
    with pytest.raises(ValueError, match="NUL"):
        statements.as_text("a\0b")
