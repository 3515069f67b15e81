"""Every table can be seen, and nothing can be changed."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import queries
from approvals.admin import journal
from approvals.models import Approval, Entry, Message, Outbox, PolicyVersion, Run, Worker
from approvals.services import reconciliation
from approvals.testing import clock

from . import flows

MODELS = [m for m in apps.get_app_config("approvals").get_models() if m in admin.site._registry]


def names() -> list[str]:
    return [m._meta.model_name or "" for m in MODELS]


def first(name: str) -> Any:
    model = apps.get_model("approvals", name)
    rows = admin.site._registry[model].get_queryset(None)  # type: ignore[arg-type]
    row = rows.order_by("pk").last()
    assert row is not None, f"the tests' data has no {name}"
    return row


def url(row: Any, last: str = "change") -> str:
    return f"/admin/approvals/{row._meta.model_name}/{row.pk}/{last}/"


def words(answer: Any) -> str:
    """What a reader sees, without mark-up."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


@pytest.fixture
def world(who: Any) -> None:
    """At least one row of everything."""
    flows.decided()
    flows.asked()
    case = flows.in_doubt()
    flows.contradicted()
    flows.crashed()
    reconciliation.ask_to_look(case.pk, actor=None)
    clock.shift(timedelta())


def test_every_model_has_a_window_but_those_shown_within_another():
    shown_within = {"audience", "entry", "policyclaim"}
    all_names = {m._meta.model_name for m in apps.get_app_config("approvals").get_models()}
    assert set(names()) == all_names - shown_within


def test_lists_and_pages_load(operator: Client, world: None) -> None:
    for name in names():
        listed = operator.get(f"/admin/approvals/{name}/")
        assert listed.status_code == 200
        row = first(name)
        answer = operator.get(url(row))
        assert answer.status_code == 200
        assert "hunter2" not in answer.content.decode() + listed.content.decode()
        assert "unsafe" not in answer["Content-Security-Policy"]
        assert not re.search(
            r"<style(?! nonce)|\sstyle=|\son\w+=|<script(?![^>]* src=)", answer.content.decode()
        )


def test_an_empty_list_says_what_that_means(operator: Client) -> None:
    for name in names():
        Worker.objects.all().delete()
        listed = operator.get(f"/admin/approvals/{name}/")
        assert listed.context["empty_text"] in words(listed)


def test_filters_and_searches_load(operator: Client, world: None) -> None:
    for name in names():
        page = operator.get(f"/admin/approvals/{name}/")
        for spec in page.context["cl"].filter_specs:
            for choice in spec.choices(page.context["cl"]):
                assert operator.get(f"/admin/approvals/{name}/{choice['query_string']}").status_code == 200
        for query in ("order", str(first(name).pk), str(first("run").pk), "a\x00b", "' OR"):
            assert operator.get(f"/admin/approvals/{name}/", {"q": query}).status_code in (200, 302)
        for column in range(len(page.context["cl"].list_display)):
            assert operator.get(f"/admin/approvals/{name}/", {"o": str(column)}).status_code == 200


def test_nothing_can_be_added_changed_or_deleted(admin_client: Client, operator: Client, world: None) -> None:
    for name in names():
        row = first(name)
        before = list(type(row)._base_manager.order_by("pk").values())
        for client in (operator, admin_client):
            for last in ("change", "delete"):
                assert client.post(url(row, last), {"post": "yes", "name": "x"}).status_code == 403
            assert client.get(url(row, "delete")).status_code == 403
            assert client.get(url(row, "history")).status_code == 404
            assert client.get(f"/admin/approvals/{name}/add/").status_code == 403
            assert client.post(f"/admin/approvals/{name}/add/", {"name": "x"}).status_code == 403
            client.post(
                f"/admin/approvals/{name}/", {"action": "delete_selected", "_selected_action": str(row.pk)}
            )
        assert list(type(row)._base_manager.order_by("pk").values()) == before


def test_strangers_get_the_log_in_and_staff_without_permission_get_nothing(
    browser: Any, who: Any, world: None
) -> None:
    row = first("run")
    for client in (Client(), browser(who.outsider)):
        assert client.get(url(row)).status_code == 302
        assert client.get("/admin/approvals/run/").status_code == 302
    who.outsider.is_staff = True
    who.outsider.save()
    outsider = browser(who.outsider)
    assert outsider.get(url(row)).status_code == 403
    assert outsider.get("/admin/approvals/run/").status_code == 403
    assert outsider.get("/admin/").status_code == 200


@pytest.mark.parametrize("identity", ["no-id", "00000000-0000-7000-8000-000000000000", "%2e%2e", "1e400"])
def test_what_does_not_exist_is_not_found(operator: Client, identity: str) -> None:
    for name in names():
        assert operator.get(f"/admin/approvals/{name}/{identity}/change/").status_code == 404


def test_the_list_of_runs_says_what_each_waits_for(operator: Client, world: None) -> None:
    told = words(operator.get("/admin/approvals/run/"))
    assert "approval “order”" in told and "reconciliation “in doubt”" in told
    assert "rita" in told and "order-e" in told
    run = Run.objects.get(key="order-e")
    found = operator.get("/admin/approvals/run/", {"q": str(run.pk)})
    assert found.context["cl"].result_count == 1
    assert operator.get("/admin/approvals/run/", {"q": "order-e"}).context["cl"].result_count == 1
    for name in ("effect", "wait"):
        of_run = operator.get(f"/admin/approvals/{name}/", {"q": str(run.pk)})
        assert {str(row.run_id) for row in of_run.context["cl"].result_list} == {str(run.pk)}
    message = Message.objects.get()
    for query in (str(message.run_id), message.message_id):
        by_id = operator.get("/admin/approvals/message/", {"q": query})
        assert [row.pk for row in by_id.context["cl"].result_list] == [message.pk]
    only = operator.get("/admin/approvals/run/", {"waits": "approval"})
    assert only.context["cl"].result_count == 1


def test_a_run_s_page_shows_its_journal_its_effects_and_its_waits(operator: Client, world: None) -> None:
    run = Run.objects.get(key="order-e")
    told = words(operator.get(url(run)))
    for entry in Entry.objects.filter(run=run):
        assert entry.kind in told
    assert f"peer:{run.pk}-1-1" in told  # the receipt
    assert "approval “order”" in told
    assert "••••••" in told and "UTC" in told


def test_a_long_journal_is_cut_with_a_note(operator: Client, world: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(journal, "ENTRIES", 3)
    run = Run.objects.get(key="order-e")
    told = words(operator.get(url(run)))
    assert f"The last 3 of {run.seq} entries" in told
    assert "run.start" not in told and "run.complete" in told


def test_long_values_are_cut_with_a_note(operator: Client, world: None) -> None:
    run = Run.objects.get(key="order-e")
    Run.objects.filter(pk=run.pk).update(input='{"text": "' + "x" * 1_000_000 + '"}')
    Entry.objects.filter(run=run, kind="run.start").update(data='{"text": "' + "x" * 1_000_000 + '"}')
    answer = operator.get(url(run))
    assert len(answer.content) < 200_000
    assert "more characters are not shown" in words(answer) and "too long to show here" in words(answer)


def test_an_approval_shows_the_exact_action(operator: Client, world: None) -> None:
    approval = Approval.objects.get(wait__status="open")
    told = words(operator.get(url(approval)))
    assert "Order D" in told and "Orders one D" in told and approval.digest in told
    assert '"sku": "D"' in told and "0 of 1" in told and "high, irreversible" in told
    decided = Approval.objects.get(wait__run__key="order-e")
    told = words(operator.get(url(decided)))
    assert "Looks right." in told and "vera-reviewers" in told and "1 of 1" in told


def test_a_policy_reads_as_it_is_written(operator: Client, world: None) -> None:
    version = PolicyVersion.objects.get(slug="one-reviewer")
    told = words(operator.get(url(version)))
    assert "slug: one-reviewer effects: [] rules: - stages: - name: review needed: 1 from:" in told
    assert "version 1" in words(operator.get("/admin/approvals/policy/one-reviewer/change/"))


def test_a_worker_is_alive_stopped_or_gone(operator: Client, world: None) -> None:
    worker = Worker.objects.order_by("pk").last()
    assert worker is not None
    for stopped_at, state in ((None, "alive"), (worker.started_at, "stopped")):
        Worker.objects.filter(pk=worker.pk).update(
            stopped_at=stopped_at, lease_until=worker.started_at + timedelta(hours=1)
        )
        assert f"State {state}" in words(operator.get(url(worker)))
    Worker.objects.filter(pk=worker.pk).update(
        stopped_at=None, lease_until=worker.started_at - timedelta(hours=1)
    )
    assert "State gone" in words(operator.get(url(worker)))


def test_the_outbox_and_messages_lead_to_what_they_are_about(operator: Client, world: None) -> None:
    row = Outbox.objects.get(kind="probe")
    assert (
        url_of_link(operator.get(url(row)), "case …")
        == f"/admin/approvals/reconciliation/{row.subject}/change/"
    )
    message = Message.objects.get()
    assert '"by": "test"' in words(operator.get(url(message)))


def url_of_link(answer: Any, text: str) -> str:
    found = re.search(rf'<a href="([^"]+)">{text}', answer.content.decode())
    assert found is not None
    return found[1]


def test_a_list_asks_as_much_for_many_rows_as_for_few(operator: Client, who: Any) -> None:
    def add() -> None:
        Run.objects.filter(key__isnull=False).update(key=None)
        flows.decided()
        flows.asked()
        flows.in_doubt()
        flows.contradicted()

    def count(name: str) -> int:
        with CaptureQueriesContext(connection) as asked:
            assert operator.get(f"/admin/approvals/{name}/").status_code == 200
        return len(asked)

    add()
    few = {name: count(name) for name in names()}
    add()
    add()
    assert {name: count(name) for name in names()} == few
    assert max(few.values()) <= 10


def test_pages_ask_a_bounded_number_of_queries(operator: Client, world: None) -> None:
    limits = {"run": 14, "approval": 14, "effect": 10, "reconciliation": 10}
    for name, limit in limits.items():
        with CaptureQueriesContext(connection) as asked:
            operator.get(url(first(name)))
        assert len(asked) <= limit, (name, [q["sql"][:150] for q in asked])


def test_an_output_that_is_plain_text_is_shown(who: Any) -> None:
    run = flows.decided()
    assert queries.run(run.id)["output"] == f"peer:{run.id}-1-1"
