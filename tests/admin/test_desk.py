"""The reconciliation desk: what is known, what may be said, and that only operators say it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from approvals.models import Effect, Entry, Outbox, Reconciliation
from approvals.queries import desk
from approvals.services import reconciliation, runs
from approvals.states import RESOLUTIONS
from approvals.testing import assert_invariants, clock, drive, peer
from tests.engine.undo import Flight, Mail, trip, world

from . import flows
from .test_windows import url, words

NOTE = "I looked at the peer's console."


def resolve(client: Client, case: Any, resolution: str, **more: str) -> Any:
    return client.post(url(case, "resolve"), {"resolution": resolution, "note": NOTE, **more})


def state(case: Any) -> tuple[str, str]:
    row = Reconciliation.objects.get(pk=case.pk)
    return row.status, row.outcome


def test_every_column_of_a_comparison_has_a_name(operator: Client) -> None:
    page = operator.get(url(flows.contradicted("changed"))).content.decode()
    assert '<th scope="col">Receipt</th>' in page
    assert '<th scope="col"></th>' not in page


def test_open_cases_come_first_each_in_one_sentence(operator: Client) -> None:
    settled = flows.crashed()
    reconciliation.resolve(settled.pk, actor=None, resolution="fail", note="no use")
    doubt, gone = flows.in_doubt(), flows.contradicted()
    answer = operator.get("/admin/approvals/reconciliation/")
    assert [row.pk for row in answer.context["cl"].result_list] == [doubt.pk, gone.pk, settled.pk]
    told = words(answer)
    assert "It is not known whether “order” (admin.blind) happened." in told
    assert "What “upload” (admin.findable) made is gone." in told
    assert "The workflow's code raised KeyError at flows.py:" in told
    only = operator.get("/admin/approvals/reconciliation/", {"state": "settled"})
    assert [row.pk for row in only.context["cl"].result_list] == [settled.pk]


def test_a_case_in_doubt_shows_what_an_operator_needs(operator: Client) -> None:
    case = flows.in_doubt()
    effect = Effect.objects.get()
    told = words(operator.get(url(case)))
    assert effect.key in told and '"sku": "A"' in told and "Can be disproved from" in told
    assert "It happened." in told and "It did not happen." in told and "Fail the run." in told
    assert "Do it again." not in told


def test_confirm(operator: Client) -> None:
    case = flows.in_doubt()
    answer = resolve(operator, case, "confirm", external_id="shop-7", checksum="9f2c")
    assert (answer.status_code, answer["Location"]) == (302, url(case))
    effect = Effect.objects.get()
    assert (effect.status, effect.external_id, effect.checksum) == ("committed", "shop-7", "9f2c")
    told = words(operator.get(url(case)))
    assert "How it was settled" in told and "olaf" in told and NOTE in told
    drive()
    assert runs.get(case.run_id).output == "shop-7"
    assert_invariants()


def test_confirm_without_an_id_keeps_what_was_typed(operator: Client) -> None:
    case = flows.in_doubt()
    answer = resolve(operator, case, "confirm", checksum="9f2c-typed")
    assert answer.status_code == 422
    told = answer.content.decode()
    assert "give the external id" in told and NOTE.replace("'", "&#x27;") in told and "9f2c-typed" in told
    assert 'value="confirm" required id="id_resolution_0" checked' in told.replace("\n", " ")
    assert state(case) == ("open", "")


def test_disprove_too_early_says_when_and_changes_nothing(operator: Client) -> None:
    case = flows.in_doubt()
    entries = Entry.objects.count()
    answer = resolve(operator, case, "disprove")
    assert answer.status_code == 422
    assert "Too early to say that it did not happen" in words(answer) and "not before 2" in words(answer)
    assert state(case) == ("open", "") and Entry.objects.count() == entries
    clock.shift(timedelta(minutes=2))
    assert resolve(operator, case, "disprove").status_code == 302
    assert Effect.objects.get().status == "intended"
    with peer(flows.Blind) as shop:
        drive()
        assert len(shop.requests) == 1
    assert runs.get(case.run_id).status == "completed"


def test_every_way_to_settle_has_words_of_its_own() -> None:
    for why, ways in RESOLUTIONS.items():
        offered = desk.choices(why, {"found": "missing"})
        assert tuple(way for way, _, _ in offered) == ways, why
        assert len({label for _, label, _ in offered}) == len(ways), why


def test_a_look_up_is_offered_where_the_peer_can_be_asked(operator: Client) -> None:
    blind, findable = flows.in_doubt(), flows.contradicted()
    assert "Look it up" not in words(operator.get(url(blind)))
    assert "Look it up" in words(operator.get(url(findable)))


def test_contradicted_shows_both_checksums(operator: Client) -> None:
    case = flows.contradicted("changed")
    told = words(operator.get(url(case)))
    assert f"External id differs peer:{case.run_id}-1-1 peer:other" in told
    assert "Checksum differs – 9f2c" in told
    assert "What is there now is right." in told and "Do it again." not in told
    effect = Effect.objects.get()
    assert "peer:other" in words(operator.get(url(effect)))


def test_accept(operator: Client) -> None:
    case = flows.contradicted("changed")
    assert resolve(operator, case, "accept").status_code == 302
    effect = Effect.objects.get()
    assert (effect.status, effect.superseded) == ("verified", True)
    assert "peer:other" in words(operator.get(url(effect)))
    with peer(flows.Findable):
        drive()
    assert runs.get(case.run_id).status == "completed"


def test_redo_only_what_is_gone(operator: Client) -> None:
    changed = flows.contradicted("changed")
    assert resolve(operator, changed, "redo").status_code == 422
    assert state(changed) == ("open", "")
    gone = flows.contradicted()
    assert resolve(operator, gone, "redo").status_code == 302
    effect = Effect.objects.get(run=gone.run_id)
    assert (effect.status, effect.generation) == ("intended", 2)


def test_resume_on_mended_code(operator: Client, monkeypatch: Any) -> None:
    case = flows.crashed()
    told = words(operator.get(url(case)))
    assert "KeyError" in told and "'C'" in told and "flows.py:" in told
    monkeypatch.setattr(flows, "broken", False)
    assert resolve(operator, case, "resume").status_code == 302
    drive()
    assert runs.get(case.run_id).status == "completed"


def test_fail(operator: Client) -> None:
    case = flows.crashed()
    answer = operator.post(url(case, "resolve"), {"resolution": "fail", "note": NOTE}, follow=True)
    assert "the run ends as failed" in words(answer)
    found = runs.get(case.run_id)
    assert found.status == "failed" and found.error is not None and NOTE in found.error["message"]


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"resolution": "fail"},
        {"resolution": "fail", "note": "   "},
        {"note": NOTE},
        {"resolution": "confirm", "note": NOTE},
        {"resolution": "no such", "note": NOTE},
        {"resolution": "fail", "note": "a\x00b"},
        {"resolution": "fail", "note": "x" * 5000},
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(operator: Client, sent: dict[str, str]) -> None:
    case = flows.crashed()
    answer = operator.post(url(case, "resolve"), sent)
    assert answer.status_code == 422
    assert "errornote" in answer.content.decode()
    assert state(case) == ("open", "")


def test_a_case_is_settled_once(operator: Client) -> None:
    case = flows.crashed()
    assert resolve(operator, case, "fail").status_code == 302
    answer = resolve(operator, case, "resume")
    assert answer.status_code == 422 and "settled already" in words(answer)
    assert state(case) == ("resolved", "fail")


def test_looking_it_up_is_asked_of_a_worker(operator: Client) -> None:
    case = flows.contradicted()
    answer = operator.post(url(case, "look"), follow=True)
    assert "A worker was asked to look it up" in words(answer)
    assert "Asked; waiting for a worker" in words(answer)
    assert Outbox.objects.get().kind == "probe"
    with peer(flows.Findable) as shop:
        shop.keys.append(Effect.objects.get().key)
        drive()
    told = words(operator.get(url(case)))
    assert "What the peer has" in told and f"External id peer:{case.run_id}-1-1" in told
    assert "Asked; waiting" not in told and "Look it up" in told


def test_a_case_about_no_effect_cannot_be_looked_up(operator: Client) -> None:
    case = flows.crashed()
    assert "Look it up" not in words(operator.get(url(case)))
    answer = operator.post(url(case, "look"))
    assert answer.status_code == 422 and "no effect that could be looked up" in words(answer)


@pytest.mark.parametrize("last", ["resolve", "look", "change"])
def test_reading_changes_nothing(operator: Client, last: str) -> None:
    case = flows.in_doubt()
    before = Entry.objects.count(), Outbox.objects.count()
    sent = {"resolution": "fail", "note": NOTE}
    assert operator.get(url(case, last), sent).status_code == 200
    assert operator.head(url(case, last), sent).status_code == 200
    for method in ("put", "delete", "options", "patch"):
        assert getattr(operator, method)(url(case, last)).status_code in (403, 405)
    assert (Entry.objects.count(), Outbox.objects.count()) == before
    assert state(case) == ("open", "")


def test_only_operators_settle(browser: Any, who: Any) -> None:
    case = flows.in_doubt()
    reviewer = browser(who.reviewers[0])
    told = reviewer.get(url(case))
    assert (
        told.status_code == 200
        and b"Settle the case" not in told.content
        and b"Look it up" not in told.content
    )
    assert "Only operators can settle a case" in words(told)
    assert resolve(reviewer, case, "fail").status_code == 403
    assert reviewer.post(url(case, "look")).status_code == 403
    outsider = browser(who.outsider)
    assert resolve(outsider, case, "fail").status_code == 302  # to the log-in
    who.outsider.is_staff = True
    who.outsider.save()
    assert resolve(browser(who.outsider), case, "fail").status_code == 403
    assert state(case) == ("open", "") and not Outbox.objects.exists()


def test_a_form_without_its_token_is_refused(who: Any) -> None:
    case = flows.crashed()
    client = Client(enforce_csrf_checks=True)
    client.force_login(who.operator)
    assert resolve(client, case, "fail").status_code == 403
    assert state(case) == ("open", "")


def test_a_wait_that_is_no_case_is_not_at_the_desk(operator: Client) -> None:
    run = flows.asked()
    wait = run and Reconciliation._base_manager.get(run=run.id)
    assert operator.get(url(wait)).status_code == 404
    assert resolve(operator, wait, "fail").status_code == 404


def test_what_could_not_be_undone_is_told_and_let_be(operator: Client) -> None:
    world.clear()
    run = runs.start(trip("desk", Flight, Mail), 1)
    drive()
    case = Reconciliation.objects.get(run=run.id)
    told = words(operator.get(url(case)))
    assert "“undo.mail” (undo.mail) could not be undone: its kind 'undo.mail' has no compensate()" in told
    assert "Try again." in told and "Let it be." in told and "End the run." in told
    assert resolve(operator, case, "accept").status_code == 302
    drive()
    assert runs.get(run.id).status == "failed" and world.order == ["undo.flight"]
    assert_invariants()
