"""A receipt that cannot be stored at once: the process that has it keeps it, and asks no person (CASES 22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection

from approvals.engine import receipts
from approvals.services import runs
from approvals.testing import drive, peer, people
from approvals.transitions import effects as events
from tests.engine.make import case, kinds
from tests.engine.shop import Blind, Order, buy_blind, row, status

pytestmark = pytest.mark.usefixtures("checked")


def lost(times: int, *, lands: bool) -> Any:
    """The connection is lost on the commit of a receipt, so often: before it lands, or after."""
    left, commit = [times], connection.commit
    record: Callable[..., Any] = events.commit

    def cut() -> None:
        mock.patch.stopall()
        if lands:
            commit()
        connection.close()
        raise OperationalError("the connection is lost")

    def recorded(*args: Any) -> None:
        record(*args)
        if left[0]:
            left[0] -= 1
            mock.patch.object(connection, "commit", cut).start()

    return mock.patch.object(events, "commit", recorded)


def test_a_receipt_is_stored_when_the_database_is_back() -> None:
    with peer(Blind) as shop, lost(2, lands=False):
        run = runs.start(buy_blind, Order())
        drive()
    assert (status(run), row(run).status, len(shop.calls)) == ("completed", "committed", 1)
    assert kinds(run).count("run.claim") == 1 and kinds(run).count("effect.commit") == 1


def test_a_receipt_whose_commit_landed_unheard_is_not_stored_twice() -> None:
    with peer(Blind) as shop, lost(1, lands=True):
        run = runs.start(buy_blind, Order())
        drive()
    assert (status(run), row(run).status, len(shop.calls)) == ("completed", "committed", 1)
    assert kinds(run).count("run.claim") == 2 and kinds(run).count("effect.commit") == 1


def test_a_database_that_stays_away_leaves_the_doubt_to_a_person() -> None:
    with (
        peer(Blind) as shop,
        lost(1, lands=False),
        mock.patch.object(receipts, "PATIENCE_SECONDS", -1.0),
    ):
        run = runs.start(buy_blind, Order())
        drive()
    assert case(run).name == "in doubt" and len(shop.calls) == 1


def test_a_pause_that_somebody_asks_for_meanwhile_gives_no_receipt_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The heartbeat tells a turn to stop; it cannot tell it to forget what only this process knows."""
    store = receipts.store

    def asked(call: Any, *args: Any) -> None:
        runs.pause(run.id, actor=people().operator, reason="hold it")
        call.turn.stop_asked = True
        store(call, *args)

    monkeypatch.setattr(receipts, "store", asked)
    with peer(Blind) as shop, lost(1, lands=False):
        run = runs.start(buy_blind, Order())
        drive()
    assert (status(run), row(run).status, len(shop.calls)) == ("paused", "committed", 1)


class Clock:
    """A module `time` that goes on by itself, and by what is slept."""

    at = 0.0

    def monotonic(self) -> float:
        self.at += 0.01
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def test_a_database_that_reads_and_cannot_write_is_not_asked_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk: each look succeeds at once, each commit fails at once."""
    tried: list[int] = []

    def full(*args: Any) -> None:
        tried.append(1)
        raise OperationalError("no space left on device")

    monkeypatch.setattr(receipts, "time", Clock())
    monkeypatch.setattr(events, "commit", full)
    with peer(Blind):
        run = runs.start(buy_blind, Order())
        drive()
    assert case(run).name == "in doubt"
    assert 10 < len(tried) <= receipts.PATIENCE_SECONDS / receipts._LOOK_SECONDS
