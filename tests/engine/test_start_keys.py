"""One key, one input, one run (CASES 50)."""

from __future__ import annotations

from typing import Any

import pytest

from approvals import Context
from approvals.errors import RunConflict
from approvals.services import runs
from tests.engine.make import flow

pytestmark = pytest.mark.usefixtures("checked")


@flow
def waits(ctx: Context, n: Any) -> Any:
    return ctx.wait(ctx.signal("go")).payload


@pytest.mark.parametrize(("one", "other"), [({"a": 1}, {"a": True}), (0, False), ([1], [True])])
def test_true_is_not_one_for_a_start_key(one: Any, other: Any) -> None:
    first = runs.start(waits, one, key="k")
    assert runs.start(waits, one, key="k").id == first.id
    with pytest.raises(RunConflict):
        runs.start(waits, other, key="k")
