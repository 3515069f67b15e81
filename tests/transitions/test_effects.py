"""Events of an effect: what each does where it may happen, and that it does nothing where it may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from approvals import clock, queries
from approvals.errors import IllegalTransition
from approvals.models import Effect, Entry
from approvals.states import STATUSES, next_state
from approvals.transitions import Transaction, effects, locked
from approvals.transitions.effects import ReceiptData
from tests.transitions import make

pytestmark = pytest.mark.django_db

RECEIPT = ReceiptData("x1", "sum", "{}")
SECONDS = timedelta(seconds=30)
DO: dict[str, Callable[[Transaction, Any], Any]] = {
    "dispatch": lambda tx, e: effects.dispatch(tx, e, deadline=SECONDS, workflow_version=1),
    "withdraw": lambda tx, e: effects.withdraw(tx, e, "no"),
    "commit": lambda tx, e: effects.commit(tx, e, RECEIPT),
    "not_sent": lambda tx, e: effects.not_sent(tx, e, "no route"),
    "refuse": lambda tx, e: effects.refuse(tx, e, "no"),
    "doubt": lambda tx, e: effects.doubt(tx, e, "silence"),
    "redispatch": lambda tx, e: effects.redispatch(tx, e, deadline=SECONDS, workflow_version=1),
    "confirm": lambda tx, e: effects.confirm(tx, e, RECEIPT, by="look-up"),
    "disprove": lambda tx, e: effects.disprove(tx, e, by="look-up"),
    "verify": effects.verify,
    "contradict": lambda tx, e: effects.contradict(tx, e, found="missing"),
    "accept": lambda tx, e: effects.accept(tx, e, by="olaf", note="right", seen={}),
    "redo": lambda tx, e: effects.redo(tx, e, by="olaf"),
}
PAIRS = [(status, event) for status in STATUSES["effect"] for event in DO]
LEGAL = [pair for pair in PAIRS if next_state("effect", *pair)]
ILLEGAL = [pair for pair in PAIRS if not next_state("effect", *pair)]


@pytest.mark.parametrize(("status", "event"), LEGAL)
def test_a_legal_event_moves_the_effect_and_is_its_entry(status, event):
    run = make.run()
    row = make.effect(run, status, reason="missing")
    with locked(run.pk) as tx:
        DO[event](tx, row)
    after = Effect.objects.get()
    assert after.status == next_state("effect", status, event)
    entry = Entry.objects.get(run=run)
    assert (entry.kind, entry.position, entry.name) == (f"effect.{event}", 1, "e")
    assert json.loads(entry.data)["id"] == str(row.pk) and entry.digest == row.digest
    assert (row.status, row.sends, row.key) == (after.status, after.sends, after.key)


@pytest.mark.parametrize(("status", "event"), ILLEGAL)
def test_an_illegal_event_is_refused_and_changes_nothing(status, event):
    run = make.run()
    row = make.effect(run, status, reason="missing")
    before = make.everything()
    with pytest.raises(IllegalTransition), locked(run.pk) as tx:
        DO[event](tx, row)
    assert make.everything() == before


def test_intend_freezes_request_digest_and_key():
    run = make.run()
    row = Effect(position=2, name="e", kind="test.none", request="{}", digest=make.DIGEST)
    with locked(run.pk) as tx:
        effects.intend(tx, row, [])
    after = Effect.objects.get()
    assert (after.status, after.key, after.sends) == ("intended", f"{run.pk}-2-1", 0)
    assert Entry.objects.get().kind == "effect.intend"
    with pytest.raises(IllegalTransition), locked(run.pk) as tx:
        effects.intend(tx, after, [])


def test_dispatch_is_durable_with_its_deadline_before_the_call():
    run = make.run()
    row = make.effect(run)
    with locked(run.pk) as tx:
        assert effects.dispatch(tx, row, deadline=SECONDS, workflow_version=1).ok
        now = tx.now
    after = Effect.objects.get()
    assert (after.sends, after.sent_at, after.deadline_at) == (1, now, now + SECONDS)


@pytest.mark.parametrize("event", ["not_sent", "refuse"])
def test_what_the_peer_says_after_an_unresolved_send_is_not_trusted(event):
    run = make.run()
    row = make.effect(run, "dispatched", sends=2)
    with locked(run.pk) as tx:
        DO[event](tx, row)
    assert Effect.objects.get().status == "in_doubt"


def test_not_sent_counts_an_attempt_and_takes_the_send_back():
    run = make.run()
    row = make.effect(run, "dispatched")
    with locked(run.pk) as tx:
        DO["not_sent"](tx, row)
    assert Effect.objects.values_list("status", "attempts", "sends").get() == ("intended", 1, 0)


@pytest.mark.parametrize(("ago", "ok"), [(34.9, False), (35.1, True)])
def test_nothing_is_disproved_before_the_deadline_and_the_grace(ago, ok):
    run = make.run()
    now = clock.now()
    row = make.effect(run, "in_doubt", deadline_at=now - timedelta(seconds=ago) + SECONDS)
    before = make.everything()
    if not ok:
        with pytest.raises(IllegalTransition), locked(run.pk) as tx:
            effects.disprove(tx, row, by="olaf")
        assert make.everything() == before
        return
    with locked(run.pk) as tx:
        effects.disprove(tx, row, by="olaf")
    assert Effect.objects.values_list("status", "sends").get() == ("intended", 0)


def test_disproving_in_a_run_that_ends_withdraws():
    run = make.run(cancel_requested_at=clock.now())
    row = make.effect(run, "in_doubt")
    with locked(run.pk) as tx:
        effects.disprove(tx, row, by="look-up")
    assert Effect.objects.get().status == "withdrawn" and Entry.objects.get().kind == "effect.abandon"


@pytest.mark.parametrize("event", ["commit", "confirm"])
def test_a_receipt_is_stored_and_in_the_entry(event):
    run = make.run()
    row = make.effect(run, "dispatched" if event == "commit" else "in_doubt")
    with locked(run.pk) as tx:
        DO[event](tx, row)
    assert Effect.objects.values_list("external_id", "checksum").get() == ("x1", "sum")
    told = json.loads(Entry.objects.get().data)
    assert (told["external_id"], told["checksum"]) == ("x1", "sum")


def test_confirming_a_contradiction_keeps_the_first_receipt():
    run = make.run()
    row = make.effect(run, "contradicted", reason="changed")
    with locked(run.pk) as tx:
        DO["confirm"](tx, row)
    assert Effect.objects.values_list("status", "external_id", "reason").get() == ("verified", "x", "")
    assert "external_id" not in json.loads(Entry.objects.get().data)


def test_accepting_keeps_the_new_value_beside_the_first():
    run = make.run()
    row = make.effect(run, "contradicted", reason="changed")
    with locked(run.pk) as tx:
        effects.accept(tx, row, by="olaf", note="it moved", seen={"seen": "y"})
    after = Effect.objects.get()
    assert after.external_id == "x" and json.loads(after.evidence)["accepted"]["note"] == "it moved"


@pytest.mark.parametrize("why", ["changed", "ending"])
def test_redo_is_only_for_what_is_gone_in_a_run_that_goes_on(why):
    run = make.run(cancel_requested_at=clock.now() if why == "ending" else None)
    row = make.effect(run, "contradicted", reason="changed" if why == "changed" else "missing")
    before = make.everything()
    with pytest.raises(IllegalTransition), locked(run.pk) as tx:
        effects.redo(tx, row, by="olaf")
    assert make.everything() == before


def test_redo_is_a_new_generation_under_a_new_key():
    run = make.run()
    row = make.effect(run, "contradicted", reason="missing", attempts=2)
    with locked(run.pk) as tx:
        effects.redo(tx, row, by="olaf")
    after = Effect.objects.get()
    assert (after.status, after.generation, after.key) == ("intended", 2, f"{run.pk}-1-2")
    assert (after.sends, after.attempts) == (0, 0)


BAD = {
    "unknown status": {"status": "odd"},
    "sent without its time": {"status": "dispatched", "sent_at": None},
    "in doubt without its time": {"status": "in_doubt", "sent_at": None},
    "committed without a receipt": {"status": "committed", "external_id": None},
    "contradicted without a receipt": {"status": "contradicted", "external_id": None},
}


@pytest.mark.parametrize("columns", BAD.values(), ids=BAD)
def test_the_database_refuses_a_bad_effect(columns):
    row = make.effect(make.run(), "committed")
    with pytest.raises(IntegrityError), transaction.atomic():
        Effect.objects.filter(pk=row.pk).update(**columns)


def test_one_effect_per_position_and_key():
    run = make.run()
    make.effect(run)
    for columns in ({"key": "other"}, {"position": 2}):
        with pytest.raises(IntegrityError), transaction.atomic():
            make.effect(run, **columns)


def test_calls_are_counted_for_ever():
    run = make.run()
    row = make.effect(run, calls=3)
    with locked(run.pk) as tx:
        assert effects.dispatch(tx, row, deadline=SECONDS, workflow_version=1).ok
        effects.doubt(tx, row, "lost")
    Effect.objects.update(deadline_at=clock.now() - timedelta(hours=1))
    with locked(run.pk) as tx:
        effects.disprove(tx, Effect.objects.get(), by="look-up")
    after = Effect.objects.get()
    assert (after.status, after.sends, after.calls) == ("intended", 0, 4)
    assert queries.effect_json(after)["attempts"] == 4
