"""A commit lands and its answer is lost: the turn that goes on writes nothing twice, and loses nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection

from approvals import Context, journal
from approvals.engine import positions, receipts
from approvals.engine.turn import Turn
from approvals.services import runs
from approvals.states import EffectStatus
from approvals.testing import drive, peer
from approvals.transitions import effects as events
from tests.engine.make import calls, flow, kinds
from tests.engine.shop import Blind, Order, buy_blind, status

pytestmark = pytest.mark.usefixtures("checked")

held: list[Turn] = []


def double(n: int) -> int:
    calls.append(n)
    return 2 * n


@contextmanager
def watched() -> Iterator[None]:
    """The turn that moves the run is `held[0]`."""
    execute = Turn.execute

    def run(self: Turn) -> None:
        held[:] = [self]
        execute(self)

    with mock.patch.object(Turn, "execute", run):
        yield


def beat(write: Callable[..., Any] = journal._write) -> None:
    """The heartbeat looks at the turn when its results have waited long enough."""

    def look() -> None:
        late = mock.Mock(monotonic=lambda: time.monotonic() + 60)
        try:
            with mock.patch.object(positions, "time", late), mock.patch.object(journal, "_write", write):
                held[0].flush_due()
        except OperationalError:
            calls.append("away")
        finally:
            connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()


def lands_unheard(*args: Any, **options: Any) -> Any:
    write(*args, **options)
    raise OperationalError("the connection is lost")


def does_not_land(*args: Any, **options: Any) -> Any:
    raise OperationalError("the connection is lost")


write = journal._write


@flow
def two_steps(ctx: Context, n: int) -> int:
    n = ctx.step("double", double, n)
    return ctx.step("beaten", beaten, n)


beats: list[Callable[..., Any]] = []


def beaten(n: int) -> int:
    for each in beats:
        beat(each)
    return n


@pytest.mark.parametrize("first", [lands_unheard, does_not_land])
@pytest.mark.parametrize("others", [[], [write]], ids=["the end writes next", "the heartbeat writes next"])
def test_a_result_whose_commit_by_the_heartbeat_was_unheard_is_journaled_once(
    first: Any, others: Any
) -> None:
    beats[:] = [first, *others]
    with watched():
        run = runs.start(two_steps, 1)
        drive()
    assert (status(run), calls) == ("completed", [1, "away"])
    assert kinds(run).count("step.complete") == 2


def test_a_receipt_whose_commit_lands_after_one_looked_is_not_stored_twice() -> None:
    record = events.commit

    def cut() -> None:
        mock.patch.stopall()
        connection.commit()
        connection.close()
        raise OperationalError("the connection is lost")

    def recorded(*args: Any) -> None:
        record(*args)
        mock.patch.object(connection, "commit", cut).start()

    def looked_too_early(row: Any, ends: float) -> bool:
        if row.status != EffectStatus.COMMITTED or calls.count("looked"):
            return False
        calls.append("looked")
        row.status = EffectStatus.DISPATCHED
        return True

    with (
        peer(Blind) as shop,
        mock.patch.object(events, "commit", recorded),
        mock.patch.object(receipts, "_is_unrecorded", looked_too_early),
    ):
        run = runs.start(buy_blind, Order())
        drive()
    assert (status(run), len(shop.calls), calls) == ("completed", 1, ["looked"])
    assert kinds(run).count("effect.commit") == 1
