"""What the first page of a list costs where much lies behind it: PostgreSQL's plans."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import clock
from approvals.models import Approval, Audience, PolicyVersion
from approvals.queries import access, inbox, runs_pages
from approvals.queries.access import Viewer
from approvals.testing import People
from tests.engine.crowds import MANY, crowd, plans, waits_of
from tests.transitions import make

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.postgres]

TABLES = ("approvals_run", "approvals_wait", "approvals_approval", "approvals_audience")


@pytest.fixture
def vera(who: People) -> Viewer:
    """A reviewer who sees of these runs only what asks her."""
    return access.viewer(who.reviewers[0])


def ask_often(**wait: Any) -> None:
    """Every reviewer is asked about each of many runs."""
    body = {"slug": "p", "rules": [{"stages": [{"needed": 1, "from": ["group:reviewers"]}]}]}
    policy = PolicyVersion.objects.create(
        slug="p", version=1, body=json.dumps(body), digest=make.DIGEST, created_at=clock.now()
    )
    common = {"action": "{}", "digest": make.DIGEST, "title": "t", "policy": policy, "rule": 0, "needed": 1}
    made = waits_of(crowd(status="suspended"), kind="approval", **wait)
    asked = Approval.objects.bulk_create(Approval(wait=w, workflow_version=1, **common) for w in made)
    Audience.objects.bulk_create(Audience(approval=a, source="group:reviewers") for a in asked)


def assert_reads_few(plan: str) -> None:
    """Along an index, as far as the page goes: nothing is read whole, and nothing is sorted."""
    for table in TABLES:
        assert f"Seq Scan on {table} " not in plan, plan
    assert "Sort Key: approvals_wait" not in plan and "hashed SubPlan" not in plan, plan


@pytest.mark.parametrize("show", ["mine", "all"])
def test_an_inbox_reads_as_many_rows_as_it_shows(vera: Viewer, show: Any) -> None:
    ask_often()
    rows = plans(lambda: inbox.inbox(vera, show), "approvals_wait")[0]
    assert "wait_in_inbox" in rows, rows
    assert_reads_few(rows)


def test_the_decided_are_read_from_the_newest_on(vera: Viewer) -> None:
    ask_often(status="resolved", outcome="approved", closed_at=clock.now())
    rows = plans(lambda: inbox.inbox(vera, "decided"), "approvals_wait")[0]
    assert "wait_decided" in rows, rows
    assert_reads_few(rows)


def test_the_newest_runs_are_read_from_the_newest_on(vera: Viewer) -> None:
    ask_often()
    plan = plans(lambda: runs_pages.listed(vera, runs_pages.Filters()), "approvals_run")[0]
    # Runs of the workflows that she sees are looked for by name, which no index has.
    assert_reads_few(plan.replace("Seq Scan on approvals_run ", ""))


def test_who_is_asked_about_one_run_among_many_has_that_one_looked_up() -> None:
    ask_often()
    only = User.objects.create(username="only")
    asked = Approval.objects.order_by("pk")[3]
    Audience.objects.create(approval=asked, source="user:only")
    viewer = access.viewer(only)
    plan = plans(lambda: runs_pages.listed(viewer, runs_pages.Filters()), "approvals_run")[0]
    assert "approvals_audience_pkey" in plan and "SubPlan" not in plan, plan
    assert [row.id for row in runs_pages.listed(viewer, runs_pages.Filters()).rows] == [asked.wait.run_id]


@pytest.mark.parametrize("status", ["failed", "cancelled", "paused"])
def test_the_few_of_a_status_are_found_among_many(vera: Viewer, status: str) -> None:
    crowd(status="suspended")
    asked = runs_pages.Filters(status=status)
    rows = plans(lambda: runs_pages.listed(vera, asked), "approvals_run")[0]
    assert "run_seldom" in rows, rows


def test_no_count_goes_further_than_it_is_told(vera: Viewer) -> None:
    ask_often()
    assert access.counts(vera).waiting == access.MOST_COUNTED + 1 < MANY
