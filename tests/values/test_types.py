"""Receipts, decisions, retries and evidence as plain values."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from approvals.errors import ApprovalExpired, ApprovalRejected, ChangesRequested, NotApproved, NotSerializable
from approvals.types import (
    MATCH,
    Check,
    Checkpoint,
    Decision,
    Diff,
    Evidence,
    Failure,
    Json,
    Link,
    Receipt,
    Retry,
    Text,
    Verification,
    evidence_from_json,
    evidence_to_json,
)
from approvals.workflows.values import codec_for


def test_a_retry_waits_longer_each_time_up_to_its_limit() -> None:
    retry = Retry(5, first_seconds=2, factor=3, max_seconds=20)
    assert [retry.delay(n).total_seconds() for n in (1, 2, 3, 4)] == [2, 6, 18, 20]
    assert Retry(max_seconds=60).delay(100_000) == timedelta(seconds=60)


def test_a_retry_covers_what_it_names() -> None:
    retry = Retry(on=(OSError, ValueError), never=(FileNotFoundError,))
    assert retry.covers(ConnectionError())
    assert not retry.covers(FileNotFoundError())
    assert not retry.covers(KeyError())
    assert not Retry().covers(KeyboardInterrupt())


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.5},
        {"first_seconds": -1},
        {"factor": 0.5},
        {"max_seconds": float("inf")},
        {"on": ValueError},
        {"never": (KeyboardInterrupt,)},
    ],
)
def test_a_retry_that_makes_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match="Retry: "):
        Retry(**options)


def test_a_receipt_is_bound_in_a_copy() -> None:
    receipt = Receipt[str]("id", checksum="abc", evidence={"log": "done"})
    bound = receipt.bound("request", "key", "upload")
    assert (bound.request, bound.key, bound.kind, bound.external_id) == ("request", "key", "upload", "id")
    assert receipt.key == ""
    assert bound == Receipt[str]("id", checksum="abc", evidence={"log": "done"}).bound(
        "request", "key", "upload"
    )
    assert bound != receipt
    with pytest.raises(FrozenInstanceError):
        bound.key = "other"  # type: ignore[misc]


def test_an_approved_decision() -> None:
    decision = Decision[str]("approved", "action", "d" * 64)
    assert decision
    assert decision.require() is decision
    assert decision == Decision[str]("approved", "action", "d" * 64)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [("rejected", ApprovalRejected), ("expired", ApprovalExpired), ("changes_requested", ChangesRequested)],
)
def test_other_decisions_raise(outcome: Any, error: type[NotApproved]) -> None:
    decision = Decision[Any](outcome, SecretStr("s"), "d" * 64, comment="too much", wait_id=UUID(int=1))
    assert not decision
    with pytest.raises(error, match="too much") as caught:
        decision.require()
    assert caught.value.decision is decision
    assert caught.value.comment == "too much"


def test_failures_compare_by_what_happened() -> None:
    assert Failure(ValueError("a"), 1) == Failure(ValueError("a"), 1)
    assert Failure(ValueError("a"), 1) != Failure(TypeError("a"), 1)
    assert len({Failure(ValueError("a"), [1]), Failure(ValueError("a"), [1])}) == 1
    assert MATCH is Verification.MATCH


def test_a_checkpoint_reads_results_as_todays_types() -> None:
    def decode(text: str, type: Any) -> Any:
        return codec_for(type).decode(text, what="checkpoint")

    old = Checkpoint(version=1, input={}, outputs={"price": ['"1.50"', '"2.50"']}, decode=decode)
    assert old.output_of("price", Decimal) == Decimal("2.50")
    assert old.output_of("price", str, 0) == "1.50"
    assert old.outputs_of("price", Decimal) == [Decimal("1.50"), Decimal("2.50")]
    assert old.outputs_of("other", Decimal) == []
    with pytest.raises(LookupError, match="other"):
        old.output_of("other", Decimal)


# --- evidence ----------------------------------------------------------------------------------------

EVIDENCE: list[Evidence] = [
    Check("virus scan", True, "clean"),
    Check("licence", None),
    Diff("a.txt", {"n": 1}, None),
    Text("why", "because\n<script>"),
    Link("the build", "https://ci.example.org/1?a=b#c"),
    Json("plan", {"a": [1, None]}),
]


def test_evidence_comes_back_from_json() -> None:
    stored = json.loads(json.dumps(evidence_to_json(EVIDENCE)))
    assert [item["type"] for item in stored] == ["check", "check", "diff", "text", "link", "json"]
    assert evidence_from_json(stored) == EVIDENCE


def test_evidence_may_hold_anything() -> None:
    odd = {
        "s": SecretStr("hunter2"),
        "b": b"\xff",
        "n": float("nan"),
        "o": object,
        "u": "a\ud800",
        "at": datetime.now(UTC),
    }
    text = json.dumps(
        evidence_to_json([Json("odd", odd), Text("t", "\ud800")]), allow_nan=False, ensure_ascii=False
    )
    text.encode()
    assert "hunter2" not in text
    assert "\\ud800" in json.loads(text)[1]["body"]


def test_evidence_that_cannot_be_shown() -> None:
    circular: list[Any] = []
    circular.append(circular)
    with pytest.raises(NotSerializable, match="the loop"):
        evidence_to_json([Json("the loop", circular)])
    with pytest.raises(TypeError, match="evidence must be"):
        evidence_to_json(["text"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java\tscript:alert(1)",
        " https://a.example",
        "data:text/html,x",
        "//a.example",
        "/path",
        "https:///x",
        "https:\\\\a.example",
        "https://bank.example@evil.example/",
        "https://a.example/\u202e",
        "ftp://a.example",
        "",
    ],
)
def test_links_that_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="Link: "):
        Link("click", url)


@pytest.mark.parametrize(
    "stored",
    [
        {"type": "hologram", "title": "x"},
        {"type": "link", "title": "x", "url": "javascript:"},
        {"type": "check"},
        {},
    ],
)
def test_stored_evidence_of_another_version_is_still_shown(stored: dict[str, Any]) -> None:
    (shown,) = evidence_from_json([stored])
    assert isinstance(shown, Json)
