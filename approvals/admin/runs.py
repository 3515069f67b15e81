"""Runs and the workers that hold them."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from approvals.admin import journal, show, work
from approvals.admin.base import Section, Window, by
from approvals.admin.forms import OPERATE, OperateForm, told
from approvals.errors import ApprovalsError
from approvals.models import Run, Wait
from approvals.queries.wording import short
from approvals.services import runs
from approvals.states import RUN_FINAL, RunStatus, WaitKind, WaitStatus
from approvals.workflows import registry


class WorkflowFilter(admin.SimpleListFilter):
    """By workflow, among those that are registered here; the search finds runs of others."""

    title = "workflow"
    parameter_name = "workflow"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(w.name for w in registry.all_current())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(workflow=self.value()) if self.value() else queryset


class WaitsFilter(admin.SimpleListFilter):
    """By what a run waits for now."""

    title = "what it waits for"
    parameter_name = "waits"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(k.value, k.value) for k in WaitKind]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        if not self.value():
            return queryset
        waits = Wait.objects.filter(run=OuterRef("pk"), kind=self.value(), status=WaitStatus.OPEN)
        return queryset.filter(Exists(waits))


OPEN_WAITS = Prefetch(
    "waits",
    Wait.objects.filter(status=WaitStatus.OPEN).defer("data").order_by("position", "ordinal"),
    to_attr="open_waits",
)
WAITS_SHOWN = 3


@admin.register(Run)
class RunAdmin(Window[Run]):
    """Every run, the newest first; its page has the journal and what operators may do."""

    list_display = ("run", "state", "waits_on", "asked_by", "age")
    list_filter = (by("status", RunStatus, title="status"), WorkflowFilter, WaitsFilter)
    ordering = ("-id",)
    search_fields = ("key", "workflow", "requester_name")
    search_help_text = "A run's whole id, or a part of its key, workflow or requester."
    list_defer = ("input", "output", "error", "seed", "tags", "progress")
    empty_text = "No run has been started yet. `manage.py runs start NAME --input JSON` starts one."
    buttons = (("operate", "operate_view"),)
    page_template = "admin/approvals/run_page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        return super().get_queryset(request).select_related("worker").prefetch_related(OPEN_WAITS)

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        if (identity := show.as_id(search_term)) is not None:
            return queryset.filter(pk=identity), False
        return super().get_search_results(request, queryset, search_term)

    @admin.display(description="run", ordering="id")
    def run(self, row: Run) -> SafeString:
        named = f"{short(row.pk)} {show.bounded(row.key or '', 40)[0]}"
        return format_html("{} v{}<br>{}", row.workflow, row.version, named)

    @admin.display(description="status", ordering="status")
    def state(self, row: Run) -> SafeString:
        asked = "cancel" if row.cancel_requested_at else "pause" if row.pause_requested_at else ""
        if asked and row.status not in RUN_FINAL:
            return format_html("{} {}", show.badge(row.status), show.badge(f"to {asked}", "warn"))
        return show.badge(row.status)

    @admin.display(description="waits on")
    def waits_on(self, row: Any) -> SafeString | str:
        if row.status in RUN_FINAL:
            return show.NOTHING
        if row.worker is not None:
            return show.link(row.worker, f"worker {row.worker.name}")
        told = [work.wait_link(w) for w in row.open_waits[:WAITS_SHOWN]]
        if more := len(row.open_waits) - WAITS_SHOWN:
            told += [format_html("and {} more", more)] if more > 0 else []
        if not told:
            return "an operator, to resume it" if row.status == RunStatus.PAUSED else "a free worker"
        return format_html_join(", ", "{}", ((t,) for t in told))

    @admin.display(description="requester", ordering="requester_name")
    def asked_by(self, row: Run) -> str:
        return row.requester_name or show.NOTHING

    @admin.display(description="started", ordering="id")
    def age(self, row: Any) -> SafeString:
        return show.moment(row.created_at, row.asked_at)

    # --- the page ---------------------------------------------------------------------------------

    def title(self, row: Run) -> str:
        return f"{row.workflow} {short(row.pk)}"

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        kept = [
            Section("Input", blocks=[show.json_block(row.input)]),
            Section("Output", blocks=[show.json_block(row.output)]) if row.output else None,
            work.waits_of(row, row.asked_at),
            work.effects_of(row),
            work.messages_of(row),
            journal.section(row),
        ]
        return [self._facts(row), *(s for s in kept if s is not None)]

    def _facts(self, row: Any) -> Section:
        facts: list[tuple[str, Any]] = [
            ("Id", show.code(str(row.pk))),
            ("Status", self.state(row)),
            ("Waits on", self.waits_on(row)),
            ("Workflow", f"{row.workflow}, started at version {row.version}"),
            ("Key", show.code(row.key)),
            ("Requester", row.requester_name or "the installation itself"),
            ("Tags", ", ".join(map(str, json.loads(row.tags))) or show.NOTHING),
            ("Started", show.moment(row.created_at, row.asked_at)),
        ]
        if row.finished_at:
            facts.append(("Ended", show.moment(row.finished_at, row.asked_at)))
        if row.progress:
            told = json.loads(row.progress)
            facts.append(("Progress", f"{told['done']} of {told['total']} {told['text']}"))
        if row.cancel_requested_at:
            facts.append(("To be cancelled", format_html("by {}: {}", row.cancel_by, row.cancel_reason)))
        if row.pause_requested_at:
            facts.append(("To be paused", format_html("by {}: {}", row.pause_by, row.pause_reason)))
        if row.error:
            error = json.loads(row.error)
            facts.append(("Error", format_html("{}: {}", error.get("type", ""), error.get("message", ""))))
        if row.parent_run:
            facts.append(("Started by", show.run_link(row.parent_run, "run")))
        facts.append(
            (
                "Journal",
                f"{row.seq:,} entries, position {row.position}, fence {row.fence}, "
                f"{row.turns_lost} turns lost since the last progress",
            )
        )
        return Section("Run", facts=facts)

    # --- what operators may do --------------------------------------------------------------------

    def forms(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        allowed = _allowed(row) if request.user.has_perm("approvals.operate") else ()
        return {"form": OperateForm(allowed), "allowed": [(do, OPERATE[do]) for do in allowed]}

    def operate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Pauses, resumes or cancels."""
        if not request.user.has_perm("approvals.operate"):
            raise PermissionDenied
        row = self.found(request, object_id)
        form = OperateForm(_allowed(row), request.POST)
        if form.is_valid():
            do, reason = form.cleaned_data["do"], form.cleaned_data["reason"]
            try:
                _operate(do, row, request.user, reason)
            except ApprovalsError as error:
                form.add_error(None, told(error))
            else:
                messages.success(request, OPERATE[do].done)
                return HttpResponseRedirect(show.address(row))
        return self.page(request, object_id, status=HTTPStatus.UNPROCESSABLE_ENTITY, form=form)


def _allowed(row: Run) -> tuple[str, ...]:
    if row.status in RUN_FINAL:
        return ()
    held = row.status == RunStatus.PAUSED or row.pause_requested_at is not None
    first = "resume" if held else "pause"
    return (first,) if row.cancel_requested_at else (first, "cancel")


def _operate(do: str, row: Run, actor: Any, reason: str) -> None:
    if do == "resume":
        runs.resume(row.pk, actor=actor)
    elif do == "pause":
        runs.pause(row.pk, actor=actor, reason=reason)
    else:
        runs.cancel(row.pk, actor=actor, reason=reason)
