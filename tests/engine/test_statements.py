"""What passes below the cursors is refused, written and undone as it would be by way of them."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from approvals import Context, step
from approvals.models import Message
from approvals.services import runs
from approvals.testing import drive
from tests.engine.make import calls, case, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")


class Names(str, Enum):  # noqa: UP042 - its text is not what it prints
    GATHER = "gather"


@step(durability="sync")
def one() -> int:
    return 1


def signals_another() -> None:
    runs.signal(calls[0], "go", 1)


@flow
def waits(ctx: Context, n: Any) -> Any:
    return ctx.wait(ctx.signal("go")).payload


@flow
def named_by_a_member(ctx: Context, n: int) -> Any:
    ctx.step(Names.GATHER, one)
    return ctx.wait(ctx.signal("go")).payload


@flow
def asks_a_service(ctx: Context, n: int) -> None:
    ctx.step("signals another", signals_another)


def test_a_name_that_is_a_member_of_an_enumeration_is_its_text() -> None:
    run = ran(named_by_a_member)
    runs.signal(run.id, "go", 1)
    drive()
    assert runs.get(run.id).output == 1 and runs.replay(run.id).same


def test_a_step_that_asks_a_service_to_write_is_refused() -> None:
    waiting = ran(waits)
    calls.append(waiting.id)
    assert "StepWrites" in case(ran(asks_a_service)).data
    assert not Message.objects.exists() and "wait.resolve" not in kinds(waiting)
