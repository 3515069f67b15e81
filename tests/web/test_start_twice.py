"""One form that is sent twice at the same moment (a double click, an impatient proxy) starts one run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest
from django.db import connections
from django.test import Client

from approvals import Context, workflow
from approvals.models import Run
from approvals.services import runs
from approvals.testing import assert_invariants
from tests.engine.racing import held
from tests.web import doors

ADDRESS = "/workflows/twice-topic/start/"
FORM = {"form_id": "6b1f1c3e-0f3c-4a59-9d0a-6b6f1f2f4a01", "input": "tea"}


@workflow(name="twice-topic", version=1)
def topic(ctx: Context, topic: str) -> str:
    return topic


def posts(browser: Any, *forms: dict[str, str]) -> list[Callable[[], Any]]:
    """As many browsers of one person as there are forms, each about to send its own."""
    rita: Any = doors.account("requester")
    clients = [(browser(rita), form) for form in forms]
    return [lambda c=c, form=form: c.post(ADDRESS, form) for c, form in clients]  # type: ignore[misc]


def answers(*jobs: Callable[[], Any]) -> list[Any]:
    """Sends them all; nobody begins to write before everybody has read what there is to be read."""
    barrier, start = threading.Barrier(len(jobs)), runs.start

    def together(*args: Any, **keys: Any) -> Any:
        barrier.wait(20)
        return start(*args, **keys)

    def send(job: Callable[[], Any]) -> Any:
        try:
            return job()
        finally:
            connections.close_all()

    with mock.patch.object(runs, "start", together), ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result(30) for future in [pool.submit(send, job) for job in jobs]]


def test_the_same_form_starts_one_run(browser: Callable[..., Client]) -> None:
    told = answers(*posts(browser, *[FORM] * 4))
    (run,) = Run.objects.all()
    assert [(a.status_code, a["Location"]) for a in told] == [(303, f"/runs/{run.pk}/")] * 4
    assert_invariants()


def test_one_of_two_inputs_wins_and_the_other_is_told(browser: Callable[..., Client]) -> None:
    told = answers(*posts(browser, FORM, {**FORM, "input": "coffee"}))
    (run,) = Run.objects.all()
    assert sorted(a.status_code for a in told) == [303, 409]
    (refused,) = (a for a in told if a.status_code == 409)
    html = refused.content.decode()
    assert f"/runs/{run.pk}/" in html and "Nothing was started now" in html
    assert ("coffee" in html) == (run.input == '"tea"')  # what they typed is still there


@pytest.mark.postgres
def test_the_same_form_starts_one_run_where_both_insert_at_once(browser: Callable[..., Client]) -> None:
    with held("LOCK TABLE approvals_run IN SHARE MODE") as queue:
        queue.add(*posts(browser, FORM, FORM, {**FORM, "input": "coffee"}))
        first, second, third = queue.go()
    (run,) = Run.objects.all()
    told = [first, second, third]
    won = [a for a in told if a.status_code == 303]
    assert {a["Location"] for a in won} == {f"/runs/{run.pk}/"}
    assert len(won) == (2 if run.input == '"tea"' else 1)
    assert all(f"/runs/{run.pk}/" in a.content.decode() for a in told if a.status_code == 409)
    assert {a.status_code for a in told} == {303, 409}
