"""`manage.py policies`."""

from __future__ import annotations

from pathlib import Path

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
    assert "No policy is loaded" in manage("policies", "show").out
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
    assert manage("policies", "show", "--json").document["items"][0]["version"] == 2
    one = manage("policies", "show", "refunds", "--json").document
    assert one["body"]["respond_within"] == "4h"
    assert "group:support" in manage("policies", "show", "refunds").out


def test_lint_names_every_problem_by_its_path(manage: Manage, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    assert manage("policies", "lint", str(file), "--json").document["ok"] is True
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
