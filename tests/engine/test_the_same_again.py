"""What must be the same on the first run and on every replay; and what may change between asking and sending."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import connection

from approvals import UNKNOWN, Context, Effect, Receipt, Retry, Verification, step, workflow
from approvals.engine import effects as engine_effects
from approvals.errors import ApprovalRejected, ContextMisuse, UnknownPolicy
from approvals.models import Approval, Entry, Run, Wait
from approvals.models import Effect as Row
from approvals.services import decisions, policies, reconciliation, runs
from approvals.testing import assert_invariants, clock, crash_at, decide, drive, peer, pending, people
from approvals.workflows import registry
from tests.engine.make import case, flow, kinds, ran

pytestmark = pytest.mark.usefixtures("engine")

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


class Send(Effect[str]):
    kind = "same.send"
    policy = "one-reviewer"

    def perform(self, request: str, key: str) -> Receipt[str]:
        raise AssertionError("tests replace the peer")

    def describe(self, request: str) -> str:
        calls.append(connection.in_atomic_block)
        return f"Send {request}"

    def target(self, request: str) -> str:
        calls.append(connection.in_atomic_block)
        return "there"


class Free(Effect[str]):
    kind = "same.free"
    deduplicates = True

    def perform(self, request: str, key: str) -> Receipt[str]:
        raise AssertionError("tests replace the peer")

    def target(self, request: str) -> str:
        calls.append(connection.in_atomic_block)
        return "there"


class Murky(Effect[str]):
    kind = "same.murky"

    def perform(self, request: str, key: str) -> Receipt[str]:
        return Receipt("done")

    def verify(self, receipt: Receipt[str]) -> Verification:
        return UNKNOWN


@step(durability="sync", retry=Retry(attempts=3))
def fails_first() -> str:
    calls.append("attempt")
    if len(calls) == 1:
        raise OSError("not yet")
    return "done"


@flow
def tries(ctx: Context, n: int) -> str:
    return ctx.step("try", fails_first)


@flow
def sends(ctx: Context, text: str) -> str:
    return ctx.effect("send", Send, text).external_id


def test_a_replay_makes_no_attempt_of_its_own() -> None:
    run = ran(tries)
    clock.shift(timedelta(seconds=5))
    with crash_at("claimed"):
        drive()
    report = runs.replay(run.id)
    assert report.ended == "waiting" and calls == ["attempt"]
    assert "step.complete" not in kinds(run)


def test_a_no_that_comes_while_the_turn_begins_is_answered_and_not_asked_again() -> None:
    who = people()
    run = ran(sends, "a", requester=who.requester)
    runs.pause(run.id, actor=who.operator, reason="wait")
    runs.resume(run.id, actor=who.operator)
    see = engine_effects.see

    def rejected_meanwhile(call: Any, request: Any) -> Any:
        if pending(run):
            decide(run, who.reviewers[0], "rejected")
        return see(call, request)

    with mock.patch.object(engine_effects, "see", rejected_meanwhile):
        drive()
    found = runs.get(run.id)
    assert found.status == "failed" and found.error is not None and found.error["type"] == "ApprovalRejected"
    assert Approval.objects.count() == 1
    assert_invariants()


@flow
def asks_then_sends(ctx: Context, text: str) -> str:
    decision = ctx.approval("may I", policy="strict", action=text, effect=Send, title="May I?")
    ctx.sleep("later", timedelta(hours=3))
    return ctx.effect("send", Send, text, policy=None, approved_by=decision).external_id


def test_what_was_approved_stays_under_the_policy_that_it_was_approved_by() -> None:
    rule = {"stages": [{"needed": 1, "from": ["group:reviewers"]}]}
    policies.load({"slug": "strict", "rules": [rule], "valid_for": "1h"})
    who = people()
    with peer(Send) as post, mock.patch.object(Send, "policy", None):
        run = ran(asks_then_sends, "a", requester=who.requester)
        decide(run, who.reviewers[0], "approved")
        drive()
        policies.load({"slug": "strict", "rules": [{"automatic": True}]})
        clock.shift(timedelta(hours=4))
        drive()
        assert post.requests == [] and len(pending(run)) == 1
        decide(run, who.reviewers[1], "approved")
        drive()
        assert post.requests == ["a"]
    assert_invariants()


@flow
def catches_a_no(ctx: Context, text: str) -> str:
    decision = ctx.approval("may I", policy="one-reviewer", action=text, effect=Send, title="May I?")
    try:
        ctx.effect("send", Send, text, approved_by=decision)
    except ApprovalRejected as no:
        ctx.sleep("a while", timedelta(hours=1))
        return f"{type(no.decision).__name__}: {no.comment}"
    return "sent"


def test_a_no_that_was_caught_is_the_same_no_on_replay() -> None:
    who = people()
    run = ran(catches_a_no, "a", requester=who.requester)
    decide(run, who.reviewers[0], "rejected", comment="not today")
    drive()
    clock.shift(timedelta(hours=2))
    drive()
    assert runs.get(run.id).output == "Decision: not today"
    assert_invariants()


@flow
def peeks(ctx: Context, n: int) -> str:
    signal = ctx.signal("x")
    ctx.sleep("a while", timedelta(hours=1))
    try:
        seen = str(signal.value.payload)
    except ContextMisuse:
        seen = "not waited for"
    ctx.step("note", str, seen)
    ctx.sleep("another while", timedelta(hours=1))
    return f"{seen}, {ctx.wait(signal).payload}"


def test_a_handle_has_a_value_only_once_it_was_waited_for() -> None:
    run = ran(peeks)
    runs.signal(run.id, "x", 1)
    for _ in range(2):
        clock.shift(timedelta(hours=1, seconds=1))
        drive()
    assert runs.get(run.id).output == "not waited for, 1"
    assert_invariants()


@flow
def sleeps(ctx: Context, n: int) -> int:
    for i in range(n):
        ctx.sleep(f"nap {i}", timedelta(hours=1))
    return n


def test_a_run_that_gets_on_between_its_losses_is_no_case() -> None:
    run = ran(sleeps, 8)
    for _ in range(8):
        clock.shift(timedelta(hours=1, seconds=1))
        with crash_at("claimed"):
            drive()
        drive()
    assert runs.get(run.id).status == "completed"
    assert kinds(run).count("run.lose_lease") == 8


@flow
def asks(ctx: Context, text: str) -> str:
    return ctx.approval("may I", policy="one-reviewer", action=text, effect=Send, title="May I?").outcome


@flow
def sends_freely(ctx: Context, text: str) -> str:
    return ctx.effect("send", Free, text).external_id


@pytest.mark.parametrize("of", [sends, asks, sends_freely], ids=["an effect", "a question", "sent again"])
def test_the_author_s_words_are_asked_for_outside_any_transaction(of: Any) -> None:
    who = people()
    with peer(Send), peer(Free):
        run = runs.start(of, "a", requester=who.requester)
        with crash_at("performed"):
            drive()
        drive()
        if pending(run):
            decide(run, who.reviewers[0], "approved")
            drive()
    assert runs.get(run.id).status == "completed"
    assert calls and not any(calls)


def test_nothing_is_sent_again_for_a_run_that_was_asked_to_cancel_meanwhile() -> None:
    with peer(Free) as post:
        run = runs.start(sends_freely, "a")
        with crash_at("performed"):
            drive()

        def cancels(self: Any, request: str) -> str:
            runs.cancel(run.id, actor=None, reason="enough")
            return ""

        with mock.patch.object(Free, "target", cancels):
            drive()
        assert len(post.calls) == 1
    assert case(run).name == "in doubt"
    assert "effect.redispatch" not in kinds(run)


@flow
def sends_murkily(ctx: Context, text: str) -> str:
    receipt = ctx.effect("send", Murky, text)
    ctx.sleep("a while", timedelta(days=1))
    return receipt.external_id


def test_an_operator_who_looked_can_vouch_for_what_cannot_be_verified() -> None:
    run = ran(sends_murkily, "a")
    clock.shift(timedelta(days=1, seconds=1))
    for _ in range(5):
        drive()
        clock.shift(timedelta(minutes=6))
    assert case(run).name == "cannot tell"
    operator = people().operator
    reconciliation.resolve(case(run).pk, actor=operator, resolution="resume", note="try once more")
    drive()
    assert not Wait.objects.filter(run=run.id, kind="reconciliation", status="open").exists()
    for _ in range(5):
        drive()
        clock.shift(timedelta(minutes=6))
    reconciliation.resolve(case(run).pk, actor=operator, resolution="confirm", note="I looked: it is there")
    drive()
    assert runs.get(run.id).output == "done"
    assert Row.objects.get().status == "verified"
    assert_invariants()


@flow
def asks_in_vain(ctx: Context, n: int) -> str:
    signal = ctx.signal("go")
    try:
        ctx.approval("may I", policy="not-there-yet", action=n, title="May I?")
    except UnknownPolicy:
        ctx.wait(signal)
        return "without"
    return "with"


def test_a_refusal_that_was_caught_before_a_wait_is_remembered() -> None:
    run = ran(asks_in_vain)
    policies.load({"slug": "not-there-yet", "rules": [{"automatic": True}]})
    runs.signal(run.id, "go", 1)
    drive()
    assert runs.get(run.id).output == "without"
    assert_invariants()


def test_an_approval_that_another_version_asked_for_is_asked_for_again() -> None:
    who = people()

    def fn(ctx: Context, text: str) -> str:
        return ctx.effect("send", Send, text).external_id

    first = workflow(name="same.versions", version=1)(fn)
    with peer(Send) as post:
        run = ran(first, "a", requester=who.requester)
        decide(run, who.reviewers[0], "approved")
        with mock.patch.dict(registry._workflows["same.versions"], clear=True):
            workflow(name="same.versions", version=2, compatible_with=[1])(fn)
            drive()
            (wait,) = pending(run)
            assert (
                post.requests == []
                and "Version 1 of the workflow asked" in Approval.objects.get(pk=wait.id).summary
            )
            decisions.decide(wait.id, actor=who.reviewers[0], outcome="approved", digest=wait.digest)
            drive()
        assert post.requests == ["a"]
    assert Run.objects.get().status == "completed"
    assert Entry.objects.filter(kind="wait.invalidate").count() == 1
