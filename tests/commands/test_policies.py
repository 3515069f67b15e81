"""`manage.py policies`."""

from __future__ import annotations

from pathlib import Path

from django.contrib.auth.models import Group

from approvals.testing import People
from tests.commands.conftest import Manage

POLICY = """
slug: refunds
effects: [commands.refund]
rules:
  - stages: [{needed: 1, from: ["group:support"]}]
respond_within: 2d
"""


def test_load_show_and_the_difference(manage: Manage, team: People, tmp_path: Path) -> None:
    file = tmp_path / "refunds.yaml"
    file.write_text(POLICY)
    listed = manage("policies", "show").out
    assert "one-reviewer" in listed and "policies load FILE" in listed
    first = manage("policies", "load", str(file), "--as", "olaf", "--json").document
    assert (first["slug"], first["version"], first["changed"], first["author"]) == (
        "refunds",
        1,
        True,
        "olaf",
    )
    again = manage("policies", "load", str(file), "--json").document
    assert (again["version"], again["changed"], again["difference"]) == (1, False, [])
    assert "nothing changed" in manage("policies", "load", str(file)).out
    file.write_text(POLICY.replace("2d", "4h"))
    text = manage("policies", "load", str(file)).out
    assert "v2 holds now" in text and "-respond_within: 2d" in text and "+respond_within: 4h" in text
    items = manage("policies", "show", "--json").document["items"]
    assert {p["slug"]: p["version"] for p in items} == {"one-reviewer": 1, "refunds": 2}
    one = manage("policies", "show", "refunds", "--json").document
    assert one["body"]["respond_within"] == "4h"
    assert "group:support" in manage("policies", "show", "refunds").out


def test_lint_names_every_problem_by_its_path(manage: Manage, team: People, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    found = manage("policies", "lint", str(file), "--json").document
    assert found["ok"] is True
    assert found["warnings"] == ["group:support does not exist here: nobody can decide for it"]
    assert "warning: group:support" in manage("policies", "lint", str(file)).out
    support = Group.objects.create(name="support")
    assert manage("policies", "lint", str(file), "--json").document["warnings"] == [
        "rules[0]: stage review needs 1 of group:support, and only 0 could be found for it now"
    ]
    support.user_set.add(team.reviewers[0])
    (warning,) = manage("policies", "lint", str(file), "--json").document["warnings"]
    assert warning.endswith(
        "nobody can satisfy it when the requester is one of " + team.reviewers[0].username
    )
    support.user_set.add(team.reviewers[1])
    assert manage("policies", "lint", str(file), "--json").document["warnings"] == []
    file.write_text(POLICY.replace("needed: 1", "needed: 0").replace("2d", "soon"))
    bad = manage("policies", "lint", str(file), "--json")
    assert bad.code == 1 and bad.error["code"] == "invalid_policy"
    paths = [problem.partition(":")[0] for problem in bad.error["problems"]]
    assert paths == ["rules[0].stages[0].needed", "respond_within"]
    text = manage("policies", "lint", str(file))
    assert text.code == 1 and text.err.count("problem") == 2 and "Policy refunds cannot be loaded" in text.err
    file.write_text("rules: [")
    assert manage("policies", "lint", str(file)).code == 1


def test_refused_and_wrong_calls(manage: Manage, team: People, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    assert (
        manage("policies", "load", str(file), "--as", "rita", "--json").error["code"] == "permission_refused"
    )
    assert manage("policies", "load", str(tmp_path / "none.yaml"), "--json").code == 2
    file.write_bytes(b"\xff")
    assert manage("policies", "lint", str(file), "--json").code == 2
    missing = manage("policies", "show", "nope", "--json")
    assert missing.code == 1 and missing.error["policy"] == "nope"
    assert "manage.py policies show" in manage("policies", "show", "nope").err


def test_one_reviewer_is_shown_before_it_was_ever_used(manage: Manage) -> None:
    one = manage("policies", "show", "one-reviewer", "--json").document
    assert (one["slug"], one["version"], one["author"]) == ("one-reviewer", 1, None)
    assert one["body"]["exclude"] == ["requester", "starter"]
    assert "permission:approvals.review" in manage("policies", "show", "one-reviewer").out


def test_a_key_that_stands_twice_is_refused(manage: Manage, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    for twice in (POLICY + "respond_within: 9d\n", POLICY.replace("needed: 1", "needed: 1, needed: 2")):
        file.write_text(twice)
        bad = manage("policies", "lint", str(file), "--json")
        assert bad.code == 1 and "stands twice" in bad.error["problems"][0]
    file.write_text("{[a]: 1, [a]: 2}")
    assert manage("policies", "lint", str(file)).code == 1
    file.write_text("!!map text")
    assert manage("policies", "lint", str(file)).code == 1


def test_one_reviewer_is_nobodys_to_change(manage: Manage, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("slug: refunds", "slug: one-reviewer"))
    assert manage("policies", "load", str(file), "--json").error["code"] == "invalid_policy"
    assert manage("policies", "show", "one-reviewer", "--json").document["version"] == 1
