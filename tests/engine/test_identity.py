"""Who a person is does not depend on what they are called; and keys that make a decision once."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from approvals import Context, queries
from approvals.errors import DecisionRefused, InvalidInput, PermissionRefused
from approvals.models import Approval, Decision, Run
from approvals.services import decisions, policies, runs
from approvals.testing import decide, drive, peer, pending, people
from tests.engine.make import flow, ran
from tests.engine.shop import Blind, Order

pytestmark = pytest.mark.usefixtures("checked")

ASKS = {"slug": "asks", "rules": [{"stages": [{"needed": 1, "from": ["group:reviewers"]}]}]}


@pytest.fixture(autouse=True)
def _loaded(engine):
    policies.load(ASKS)
    policies.load(
        {**ASKS, "slug": "two", "rules": [{"stages": [{"needed": 2, "from": ["group:reviewers"]}]}]}
    )


@flow
def ask(ctx: Context, policy: str) -> str:
    return ctx.approval("ask", policy=policy, action=1, title="t").outcome


@flow
def buy(ctx: Context, n: int) -> str:
    return ctx.effect("buy", Blind, Order(), policy="asks").external_id


def renamed(account: Any, name: str) -> Any:
    account.username = name
    account.save()
    return account


def again(account: Any) -> Any:
    """Removes an account and makes another one of its name, with the same group."""
    name = account.username
    account.delete()
    made = get_user_model()._default_manager.create(username=name)
    made.groups.add(Group.objects.get(name="reviewers"))
    return made


def test_a_requester_who_is_renamed_still_cannot_approve_their_own_run() -> None:
    asker, other = people().reviewers
    run = ran(ask, "asks", requester=asker)
    renamed(asker, "somebody else")
    with pytest.raises(DecisionRefused, match="asked for it"):
        decide(run, asker, "approved")
    assert not queries.may_decide(Approval.objects.get(), asker).ok
    decide(run, renamed(other, "vera-reviewers"), "approved")  # the requester's old name excludes nobody


def test_a_requester_is_looked_up_by_account_for_conditions() -> None:
    who = people().reviewers[0]
    when = {"when": "'reviewers' in requester.groups", "stages": [{"needed": 1, "from": ["group:reviewers"]}]}
    policies.load({"slug": "in-group", "rules": [when]})
    run = runs.start(ask, "in-group", requester=who)
    renamed(who, "somebody else")
    drive()
    assert len(pending(run)) == 1


def test_an_account_of_the_same_name_is_not_the_reviewer_who_approved() -> None:
    who = people().reviewers
    with peer(Blind) as shop:
        run = ran(buy)
        decide(run, who[0], "approved")
        successor = again(who[0])
        drive()
        assert shop.calls == []
        first, fresh = Approval.objects.order_by("wait_id")
        assert "vera-reviewers is no longer known" in first.invalidated and fresh.invalidated == ""
        decide(run, successor, "approved")
        drive()
        assert runs.get(run.id).status == "completed" and len(shop.calls) == 1


def test_a_reviewer_who_is_renamed_has_still_approved() -> None:
    who = people().reviewers
    with peer(Blind) as shop:
        run = ran(buy)
        decide(run, who[0], "approved")
        renamed(who[0], "somebody else")
        drive()
        assert runs.get(run.id).status == "completed" and len(shop.calls) == 1


# --- keys ------------------------------------------------------------------------------------------


def test_the_same_key_gives_the_earlier_answer_whatever_happened_since() -> None:
    who = people().reviewers
    run = ran(ask, "two")
    (asked,) = pending(run)
    said: dict[str, Any] = {"actor": who[0], "outcome": "approved", "digest": asked.digest, "key": "k"}
    first = decisions.decide(asked.id, **said)
    assert decisions.decide(asked.id, **said) == first
    decisions.withdraw(asked.id, actor=who[0])
    assert decisions.decide(asked.id, **said).outcome == "approved"
    assert Decision.objects.count() == 1, "a late repetition is not a new decision"
    decisions.decide(asked.id, **{**said, "key": "k2"})
    decisions.decide(asked.id, **{**said, "actor": who[1], "key": "k3"})
    drive()
    assert decisions.decide(asked.id, **said).result == "approved"
    assert Decision.objects.filter(key="k").count() == 1 and Decision.objects.count() == 3


def test_the_same_key_with_anything_else_is_refused() -> None:
    who = people().reviewers
    run = ran(ask, "two")
    (asked,) = pending(run)
    said: dict[str, Any] = {"actor": who[0], "outcome": "approved", "digest": asked.digest, "key": "k"}
    decisions.decide(asked.id, **said)
    for other in ({"actor": who[1]}, {"actor": None}, {"outcome": "rejected"}, {"digest": "d" * 64}):
        with pytest.raises(InvalidInput, match="key"):
            decisions.decide(asked.id, **{**said, **other})
    for bad in ("", "x" * 201, "a\x00b"):
        with pytest.raises(InvalidInput):
            decisions.decide(asked.id, **{**said, "key": bad})
    assert Decision.objects.count() == 1


# --- starting --------------------------------------------------------------------------------------


def test_nobody_without_an_active_account_starts_a_run() -> None:
    who = people().requester
    removed = get_user_model()(username="nobody")
    get_user_model()._default_manager.filter(pk=who.pk).update(is_active=False)
    for account in (who, removed):
        with pytest.raises(PermissionRefused):
            runs.start(ask, "asks", requester=account)
    assert not Run.objects.exists()
