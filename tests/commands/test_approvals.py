"""`manage.py approvals`: deciding in somebody's name, on exactly what was shown."""

from __future__ import annotations

import pytest

from approvals.models import Approval, Decision
from approvals.services import runs
from approvals.testing import People, assert_invariants, drive
from tests.commands.conftest import Manage
from tests.commands.flows import Order, order

NOBODY = "0190f5c4-7d3a-7000-8000-00000000abcd"


@pytest.fixture
def asked(manage: Manage, team: People) -> dict[str, str]:
    """The one open approval."""
    runs.start(order, Order(sku="A"), requester=team.requester)
    drive()
    (approval,) = manage("approvals", "list", "--json").document["items"]
    return approval  # type: ignore[no-any-return]


def test_nothing_to_decide(manage: Manage) -> None:
    assert "Nothing waits for a decision" in manage("approvals", "list").out
    assert manage("approvals", "list", "--json").document == {"items": [], "next": None}
    assert "No approval" in manage("approvals", "list", "--all").out


def test_show_list_and_the_line_to_decide_with(manage: Manage, asked: dict[str, str]) -> None:
    listed = manage("approvals", "list").out
    shown = manage("approvals", "show", asked["id"])
    line = f"approvals decide {asked['id']} --as USER --outcome approved --digest {asked['digest']}"
    assert "Order A" in listed and f"python manage.py {line}" in listed
    assert line in shown.out and '"sku": "A"' in shown.out and "one-reviewer v1" in shown.out
    assert line in manage("runs", "show", asked["run_id"]).out
    assert manage("approvals", "show", asked["id"], "--json").document["quorum"] == {"needed": 1, "got": 0}


def test_a_decision(manage: Manage, asked: dict[str, str]) -> None:
    decide = ("approvals", "decide", asked["id"], "--as", "vera-reviewers", "--digest", asked["digest"])
    decided = manage(*decide, "--outcome", "approved", "--comment", "looks right", "--json")
    assert decided.code == 0 and decided.err == ""
    assert decided.document["outcome"] == "approved"
    (decision,) = decided.document["decisions"]
    assert (decision["reviewer"], decision["channel"], decision["comment"]) == (
        "vera-reviewers",
        "command",
        "looks right",
    )
    drive()
    assert manage("runs", "show", asked["run_id"], "--json").document["status"] == "completed"
    assert "looks right" in manage("approvals", "show", asked["id"]).out
    assert asked["id"] in manage("approvals", "list", "--all").out
    again = manage(*decide, "--outcome", "approved")
    assert again.code == 0  # the same words by the same person: the same answer
    late = manage(
        "approvals",
        "decide",
        asked["id"],
        "--as",
        "sam-reviewers",
        "--digest",
        asked["digest"],
        "--outcome",
        "rejected",
    )
    assert late.code == 1 and "already decided" in late.err and "vera-reviewers" in late.err
    assert Decision.objects.count() == 1
    assert_invariants()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"--as": "rita"}, "decision_refused"),
        ({"--as": "otto"}, "decision_refused"),
        ({"--as": "nobody"}, "not_found"),
        ({"--digest": "0" * 64}, "stale_digest"),
        ({"--revision": "2"}, "stale_digest"),
        ({"--action": '{"sku": "B"}'}, "decision_refused"),
        ({"--form": '{"a": 1}'}, "invalid_input"),
    ],
)
def test_a_refused_decision(manage: Manage, asked: dict[str, str], change: dict[str, str], code: str) -> None:
    given = {"--as": "vera-reviewers", "--digest": asked["digest"], "--outcome": "approved", **change}
    arguments = [part for pair in given.items() for part in pair]
    answer = manage("approvals", "decide", asked["id"], *arguments, "--json")
    assert answer.code == 1 and answer.error["code"] == code and answer.err == ""
    text = manage("approvals", "decide", asked["id"], *arguments)
    assert text.code == 1 and text.out == "" and "approvals decide:" in text.err
    assert ("not a digest of this approval" in text.err) == ("--digest" in change)
    assert Decision.objects.count() == 0


def test_why_the_requester_may_not_decide(manage: Manage, asked: dict[str, str]) -> None:
    decide = ("approvals", "decide", asked["id"], "--as", "rita", "--digest", asked["digest"])
    told = "rita may not decide this: rita asked for it (policy one-reviewer excludes the requester). Nothing was"
    assert told in manage(*decide, "--outcome", "approved").err


def test_what_is_asked_again_says_why(manage: Manage, asked: dict[str, str]) -> None:
    Approval.objects.update(summary="Asked again: vera left.")
    assert "Asked again: vera left." in manage("approvals", "show", asked["id"]).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("decide", NOBODY, "--outcome", "approved", "--digest", "x"),
        ("decide", NOBODY, "--as", "vera", "--outcome", "approved"),
        ("decide", NOBODY, "--as", "vera", "--outcome", "maybe", "--digest", "x"),
        ("decide", NOBODY, "--as", "vera", "--outcome", "approved", "--digest", "x", "--revision", "0"),
        ("decide", NOBODY, "--as", "vera", "--outcome", "approved", "--digest", "x", "--action", "{"),
        ("show", "7"),
    ],
)
def test_a_wrong_call(manage: Manage, arguments: tuple[str, ...]) -> None:
    answer = manage("approvals", *arguments, "--json")
    assert answer.code == 2 and answer.error["code"] == "wrong_call"


def test_no_such_approval(manage: Manage, team: People) -> None:
    decide = ("decide", NOBODY, "--as", "vera-reviewers", "--outcome", "approved", "--digest", "x")
    for arguments in (("show", NOBODY), decide):
        answer = manage("approvals", *arguments, "--json")
        assert answer.code == 1 and answer.error["code"] == "not_found"
