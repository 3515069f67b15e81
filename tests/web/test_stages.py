"""Stages, needs and wanted comments on the page of an approval; and what older approvals became."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from approvals import queries
from approvals.models import Approval, Decision
from approvals.services import decisions, policies

from . import asking
from .asking import buttons, post, url, words

STAGED = {
    "slug": "staged",
    "rules": [
        {
            "stages": [
                {"name": "review", "needed": 1, "from": ["group:reviewers"]},
                {
                    "name": "sign-off",
                    "all": [{"needed": 1, "from": ["group:law"]}, {"needed": 2, "from": ["group:heads"]}],
                },
            ],
            "reject_after": 2,
            "comment_required": ["rejected", "changes_requested"],
        }
    ],
}


@pytest.fixture
def approval(who: Any) -> Approval:
    policies.load(STAGED)
    who.outsider.groups.add(Group.objects.create(name="law"))
    return asking.ask_about({"policy": "staged"})


def test_stages_are_told_by_name(vera: Client, browser: Any, who: Any, approval: Approval) -> None:
    otto = browser(who.outsider)
    told = words(vera.get(url(approval)))
    for part in (
        "asks 1 of group reviewers (review), then 1 of group law and 2 of group heads (sign-off).",
        "2 people must reject it before it is rejected.",
        "0 of 4 approvals · you may decide",
        "1 more from group reviewers · review",
        "1 more from group law · sign-off, asked later",
        "2 more from group heads · sign-off, asked later",
        "Comment (needed to reject or to ask for changes;",
    ):
        assert part in told
    assert otto.get(url(approval)).status_code == 404, "whoever is not asked yet sees nothing"
    asking.decide(approval, who.reviewers[0])
    told = words(otto.get(url(approval)))
    assert "1 of 4 approvals · you may decide" in told and "vera-reviewers approved · review" in told
    assert "1 more from group law · sign-off" in told and "asked later" not in told
    asking.decide(approval, who.outsider)
    told = words(otto.get(url(approval)))
    assert "2 of 4 approvals" in told and "2 more from group heads · sign-off" in told
    assert "more from group law" not in told


@pytest.mark.parametrize(
    ("outcome", "needs"), [("rejected", "to reject"), ("changes_requested", "to ask for")]
)
def test_a_comment_that_is_needed_is_asked_for(
    vera: Client, approval: Approval, outcome: str, needs: str
) -> None:
    answer = post(vera, approval, outcome, comment=" \u200b")
    assert answer.status_code == 422
    assert f"Nothing was decided yet: policy staged wants a comment {needs}" in words(answer)
    assert buttons(answer) == ["approved", "changes_requested", "rejected"] and not Decision.objects.exists()
    assert post(vera, approval, outcome, comment="No").status_code == 303
    assert Decision.objects.get().comment == "No"


def test_approvals_that_were_decided_before_there_were_stages_keep_their_count(who: Any) -> None:
    two, taken_back, fresh = asking.ask_two(), asking.ask_two(), asking.ask_two()
    for each in (two, taken_back):
        asking.decide(each, who.reviewers[0])
    decisions.withdraw(taken_back.pk, actor=who.reviewers[0])
    done = asking.ask("Ada")
    asking.decide(done, who.reviewers[0])
    executor = MigrationExecutor(connection)
    newest = [leaf for leaf in executor.loader.graph.leaf_nodes() if leaf[0] == "approvals"]
    executor.migrate([("approvals", "0005_unwinding")])
    MigrationExecutor(connection).migrate(newest)
    counted = {a.pk: json.loads(a.progress) for a in Approval.objects.all()}
    assert counted == {two.pk: [[1]], taken_back.pk: [], fresh.pk: [], done.pk: [[1]]}
    assert queries.quorum(Approval.objects.get(pk=two.pk)).got == 1
