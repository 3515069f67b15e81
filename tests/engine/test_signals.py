"""Messages: early, late, repeated, misfitting, expired; each to the right wait, once (CASES 1–5, 9, 10)."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from pydantic import BaseModel, ConfigDict, Field

from approvals import Context, Effect, Expired, Receipt
from approvals.errors import InvalidInput, NotFound, WaitClosed
from approvals.models import Entry, Message, Wait
from approvals.services import runs
from approvals.testing import clock, crash_at, drive, peer
from tests.engine.make import flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked")

done: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    done.clear()


class Paid(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    amount: int = Field(alias="amountMinor", gt=0)
    note: str = ""


class Shop(Effect[Paid]):
    kind = "signals.shop"

    def perform(self, request: Paid, key: str) -> Receipt[Paid]:
        raise AssertionError("tests replace the peer")


@flow
def one(ctx: Context, n: int) -> int:
    paid = ctx.wait(ctx.signal("paid", schema=Paid))
    return paid.payload.amount


@flow
def plain(ctx: Context, n: int) -> list[Any]:
    message = ctx.wait(ctx.signal("go"))
    return [message.id, message.payload, message.received_at.isoformat()]


@flow
def five(ctx: Context, n: int) -> list[int]:
    found = []
    for i in range(5):
        ctx.effect("ask", Shop, Paid(amount=i + 1))
        found.append(ctx.wait(ctx.signal("paid", schema=Paid)).payload.amount)
    return found


@flow
def patient(ctx: Context, n: int) -> list[str]:
    told = []
    for _ in range(2):
        answer = ctx.wait(ctx.signal("go", expires_in=timedelta(hours=1)))
        told.append(f"expired {answer.name}" if isinstance(answer, Expired) else str(answer.payload))
    return told


def long_step(run_id: str) -> str:
    """An unrelated message comes while this runs."""
    done.append("long")

    def send() -> None:
        runs.signal(given[0], "unrelated", 1)
        connection.close()

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    return "long"


given: list[Any] = []


@flow
def interrupted(ctx: Context, n: int) -> str:
    given[:] = [ctx.run_id]
    ctx.step("long", long_step, "")
    return str(ctx.wait(ctx.signal("unrelated")).payload)


def test_a_suspended_run_holds_nothing_and_goes_on_with_the_message() -> None:
    run = ran(one)
    assert run.status == "suspended"
    runs.signal(run.id, "paid", {"amountMinor": 5}, message_id="m1")
    assert runs.get(run.id).status == "pending"
    drive()
    assert runs.get(run.id).output == 5


@pytest.mark.parametrize("payload", [{"amountMinor": 5}, Paid(amountMinor=5), Paid(amount=5)])  # type: ignore[call-arg]
def test_a_message_before_the_wait_is_kept_for_it(payload: Any) -> None:
    run = runs.start(one, 0)
    runs.signal(run.id, "paid", payload)
    drive()
    assert runs.get(run.id).output == 5
    assert kinds(run)[1] == "message.keep"


def test_a_message_is_given_with_its_id_and_time() -> None:
    run = ran(plain)
    runs.signal(run.id, "go", {"a": [1, None]}, message_id="m1")
    drive()
    assert runs.get(run.id).output[:2] == ["m1", {"a": [1, None]}]
    assert Message.objects.get().received_at.isoformat() == runs.get(run.id).output[2]


@pytest.mark.parametrize("early", [True, False])
def test_a_message_id_counts_once(early: bool) -> None:
    run = runs.start(plain, 0)
    if not early:
        drive()
    for _ in range(3):
        runs.signal(run.id, "go", 1, message_id="same")
    with pytest.raises(InvalidInput):
        runs.signal(run.id, "go", 2, message_id="same")
    assert Message.objects.count() == 1
    drive()
    assert runs.get(run.id).output[1] == 1
    runs.signal(run.id, "go", 1, message_id="same")  # again after the end: what was said stays said
    with pytest.raises(InvalidInput):
        runs.signal(run.id, "go", 2, message_id="same")


@pytest.mark.parametrize("payload", [{"amountMinor": -1}, {"amountMinor": "x"}, {}, 5, None])
def test_a_payload_that_does_not_fit_is_refused_to_its_sender_and_the_run_is_untouched(payload: Any) -> None:
    run = ran(one)
    before = [list(t._default_manager.order_by("pk").values()) for t in (Entry, Wait, Message)]
    with pytest.raises(InvalidInput):
        runs.signal(run.id, "paid", payload)
    assert [list(t._default_manager.order_by("pk").values()) for t in (Entry, Wait, Message)] == before
    runs.signal(run.id, "paid", {"amountMinor": 5})
    drive()
    assert runs.get(run.id).output == 5


def test_an_early_message_that_does_not_fit_is_stored_as_late_and_closes_nothing() -> None:
    run = runs.start(one, 0)
    runs.signal(run.id, "paid", "nonsense", message_id="bad")
    drive()
    assert runs.get(run.id).status == "suspended"
    assert Message.objects.get().status == "late" and "message.refuse" in kinds(run)
    runs.signal(run.id, "paid", {"amountMinor": 5})
    drive()
    assert runs.get(run.id).output == 5


@pytest.mark.parametrize("early", [0, 2, 5])
def test_a_wait_in_a_loop_gets_each_message_once_in_their_order(early: int) -> None:
    with peer(Shop) as shop:
        run = runs.start(five, 0)
        for n in range(1, early + 1):
            runs.signal(run.id, "paid", {"amountMinor": 10 * n})
        drive()
        for n in range(early + 1, 6):
            assert len(shop.requests) == n
            runs.signal(run.id, "paid", {"amountMinor": 10 * n})
            drive()
        assert runs.get(run.id).output == [10, 20, 30, 40, 50]
        assert [r.amount for r in shop.requests] == [1, 2, 3, 4, 5]
        assert Wait.objects.filter(run=run.id, kind="signal").count() == 5


def test_an_expired_wait_does_not_eat_the_next_message() -> None:
    run = ran(patient)
    clock.shift(timedelta(hours=1))
    runs.signal(run.id, "go", "late")  # the sender is the first to notice that the time is over
    first, *rest = Wait.objects.filter(run=run.id).order_by("position")
    assert first.status == "expired" and rest == []
    drive()
    assert runs.get(run.id).output == ["expired go", "late"]


def test_the_timeout_branch_is_taken_for_ever() -> None:
    run = ran(patient)
    clock.shift(timedelta(hours=1))
    with crash_at("claimed"):
        drive()
    runs.signal(run.id, "go", "late")
    drive()
    assert runs.get(run.id).output == ["expired go", "late"]
    assert all(runs.replay(run.id).same for _ in range(5))


def test_a_message_just_before_the_deadline_is_in_time() -> None:
    run = ran(patient)
    due = Wait.objects.get(run=run.id).due_at
    assert due is not None
    clock.shift(timedelta(minutes=59))
    runs.signal(run.id, "go", "in time")
    drive()
    clock.shift(timedelta(hours=2))
    drive()
    assert runs.get(run.id).output == ["in time", "expired go"]


def test_an_unrelated_message_does_not_run_a_long_step_again() -> None:
    assert ran(interrupted).output == "1" and done == ["long"]


def test_messages_of_another_name_or_run_are_not_taken() -> None:
    run, other = ran(plain), ran(plain)
    runs.signal(run.id, "stop", 1)
    runs.signal(other.id, "go", 2)
    drive()
    assert runs.get(run.id).status == "suspended" and runs.get(other.id).output[1] == 2


def test_a_run_is_found_by_workflow_and_key() -> None:
    run = ran(plain, key="k")
    runs.signal((plain.name, "k"), "go", 3)
    drive()
    assert runs.get(run.id).output[1] == 3
    for odd in ((plain.name, "no"), ("no", "k"), uuid4()):
        with pytest.raises(NotFound):
            runs.signal(odd, "go", 1)


def test_a_run_that_is_over_takes_no_message() -> None:
    run = ran(plain)
    runs.signal(run.id, "go", 1)
    drive()
    before = Entry.objects.count()
    with pytest.raises(WaitClosed):
        runs.signal(run.id, "go", 2)
    assert Entry.objects.count() == before and Message.objects.count() == 1


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\x00b", "\ud800"])
def test_odd_names_and_ids_are_refused(bad: str) -> None:
    run = ran(plain)
    with pytest.raises(InvalidInput):
        runs.signal(run.id, bad, 1)
    with pytest.raises(InvalidInput):
        runs.signal(run.id, "go", 1, message_id=bad)
    assert not Message.objects.exists()
