"""What runs do and wait for: waits, effects, messages; and the outbox."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from approvals.admin import show
from approvals.admin.base import Section, Table, Window, WindowOfRuns, by
from approvals.models import Approval, Message, Outbox, Reconciliation, Run, Wait
from approvals.queries.wording import short
from approvals.states import WaitKind, WaitStatus

ROWS = 200
"""Of one table on a run's page."""


def wait_link(wait: Wait, text: str = "") -> SafeString:
    """To the page that says most about a wait."""
    pages = {WaitKind.APPROVAL.value: Approval, WaitKind.RECONCILIATION.value: Reconciliation}
    return show.link(pages.get(wait.kind, Wait), text or f"{wait.kind} “{wait.name}”", pk=wait.pk)


def _note(total: int) -> str:
    return f"Only the first {ROWS} are shown here." if total > ROWS else ""


def waits_of(run: Run, now: datetime) -> Section:
    """A run's waits."""
    rows = list(run.waits.defer("data").order_by("position", "ordinal", "kind")[: ROWS + 1])
    cells = [
        (
            w.position,
            wait_link(w),
            show.badge(w.status),
            w.outcome.replace("_", " ") or show.NOTHING,
            show.moment(w.opened_at),
            show.moment(w.due_at, now if w.status == WaitStatus.OPEN else None),
            show.moment(w.closed_at),
        )
        for w in rows[:ROWS]
    ]
    headers = ("Position", "Wait", "Status", "Outcome", "Opened", "Due", "Closed")
    return Section("Waits", table=Table(headers, cells, "It has not waited for anything.", _note(len(rows))))


def effects_of(run: Run) -> Section:
    """A run's effects, with their receipts."""
    rows = list(run.effects.defer("request", "evidence").order_by("position")[: ROWS + 1])
    cells = [
        (
            e.position,
            show.link(e, e.name),
            show.code(e.kind),
            show.badge(e.status),
            show.code(e.external_id),
            show.code(e.checksum),
            show.moment(e.sent_at),
            show.moment(e.verified_at),
        )
        for e in rows[:ROWS]
    ]
    headers = ("Position", "Effect", "Kind", "Status", "Receipt", "Checksum", "Sent", "Verified")
    empty = "It has changed nothing in the outside world."
    return Section("Effects", table=Table(headers, cells, empty, _note(len(rows))))


def messages_of(run: Run) -> Section | None:
    """Signals and webhook bodies that came for a run."""
    rows = list(run.messages.defer("payload").order_by("id")[: ROWS + 1])
    cells = [
        (show.link(m, m.name), show.code(m.message_id), show.badge(m.status), show.moment(m.received_at))
        for m in rows[:ROWS]
    ]
    table = Table(("Message", "Id", "Status", "Received"), cells, "", _note(len(rows)))
    return Section("Messages", table=table) if rows else None


@admin.register(Wait)
class WaitAdmin(WindowOfRuns[Wait]):
    """Everything that runs are or were suspended at."""

    list_display = ("name", "kind", "state", "of_run", "opened", "due", "outcome")
    list_filter = ("kind", by("status", WaitStatus, title="status"))
    ordering = ("-id",)
    search_fields = ("name",)
    list_defer = ("data",)
    empty_text = "No run has waited for anything yet."

    @admin.display(description="opened", ordering="id")
    def opened(self, row: Any) -> SafeString:
        return show.moment(row.opened_at, row.asked_at)

    @admin.display(description="due", ordering="due_at")
    def due(self, row: Any) -> SafeString:
        return show.moment(row.due_at, row.asked_at if row.status == WaitStatus.OPEN else None)

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        facts = [
            ("Id", show.code(str(row.pk))),
            ("Run", show.run_link(row.run_id, row.run.workflow)),
            ("Kind", row.kind),
            ("Status", self.state(row)),
            ("Position", f"{row.position}, number {row.ordinal + 1} there"),
            ("Opened", show.moment(row.opened_at, row.asked_at)),
            ("Due", self.due(row)),
            ("Closed", show.moment(row.closed_at, row.asked_at)),
            ("Closed by entry", row.closed_seq or show.NOTHING),
            ("Outcome", row.outcome.replace("_", " ") or show.NOTHING),
            ("Its run is parked on it", "yes" if row.parked else "no"),
        ]
        if row.kind in (WaitKind.APPROVAL, WaitKind.RECONCILIATION):
            facts.append(("More about it", wait_link(row)))
        return [
            Section("Wait", facts=facts),
            *([Section("Data", blocks=[show.json_block(row.data, unfold=True)])] if row.data else []),
        ]


@admin.register(Message)
class MessageAdmin(WindowOfRuns[Message]):
    """Signals and webhook bodies, early, in time or late."""

    list_display = ("name", "message_id", "state", "of_run", "received")
    list_filter = ("status",)
    ordering = ("-id",)
    search_fields = ("name", "message_id")
    ids = ("run", "message_id")
    list_defer = ("payload",)
    empty_text = "No message has come yet. `manage.py runs signal ID NAME --payload JSON` sends one."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        return super().get_queryset(request).select_related("wait")

    @admin.display(description="received", ordering="id")
    def received(self, row: Any) -> SafeString:
        return show.moment(row.received_at, row.asked_at)

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        facts = [
            ("Run", self.of_run(row)),
            ("Name", row.name),
            ("Message id", show.code(row.message_id)),
            ("Status", self.state(row)),
            ("Consumed by", wait_link(row.wait) if row.wait else show.NOTHING),
            ("Received", self.received(row)),
        ]
        return [Section("Message", facts=facts), Section("Payload", blocks=[show.json_block(row.payload)])]


@admin.register(Outbox)
class OutboxAdmin(Window[Outbox]):
    """What must still happen after a commit; a row goes when it is done."""

    list_display = ("kind", "about", "due", "attempts", "created")
    list_filter = ("kind",)
    ordering = ("id",)
    list_defer = ("data",)
    empty_text = "Nothing is left to do: every row was worked off."

    @admin.display(description="about")
    def about(self, row: Outbox) -> SafeString:
        if row.kind == Outbox.Kind.PROBE:
            return show.link(Reconciliation, f"case {short(row.subject)}", pk=row.subject)
        if row.kind == Outbox.Kind.CANCEL_CHILD:
            return show.link(Wait, f"wait {short(row.subject)}", pk=row.subject)
        return show.run_link(row.subject, "run")

    @admin.display(description="due", ordering="due_at")
    def due(self, row: Any) -> SafeString:
        return show.moment(row.due_at, row.asked_at)

    @admin.display(description="since", ordering="created_at")
    def created(self, row: Any) -> SafeString:
        return show.moment(row.created_at, row.asked_at)

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        facts = [
            ("Kind", row.get_kind_display()),
            ("About", self.about(row)),
            ("Due", self.due(row)),
            ("Attempts", row.attempts),
            ("Since", self.created(row)),
        ]
        return [Section("To do", facts=facts), Section("Data", blocks=[show.json_block(row.data)])]
