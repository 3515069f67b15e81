"""What people and systems send, poisoned: refused with words, or kept whole; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from approvals import Context
from approvals.errors import ApprovalsError, InvalidInput, InvalidPolicy, NotSerializable
from approvals.models import Message, Run
from approvals.services import policies, reconciliation, runs
from approvals.testing import assert_invariants, drive, peer, people
from tests.engine.make import case, flow
from tests.engine.shop import Blind, Order, buying
from tests.poison.poisons import POISONS, circular_dict

pytestmark = pytest.mark.usefixtures("engine")
NO_TEXTS = ["a\x00b", "\ud800"]
buy = buying(Blind)


@flow
def listens(ctx: Context, n: int) -> Any:
    return ctx.wait(ctx.signal("it")).payload


def test_a_message_is_refused_by_its_name_or_comes_as_its_json() -> None:
    interrupts = ("keyboard interrupt", "system exit", "generator exit")
    tried = [p for p in POISONS[::2] if not (p.costs or p.name in interrupts)]
    sent = {p.name: (runs.start(listens, 1), p) for p in tried}
    drive()
    refused: dict[str, str] = {}
    for name, (run, poison) in sent.items():
        try:
            runs.signal(run.id, "it", poison.make())
        except NotSerializable as error:
            refused[name] = str(error)
    drive()
    for name, (run, _) in sent.items():
        if name not in refused:
            assert runs.get(run.id).status == "completed" and runs.replay(run.id).same, name
    assert refused and all("signal 'it'" in told for told in refused.values())
    assert Message.objects.exclude(status="consumed").count() == 0
    assert_invariants()


@pytest.mark.parametrize("payload", [float("nan"), [float("inf")], {1: "a", "1": "b"}, circular_dict()])
def test_what_json_would_change_in_silence_is_no_message(payload: Any) -> None:
    run = runs.start(listens, 1)
    with pytest.raises(NotSerializable):
        runs.signal(run.id, "it", payload)


@pytest.mark.parametrize("text", NO_TEXTS, ids=["nul", "surrogate"])
def test_texts_of_people_are_refused_or_made_fit(text: str) -> None:
    refused: list[Callable[[], Any]] = [
        lambda: runs.start(listens, 1, key=text),
        lambda: runs.signal(run.id, text, 1),
        lambda: runs.signal(run.id, "it", 1, message_id=text),
    ]
    run = runs.start(listens, 1)
    for call in refused:
        with pytest.raises(InvalidInput):
            call()
    runs.pause(run.id, actor=None, reason=text)
    runs.resume(run.id, actor=None)
    runs.cancel(run.id, actor=None, reason=text)
    assert Run.objects.get(pk=run.id).cancel_reason in ("a\\x00b", "\\ud800")
    assert runs.get(run.id).status == "cancelled"


@pytest.mark.parametrize(
    "wrong",
    [
        {"external_id": "a\x00b"},
        {"external_id": "x", "checksum": "\ud800"},
        {"external_id": "x", "evidence": {"n": float("nan")}},
        {"external_id": "x", "evidence": circular_dict()},
        {"external_id": "x" * 2_000_000},
    ],
    ids=["nul", "surrogate", "nan", "circular", "2 MB"],
)
def test_an_operator_s_receipt_is_refused_with_words_and_the_case_stays_open(wrong: Any) -> None:
    with peer(Blind, "lose"):
        run = runs.start(buy, Order())
        drive()
    settle: dict[str, Any] = {"actor": people().operator, "resolution": "confirm", "note": "I\x00looked"}
    with pytest.raises(ApprovalsError, match="cannot be kept"):
        reconciliation.resolve(case(run).pk, **settle, **wrong)
    reconciliation.resolve(case(run).pk, **settle, external_id="x")
    drive()
    assert runs.get(run.id).status == "completed"


def test_a_few_lines_of_yaml_that_stand_for_more_than_any_memory_holds_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    with pytest.raises(InvalidPolicy, match="slug: found"):
        policies.load("\n".join([*lines, "slug: *a29", "rules: *a29", "effects: *a29"]))
