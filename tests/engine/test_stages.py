"""Stages, needs, rejections and comments, as people meet them: by the one door, and again at dispatch."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from approvals.errors import AlreadyDecided, CommentRequired, DecisionRefused, InvalidPolicy
from approvals.models import Approval, Audience, Decision
from approvals.queries import documents
from approvals.services import decisions, policies, runs
from approvals.testing import assert_invariants, drive, peer, pending
from tests.engine import asking
from tests.engine.shop import Claimed, buy_claimed, error, later, start, status

pytestmark = pytest.mark.usefixtures("engine")


def account(name: str, *groups: str) -> Any:
    user, _ = get_user_model()._default_manager.get_or_create(username=name)
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return user


def need(needed: int, *groups: str, **keys: Any) -> dict[str, Any]:
    return {"needed": needed, "from": [f"group:{group}" for group in groups], **keys}


def load(*stages: dict[str, Any], slug: str = "staged", **rule: Any) -> None:
    policies.load({"slug": slug, "rules": [{"stages": list(stages), **rule}]})


FIRST, THEN = need(1, "money", name="money"), need(1, "law", name="law")


def asked() -> Any:
    return begin(asking.ask)


def begin(flow: Any) -> Any:
    run = runs.start(flow, "staged")
    drive()
    return run


def say(run: Any, name: str, outcome: str = "approved", **more: Any) -> decisions.Decided:
    (waiting,) = pending(run)
    who = get_user_model()._default_manager.get(username=name)
    return decisions.decide(waiting.id, actor=who, outcome=outcome, digest=waiting.digest, **more)


def document(run: Any) -> dict[str, Any]:
    return documents.approval(Approval.objects.get(wait__run=run.id).pk)


def test_stages_are_asked_in_order_and_told_by_name() -> None:
    account("mia", "money"), account("lee", "law")
    load(FIRST, THEN)
    run = asked()
    assert document(run)["stage"] == "money" and document(run)["quorum"] == {"needed": 2, "got": 0}
    with pytest.raises(DecisionRefused, match="lee is asked only once stage money is met"):
        say(run, "lee")
    with pytest.raises(DecisionRefused):
        say(run, "lee", "rejected")
    assert say(run, "mia").got == 1
    told = document(run)
    assert told["stage"] == "law" and told["quorum"] == {"needed": 2, "got": 1}
    assert told["stages"] == [
        {"name": "money", "needs": [{"needed": 1, "got": 1, "from": ["group:money"]}]},
        {"name": "law", "needs": [{"needed": 1, "got": 0, "from": ["group:law"]}]},
    ]
    assert say(run, "lee").result == "approved"
    assert document(run)["stage"] is None
    assert sorted(Decision.objects.values_list("reviewer_name", "stage")) == [("lee", 1), ("mia", 0)]
    drive()
    assert status(run) == "completed"
    assert_invariants()


def test_who_is_in_both_stages_serves_the_one_that_needs_them() -> None:
    """Whoever comes first: mia alone can serve the second stage, so ann's yes, though later, frees her."""
    account("mia", "money", "law"), account("ann", "money")
    load(FIRST, THEN)
    for order in (("mia", "ann"), ("ann", "mia")):
        run = asked()
        assert say(run, order[0]).status == "open"
        assert say(run, order[1]).result == "approved", order


def test_one_person_may_serve_two_stages_where_the_policy_says_so() -> None:
    account("mia", "money", "law")
    load(FIRST, THEN)
    run = asked()
    assert say(run, "mia").status == "open"
    with pytest.raises(AlreadyDecided):
        say(run, "mia", "rejected")
    load(FIRST, THEN, separate_stages=False)
    assert say(asked(), "mia").result == "approved"


def test_needs_of_one_stage_take_different_people() -> None:
    account("mia", "money", "law"), account("lee", "law")
    load({"name": "both", "all": [need(1, "money"), need(1, "law")]})
    run = asked()
    assert say(run, "mia").got == 1
    assert say(run, "lee").result == "approved"


def test_a_stage_whose_reviewer_takes_it_back_or_leaves_is_open_again() -> None:
    mia, lee = account("mia", "money"), account("lee", "law")
    account("max", "money"), account("lou", "law")
    load(FIRST, need(2, "law", name="law"))
    run = asked()
    say(run, "mia")
    say(run, "lee")
    decisions.withdraw(pending(run)[0].id, actor=mia)
    assert document(run)["stage"] == "money" and document(run)["quorum"]["got"] == 1
    with pytest.raises(DecisionRefused, match="lou is asked only once stage money is met"):
        say(run, "lou")
    say(run, "max")
    assert document(run)["stage"] == "law" and document(run)["quorum"]["got"] == 2
    lee.groups.clear()  # counted over people as they are when somebody decides
    assert say(run, "lou").got == 2
    lee.groups.set([Group.objects.get(name="law")])
    account("liv", "law")
    assert say(run, "liv").result == "approved"
    assert_invariants()


def test_an_opened_stage_asks_its_people_once() -> None:
    mia, _ = account("mia", "money"), account("lee", "law")
    load(FIRST, THEN)
    run = asked()
    sources = Audience.objects.order_by("source").values_list("source", flat=True)
    assert list(sources.all()) == ["group:money"]
    for _ in range(2):
        say(run, "mia")
        assert list(sources.all()) == ["group:law", "group:money"]
        decisions.withdraw(pending(run)[0].id, actor=mia)


def test_so_many_must_reject() -> None:
    account("mia", "money"), account("max", "money"), account("mo", "money")
    load(FIRST, reject_after=2)
    run = asked()
    assert say(run, "mia", "rejected").status == "open"
    assert say(run, "max", "rejected").result == "rejected"
    run = asked()
    assert say(run, "mia", "rejected").status == "open"
    assert say(run, "max").result == "approved"
    run = asked()
    say(run, "mia", "rejected")
    decisions.withdraw(pending(run)[0].id, actor=account("mia", "money"))
    assert say(run, "max", "rejected").status == "open", "what was taken back counts no more"


@pytest.mark.parametrize("comment", ["", "  \n", "\u200b"])
def test_a_comment_that_is_needed(comment: str) -> None:
    account("mia", "money")
    load(FIRST, comment_required=["rejected"])
    run = asked()
    with pytest.raises(CommentRequired) as caught:
        say(run, "mia", "rejected", comment=comment)
    assert caught.value.code == "comment_required" and isinstance(caught.value, DecisionRefused)
    assert not Decision.objects.exists()
    assert say(run, "mia", "rejected", comment="Too much").result == "rejected"
    assert say(asked(), "mia").result == "approved"


def test_a_rule_that_denies() -> None:
    policies.load({"slug": "staged", "rules": [{"deny": True}]})
    run = begin(asking.require)
    later(minutes=1)
    assert runs.get(run.id).output == "PolicyDenied"


# --- at dispatch: pinned and current, the stricter wins ---------------------------------------------

STRICTER = {
    "a stage more": {"stages": [FIRST, THEN]},
    "a need more": {"stages": [{"name": "money", "all": [need(1, "money"), need(1, "law")]}]},
    "a comment": {"stages": [FIRST], "comment_required": ["approved"]},
    "another rule": {"match": {"kind": "other"}, "stages": [FIRST]},
    "denied": {"match": {"target": "*"}, "deny": True},
}


CLAIM = {"slug": "staged", "effects": ["shop.claimed"]}


@pytest.mark.parametrize("how", STRICTER)
def test_a_policy_that_became_stricter_holds_at_dispatch(how: str) -> None:
    account("mia", "money"), account("lee", "law")
    policies.load({**CLAIM, "rules": [{"stages": [FIRST]}]})
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        say(run, "mia")
        policies.load({**CLAIM, "rules": [STRICTER[how]]})
        drive()
        assert shop.calls == []
        if how in ("another rule", "denied"):
            assert error(run) == "PolicyDenied"
        else:
            assert len(pending(run)) == 1, "asked anew"
        assert_invariants()


@pytest.mark.parametrize("how", ["a stage more", "a need more"])
def test_a_policy_that_became_looser_asks_on_as_it_did(how: str) -> None:
    account("mia", "money"), account("lee", "law")
    policies.load({**CLAIM, "rules": [STRICTER[how]]})
    with peer(Claimed) as shop:
        run = start(buy_claimed)
        policies.load({**CLAIM, "rules": [{"stages": [FIRST]}]})
        say(run, "mia")
        drive()
        assert shop.calls == []
        say(run, "lee")
        drive()
        assert status(run) == "completed" and len(shop.requests) == 1
        assert_invariants()


def test_what_nothing_obeys_yet_is_not_loaded() -> None:
    with pytest.raises(InvalidPolicy, match="enforcement: not supported yet"):
        policies.load({"slug": "staged", "rules": [{"stages": [FIRST]}], "enforcement": "advisory"})
