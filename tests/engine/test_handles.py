"""A handle is of the run whose context gave it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from approvals import Context
from approvals.models import Wait
from approvals.services import runs
from approvals.testing import drive
from tests.engine.make import case, flow, ran

pytestmark = pytest.mark.usefixtures("checked")

given: dict[str, Any] = {}


@flow
def lends(ctx: Context, n: int) -> Any:
    given["handle"] = ctx.signal("go")
    return ctx.wait(given["handle"]).payload


@flow
def borrows(ctx: Context, how: str) -> Any:
    handle = given["handle"]
    if how == "wait":
        return ctx.wait(handle).payload
    if how == "at_most":
        return str(ctx.wait(handle, at_most=timedelta(hours=1)))
    own = ctx.signal("own")
    return str(ctx.wait_any(own, handle) if how == "wait_any" else ctx.wait_all(own, handle))


@pytest.mark.parametrize("how", ["wait", "at_most", "wait_any", "wait_all"])
def test_a_handle_of_another_run_is_refused_rather_than_waited_for_for_ever(how: str) -> None:
    lender = ran(lends)
    other = ran(borrows, how)
    assert case(other).name == "crashed" and "ContextMisuse" in case(other).data
    assert Wait.objects.get(run=lender.id).parked == Wait.TOGETHER
    runs.signal(lender.id, "go", 1)
    drive()
    assert runs.get(lender.id).output == 1
