"""The deployment's limits: each says what was found and what is allowed, and a run that meets one asks an operator."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core.exceptions import ImproperlyConfigured

from approvals import Context
from approvals.engine import recovery, waits
from approvals.errors import LimitExceeded
from approvals.limits import Limits, limits
from approvals.models import Run
from approvals.services import runs
from approvals.testing import assert_invariants, clock, crash_at, drive, peer
from durable_app.environment import BASE_DIR
from tests.engine.make import case, flow, ran, resume
from tests.engine.shop import Findable, Order, buy_findable, later, row

pytestmark = pytest.mark.usefixtures("engine")


@flow
def starts_itself(ctx: Context, n: int) -> int:
    return int(ctx.wait(ctx.child("again", starts_itself, n + 1)))


def test_a_workflow_that_starts_itself_for_ever_comes_to_an_end_and_asks() -> None:
    with mock.patch.object(waits, "limits", return_value=Limits(nesting=3)):
        run = ran(starts_itself)
    found = list(Run.objects.order_by("id"))
    assert len(found) == 4 and {r.status for r in found} == {"suspended"}
    told = case(found[-1]).data
    assert '"code": "limit_exceeded"' in told
    for word in (
        str(found[-1].pk),
        "child: again",
        "depth: 4",
        "limit: 3",
        "does this workflow start itself?",
    ):
        assert word in told
    assert_invariants()
    runs.cancel(run.id, actor=None, reason="enough")
    drive()
    assert {r.status for r in Run.objects.all()} == {"cancelled"}


@flow
def long_lived(ctx: Context, n: int) -> int:
    for i in range(n):
        ctx.sleep(f"year {i}", timedelta(days=365))
    return n


def test_a_run_that_goes_on_after_so_long_asks_an_operator_each_time() -> None:
    with mock.patch.object(recovery, "limits", return_value=Limits(run_days=500)):
        run: Any = runs.start(long_lived, 4)
        drive()
        for _ in range(2):
            clock.shift(timedelta(days=366))
            drive()
        assert (
            case(run).name == "too old"
            and '"days": 73' in case(run).data
            and '"limit": 500' in case(run).data
        )
        assert resume(run).status == "suspended"
        clock.shift(timedelta(days=366))
        drive()
        assert not run_stands_at_a_case(run), "an operator's word holds for as long again"
        clock.shift(timedelta(days=366))
        drive()
        assert case(run).name == "too old"
        assert resume(run).output == 4
    assert runs.replay(run.id).same
    assert_invariants()


def run_stands_at_a_case(run: Any) -> bool:
    return Run.objects.filter(pk=run.id, waits__kind="reconciliation", waits__status="open").exists()


def test_a_run_that_is_too_old_can_still_be_cancelled() -> None:
    with mock.patch.object(recovery, "limits", return_value=Limits(run_days=500)):
        run = runs.start(long_lived, 2)
        drive()
        clock.shift(timedelta(days=600))
        runs.cancel(run.id, actor=None, reason="enough")
        drive()
    assert runs.get(run.id).status == "cancelled"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"payload_byte": 1}, "unknown payload_byte; known: payload_bytes"),
        ({"attempts": 0}, "attempts is 0; it needs a whole number from 1"),
        ({"attempts": True}, "attempts is True"),
        ({"nesting": 1.5}, "nesting is 1.5"),
        ({"run_days": float("nan")}, "run_days is nan; it needs a number from 0"),
        ({"turn_seconds": "60"}, "turn_seconds is '60'"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_its_name(given: Any, told: str, settings: Any) -> None:
    settings.APPROVALS_LIMITS = given
    with pytest.raises(ImproperlyConfigured, match="APPROVALS_LIMITS: .*" + told.partition(";")[0]):
        limits.__wrapped__()


@flow
def does_it_alone(ctx: Context, n: int) -> str:
    try:
        told = str(ctx.wait(ctx.child("again", does_it_alone, n + 1)))
    except LimitExceeded as error:
        told = error.code
    ctx.sleep("a while", timedelta(hours=1))
    return told


def test_a_refused_child_that_its_author_foresaw_is_refused_again_by_replay_whatever_the_limit_is_then() -> (
    None
):
    with mock.patch.object(waits, "limits", return_value=Limits(nesting=1)):
        run = ran(does_it_alone)
    for _ in range(2):
        clock.shift(timedelta(hours=1))
        drive()
    assert (runs.get(run.id).output, Run.objects.count()) == ("limit_exceeded", 2)
    assert_invariants()


def test_a_run_that_is_too_old_and_in_doubt_is_settled_and_cancelled_without_an_operator() -> None:
    with mock.patch.object(recovery, "limits", return_value=Limits(run_days=0)), peer(Findable) as shop:
        run = runs.start(buy_findable, Order())
        with crash_at("performed"):
            drive()
        later(seconds=1)
        assert case(run).name == "too old" and row(run).status == "in_doubt"
        runs.cancel(run.id, actor=None, reason="enough")
        later(seconds=60)
    assert runs.get(run.id).status == "cancelled" and row(run).status == "committed"
    assert len(shop.requests) == 1
    assert_invariants()


def test_readme_has_every_limit_and_its_default() -> None:
    text = (BASE_DIR / "README.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) ", text, re.MULTILINE))
    assert told == {field.name: f"{getattr(Limits(), field.name):,}" for field in fields(Limits)}
