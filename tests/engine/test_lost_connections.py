"""A connection that is lost is the database's trouble, and costs a turn no more than it must (CASES 15)."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
from django.db import OperationalError, connection, connections

from approvals import Context, step
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
    first, second = (made(pooled, alias="pooled") for _ in range(2))
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
