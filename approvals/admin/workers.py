"""Who moves runs, and the clock that they go by."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from approvals.admin import show
from approvals.admin.base import Section, Table, Window
from approvals.models import Clock, Run, Worker
from approvals.states import RunStatus

ROWS = 200


@admin.register(Worker)
class WorkerAdmin(Window[Worker]):
    """Who moves runs, and whether it is still there."""

    list_display = ("name", "state", "lease", "started", "queue")
    ordering = ("-id",)
    search_fields = ("name",)
    list_defer = ("versions",)
    empty_text = "No worker has ever run here. `make up` or `manage.py worker` starts one."

    @admin.display(description="state")
    def state(self, row: Any) -> SafeString:
        if row.stopped_at is not None:
            return show.badge("stopped")
        return show.badge("alive" if row.lease_until > row.asked_at else "gone")

    @admin.display(description="lease until", ordering="lease_until")
    def lease(self, row: Any) -> SafeString:
        return show.moment(row.lease_until, row.asked_at)

    @admin.display(description="started", ordering="started_at")
    def started(self, row: Any) -> SafeString:
        return show.moment(row.started_at, row.asked_at)

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        lock = f"key {row.lock_key}, server process {row.backend_pid}" if row.lock_key else show.NOTHING
        versions = [f"{name} v{version}" for name, version in json.loads(row.versions)]
        facts = [
            ("Id", show.code(str(row.pk))),
            ("State", self.state(row)),
            ("Queue", row.queue),
            ("Started", show.moment(row.started_at, row.asked_at)),
            ("Lease until", show.moment(row.lease_until, row.asked_at)),
            ("Stopped", show.moment(row.stopped_at, row.asked_at)),
            ("Session lock", lock),
            ("Can continue", ", ".join(versions) or "nothing: it knows no workflow"),
        ]
        return [Section("Worker", facts=facts), self._holds(row)]

    def _holds(self, row: Worker) -> Section:
        held = Run.objects.filter(worker=row, status=RunStatus.RUNNING).order_by("id")
        shown = held.only("pk", "workflow", "position", "created_at")[:ROWS]
        return Section(
            "Runs that it holds",
            table=Table(
                ("Run", "Position", "Started"),
                [(show.run_link(r.pk, r.workflow), r.position, show.moment(r.created_at)) for r in shown],
                "It holds no run now.",
            ),
        )


@admin.register(Clock)
class ClockAdmin(Window[Clock]):
    """How far tests have moved database time; nothing in production."""

    list_display = ("id", "shift")
    empty_text = "The clock is the database's own: nothing has moved it."

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        facts = [("Shifted by", row.shift), ("Now", show.moment(row.asked_at))]
        return [Section("Clock", facts=facts, intro="Only tests move the clock.")]
