"""`manage.py reconciliation`: what only an operator can settle."""

from __future__ import annotations

import pytest

from approvals.services import runs
from approvals.testing import People, assert_invariants, drive
from tests.commands.conftest import Manage
from tests.commands.flows import Order, losing

NOBODY = "0190f5c4-7d3a-7000-8000-00000000abcd"


@pytest.fixture
def case(manage: Manage, team: People) -> dict[str, str]:
    """One case: an effect whose outcome nobody knows."""
    runs.start(losing, Order(sku="A"))
    drive()
    (found,) = manage("reconciliation", "list", "--json").document["items"]
    return found  # type: ignore[no-any-return]


def resolve(case_id: str, **more: str) -> tuple[str, ...]:
    given = {"as": "olaf", "resolution": "confirm", "note": "seen in the shop", **more}
    return ("reconciliation", "resolve", case_id, *[p for k, v in given.items() for p in (f"--{k}", v)])


def test_no_cases(manage: Manage) -> None:
    assert "No run waits for an operator" in manage("reconciliation", "list").out
    assert manage("reconciliation", "list", "--all", "--json").document == {"items": [], "next": None}


def test_a_case_is_shown_and_settled(manage: Manage, case: dict[str, str]) -> None:
    sentence = "It is not known whether “send” (commands.lose) happened."
    listed, run = manage("reconciliation", "list").out, manage("runs", "show", case["run_id"]).out
    assert case["id"] in listed and sentence in listed
    assert sentence in run and f"manage.py reconciliation show {case['id']}" in run
    shown = manage("reconciliation", "show", case["id"])
    assert "commands.lose" in shown.out and "--resolution confirm|disprove|fail" in shown.out
    settled = manage(*resolve(case["id"], **{"external-id": "X1", "evidence": '{"seen": true}'}), "--json")
    assert settled.code == 0 and settled.document["outcome"] == "confirm"
    assert settled.document["effect"]["receipt"] == {
        "external_id": "X1",
        "checksum": None,
        "evidence": {"seen": True},
    }
    drive()
    assert manage("runs", "show", case["run_id"], "--json").document["output"] == "X1"
    assert "olaf: it did happen (seen in the shop)" in manage("runs", "show", case["run_id"]).out
    again = manage(*resolve(case["id"]), "--json")
    assert again.code == 1 and again.error["code"] == "already_decided"
    assert_invariants()


def test_a_worker_is_asked_to_look(manage: Manage, case: dict[str, str]) -> None:
    asked = manage("reconciliation", "look", case["id"], "--as", "olaf")
    assert asked.code == 0 and f"reconciliation show {case['id']}" in asked.out
    drive()
    probe = manage("reconciliation", "show", case["id"], "--json").document["case"]["probe"]
    assert "cannot be looked up" in probe["problem"]


def test_to_confirm_names_what_is_missing(manage: Manage, case: dict[str, str]) -> None:
    assert "--external-id" in manage(*resolve(case["id"])).err


@pytest.mark.parametrize(
    ("change", "code", "exit_code"),
    [
        ({"as": "otto", "external-id": "X"}, "permission_refused", 1),
        ({"as": "nobody", "external-id": "X"}, "not_found", 1),
        ({}, "invalid_input", 1),  # to confirm, say what the peer calls it
        ({"resolution": "resume"}, "invalid_input", 1),
        ({"note": " ", "external-id": "X"}, "invalid_input", 1),
        ({"resolution": "guess"}, "wrong_call", 2),
        ({"external-id": "X", "evidence": "[1]"}, "wrong_call", 2),
        ({"external-id": "X", "evidence": "{"}, "wrong_call", 2),
    ],
)
def test_a_refused_settlement(
    manage: Manage, case: dict[str, str], change: dict[str, str], code: str, exit_code: int
) -> None:
    answer = manage(*resolve(case["id"], **change), "--json")
    assert (answer.code, answer.error["code"]) == (exit_code, code)
    assert manage("reconciliation", "show", case["id"], "--json").document["status"] == "open"


def test_no_such_case(manage: Manage, team: People) -> None:
    for arguments in (
        ("reconciliation", "show", NOBODY),
        ("reconciliation", "look", NOBODY, "--as", "olaf"),
        resolve(NOBODY, **{"external-id": "X"}),
    ):
        answer = manage(*arguments, "--json")
        assert answer.code == 1 and answer.error["code"] == "not_found"
