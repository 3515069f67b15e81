"""What the sweeper and the claim cost when there is nothing for them: PostgreSQL's plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import connection

from approvals import clock, facts
from approvals.engine import sweeper
from approvals.models import Approval, Outbox, PolicyVersion
from approvals.transitions import claim, guard, locked
from approvals.transitions import waits as wait_events
from tests.engine.crowds import crowd, plans, waits_of
from tests.transitions import make

pytestmark = pytest.mark.usefixtures("engine")


@pytest.mark.postgres
def test_what_is_not_due_costs_nothing() -> None:
    later = clock.now() + timedelta(days=2)
    waits_of(crowd(status="suspended"), kind="timer", due_at=later)
    plan = plans(sweeper._apply_due, "approvals_wait")[0]
    assert "wait_due" in plan and "Index Cond: (due_at <=" in plan, plan


def test_a_sweep_that_finds_nothing_asks_three_times_and_writes_nothing(
    django_assert_num_queries: Any,
) -> None:
    with django_assert_num_queries(3 if connection.vendor == "postgresql" else 5) as asked:
        assert sweeper.sweep() == 0
    assert all(query["sql"].lstrip().startswith(("SELECT", "WITH")) for query in asked.captured_queries)


@pytest.mark.postgres
def test_a_sweep_looks_for_work_by_indexes_alone() -> None:
    waits_of(crowd(status="suspended"), kind="timer", due_at=clock.now() + timedelta(days=2))
    plan = plans(sweeper._what_there_is, "approvals_wait")[0]
    for index in ("wait_due", "run_to_cancel", "run_runnable", "wait_for_people"):
        assert index in plan, plan
    assert "Seq Scan on approvals_outbox" in plan or "outbox_due" in plan, plan
    assert "Seq Scan on approvals_run" not in plan and "Seq Scan on approvals_wait" not in plan, plan


@pytest.mark.postgres
def test_a_claim_reads_no_run_that_is_not_ready() -> None:
    crowd(ready_at=clock.now() + timedelta(days=2))
    plan = plans(lambda: claim(make.worker(), [("odd", 1)], 4), "approvals_run")[0]
    assert "run_runnable" in plan and "Index Cond: (ready_at <=" in plan, plan


@pytest.mark.postgres
@pytest.mark.parametrize("asked", ["check", "to invalidate", "withdraw", "cancel the child"])
def test_what_happens_to_one_run_reads_no_table(asked: str) -> None:
    body = {"slug": "p", "rules": [{"stages": [{"needed": 1, "from": ["group:reviewers"]}]}]}
    policy = PolicyVersion.objects.create(
        slug="p", version=1, body=json.dumps(body), digest=make.DIGEST, created_at=clock.now()
    )
    common = {"action": "{}", "digest": make.DIGEST, "title": "t", "policy": policy, "rule": 0, "needed": 1}
    some = crowd(status="suspended")
    made = waits_of(some, kind="approval")
    Approval.objects.bulk_create(Approval(wait=w, workflow_version=1, **common) for w in made)
    effect = make.effect(some[0], policies=json.dumps([{"slug": "p", "version": 1}]))
    mine = Approval.objects.get(pk=made[0].pk)
    mine.effect = effect
    mine.save()

    def check() -> None:
        with locked(some[0].pk) as tx, mock.patch.object(facts, "required", return_value=[policy]):
            guard.check(tx, effect, 1)

    def withdraw() -> None:
        with locked(some[0].pk) as tx:
            wait_events._withdraw_effect(tx, mine, "rejected")

    work: dict[str, tuple[Callable[[], Any], str]] = {
        "check": (check, "approvals_approval"),
        "to invalidate": (lambda: guard.approvals_to_invalidate(effect), "approvals_approval"),
        "withdraw": (withdraw, "approvals_approval"),
        "cancel the child": (
            lambda: sweeper._cancel_child(Outbox(kind="cancel_child", subject=made[1].pk)),
            "approvals_run",
        ),
    }
    for plan in plans(*work[asked]):
        assert "Seq Scan on approvals_approval" not in plan and "Seq Scan on approvals_run" not in plan, plan
        assert "Seq Scan on approvals_wait" not in plan, plan
