"""A second database of an author's is the outside world: that it is away fails the step that asked it, and no turn."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.utils import load_backend

from approvals import Context, Failed, Retry, step
from approvals.errors import StepFailed
from approvals.models import Entry
from approvals.services import runs
from approvals.testing import clock, drive
from tests.engine.make import calls, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("checked", "second")


there: list[Any] = []


@pytest.fixture
def second(tmp_path: Path) -> None:
    """Known to Django as `second`, and away."""
    told = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "away" / "second.sqlite3")}
    settings = connections.configure_settings({**connections.settings, "second": told})["second"]
    there[:] = [partial(load_backend(told["ENGINE"]).DatabaseWrapper, settings, "second")]


def ask() -> int:
    calls.append("asked")
    with there[0]().temporary_connection() as cursor:
        cursor.execute("SELECT 1")
    return 1


@step(retry=Retry(attempts=2, first_seconds=1))
def patient() -> int:
    return ask()


@step(timeout=timedelta(seconds=20))
def in_a_thread() -> int:
    return ask()


@flow
def asks(ctx: Context, which: str) -> int:
    try:
        if which == "transaction":
            return ctx.transaction("ask", ask)
        return ctx.step("ask", {"patient": patient, "in a thread": in_a_thread}.get(which, ask))
    except StepFailed as error:
        raise Failed(f"no answer: {error.values['type']}") from None


@pytest.mark.parametrize("which", ["plain", "in a thread", "transaction"])
def test_the_step_that_asked_fails_and_its_author_decides(which: str) -> None:
    run: Any = ran(asks, which)
    assert runs.get(run.id).status == "failed" and "OperationalError" in str(runs.get(run.id).error)
    assert not Entry.objects.filter(run=run.id, kind="run.lose_lease").exists() and calls == ["asked"]


def test_it_is_asked_again_as_the_step_s_retry_says() -> None:
    run = ran(asks, "patient")
    clock.shift(timedelta(seconds=1))
    drive()
    assert runs.get(run.id).status == "failed" and calls == ["asked", "asked"]
    assert "run.lose_lease" not in kinds(run)
