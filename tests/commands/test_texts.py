"""What a step returned is shown as it is, whatever it looks like."""

from __future__ import annotations

from typing import Any

import pytest

from approvals import Context, workflow
from approvals.services import runs
from approvals.testing import drive
from tests.commands.conftest import Manage


def say(what: Any) -> Any:
    return what


@workflow(name="commands-say", version=1)
def saying(ctx: Context, what: Any) -> Any:
    return ctx.step("say", say, what)


@pytest.mark.parametrize(
    "text",
    ["plain words", '{"$secret": "looks like one"}', {"value": "plain words"}, {"value": '{"payload": "x"}'}],
)
def test_a_text_stays_a_text(manage: Manage, text: Any) -> None:
    run = runs.start(saying, text)
    drive()
    shown = manage("runs", "show", str(run.id), "--json").document
    assert shown["output"] == text
    assert [entry["data"] for entry in shown["entries"] if entry["kind"] == "step.complete"] == [text]
    assert manage("runs", "show", str(run.id)).code == 0
