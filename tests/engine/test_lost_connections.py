"""A connection that is lost is the database's trouble, and costs a turn no more than it must (CASES 15)."""

from __future__ import annotations

import os
import socket
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection, connections

from approvals import Context, step
from approvals.engine import sweeper
from approvals.engine.leases import Lease
from approvals.engine.loop import Worker
from approvals.models import statements
from approvals.models.trouble import is_trouble
from approvals.testing import drive
from tests.engine.make import calls, flow, kinds, ran
from tests.engine.shop import status

pytestmark = [pytest.mark.usefixtures("checked"), pytest.mark.postgres]


def cut() -> None:
    """What a server that is stopped at once leaves: an end, and no word why."""
    connection.ensure_connection()
    with socket.socket(fileno=os.dup(connection.connection.pgconn.socket)) as wire:
        wire.shutdown(socket.SHUT_RDWR)


def end_session() -> None:
    """The server ends this thread's session while nobody uses it."""
    connection.ensure_connection()
    other = connections.create_connection("default")
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
    other.close()


def asked() -> list[tuple[int]]:
    return statements.run("SELECT 1 + %s::int", [1])


def test_a_connection_lost_inside_a_prepared_statement_is_the_database_s_trouble() -> None:
    assert asked() == asked() == [(2,)]
    cut()
    with pytest.raises(OperationalError):
        asked()
    connection.close()
    assert asked() == [(2,)], "another session has not prepared it, and is asked to"


def test_a_connection_that_the_server_has_ended_is_replaced_before_it_is_used() -> None:
    asked()
    end_session()
    statements.freshen()
    assert asked() == [(2,)]


def test_a_connection_that_lives_is_kept() -> None:
    asked()
    session = connection.connection
    statements.freshen()
    assert connection.connection is session


@step(durability="sync")
def outlives_its_connection() -> str:
    calls.append("done")
    end_session()
    return "kept"


@flow
def steps_while_the_database_restarts(ctx: Context, n: int) -> str:
    return ctx.step("long", outlives_its_connection)


def test_a_step_whose_connection_was_ended_meanwhile_is_not_done_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "WHILE_SECONDS", 0)
    run = ran(steps_while_the_database_restarts)
    drive()
    assert (status(run), calls) == ("completed", ["done"])
    assert kinds(run).count("run.claim") == 1


def test_a_pool_that_has_none_left_is_the_database_s_trouble() -> None:
    """So that whoever finds the web process full is told when to come again (503), not that it is broken."""
    own = connection.settings_dict
    pool = {"min_size": 0, "max_size": 1, "timeout": 0.2}
    pooled = {**own, "OPTIONS": {**own["OPTIONS"], "pool": pool}}
    made: Any = type(connections["default"])
    first, second = (made(pooled, alias="default") for _ in range(2))
    try:
        first.ensure_connection()
        with pytest.raises(OperationalError) as none_left:
            second.ensure_connection()
        assert is_trouble(none_left.value)
        first.close()
        second.ensure_connection()
    finally:
        first.close()
        second.close()
        first.close_pool()


@pytest.mark.parametrize("loop", ["sweeper", "heartbeat"])
def test_a_session_that_was_lost_in_the_middle_is_replaced_by_one_as_impatient(loop: str) -> None:
    """A row that a stopped process holds must not hold up whoever keeps the others going."""
    worker = Worker()
    worker.lease = Lease(known=worker.known)
    told: list[str] = []

    def lost(**options: float) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            told.append(cursor.fetchone()[0])
        connection.close()  # as a transaction does that cannot even be rolled back; whoever began it goes on
        if len(told) == 2:
            worker._stopping.set()
            worker._ended.set()
        return 0

    if loop == "sweeper":
        with mock.patch.object(sweeper, "sweep", lost):
            worker._sweeps()
    else:
        with mock.patch.object(worker, "_look_after_turns", lost):
            worker._heartbeat()
    connection.close()
    worker.lease.release()
    assert told == {"sweeper": ["2s", "2s"], "heartbeat": ["500ms", "500ms"]}[loop]
