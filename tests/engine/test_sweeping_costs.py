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
from approvals.models import Approval, Outbox, PolicyVersion, Run, Wait
from approvals.transitions import claim, guard, locked
from approvals.transitions import waits as wait_events
from tests.transitions import make

pytestmark = pytest.mark.usefixtures("engine")


MANY = 5_000


def crowd(**columns: Any) -> list[Run]:
    """Many runs, written at once."""
    now = clock.now()
    common = {"workflow": "odd", "version": 1, "input": "1", "created_at": now, "seq": 1}
    made = [Run(**{**common, "seed": clock.new_id(), "ready_at": now, **columns}) for _ in range(MANY)]
    return Run.objects.bulk_create(made)


def waits_of(some: list[Run], **columns: Any) -> list[Wait]:
    now = clock.now()
    made = [Wait(run=r, position=1, name="w", opened_at=now, **columns) for r in some]
    return Wait.objects.bulk_create(made)


def plans(work: Callable[[], Any], table: str) -> list[str]:
    """How PostgreSQL runs each statement of `work` that reads this table, bound as the statement itself is."""
    seen: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with connection.execute_wrapper(note):
        work()
    found = []
    for sql, params in seen:
        if table in sql and sql.lstrip().startswith(("SELECT", "WITH")):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {sql}", params)
                found.append("\n".join(line for (line,) in cursor.fetchall()))
    assert found, [sql for sql, _ in seen]
    return found


@pytest.mark.postgres
def test_what_is_not_due_costs_nothing() -> None:
    later = clock.now() + timedelta(days=2)
    waits_of(crowd(status="suspended"), kind="timer", due_at=later)
    plan = plans(sweeper._apply_due, "approvals_wait")[0]
    assert "wait_due" in plan and "Index Cond: (due_at <=" in plan, plan


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
