"""The reconciliation desk: the cases that only an operator can settle."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString

from approvals.admin import show
from approvals.admin.base import Section, WindowOfRuns
from approvals.admin.effects import side_by_side
from approvals.admin.forms import ResolveForm, told
from approvals.errors import ApprovalsError
from approvals.models import Effect, Entry, Outbox, Reconciliation, Wait
from approvals.queries import desk
from approvals.queries.documents import about, sentence, with_about
from approvals.services import reconciliation
from approvals.states import WaitKind, WaitStatus


class OpenFilter(admin.SimpleListFilter):
    """Open cases, unless asked for others."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("open", "open"), ("settled", "settled")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Wait]) -> QuerySet[Wait]:
        if self.value() == "open":
            return queryset.filter(status=WaitStatus.OPEN)
        return queryset.exclude(status=WaitStatus.OPEN) if self.value() == "settled" else queryset


@admin.register(Reconciliation)
class ReconciliationAdmin(WindowOfRuns[Reconciliation]):
    """Open cases first, the longest waiting at the top; each with a form for its operator."""

    list_display = ("what_happened", "state", "of_run", "since", "outcome")
    list_filter = (OpenFilter,)
    search_fields = ("name",)
    search_help_text = "A case's or run's whole id, or a part of what went wrong, such as: in doubt."
    empty_text = "Nothing needs an operator: every run is moving, waiting by design, or over."
    buttons = (("resolve", "resolve_view"), ("look", "look_view"))
    page_template = "admin/approvals/case_page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Reconciliation]:
        cases = super().get_queryset(request).filter(kind=WaitKind.RECONCILIATION)
        return with_about(cases)

    def get_ordering(self, request: HttpRequest) -> Any:
        return (Case(When(status=WaitStatus.OPEN, then=Value(0)), default=Value(1)), "id")

    @admin.display(description="what happened", ordering="name")
    def what_happened(self, row: Any) -> str:
        return sentence(row.name, show.read(row.data or "{}"), about(row))

    @admin.display(description="state", ordering="status")
    def state(self, row: Wait) -> SafeString:
        if row.status == WaitStatus.OPEN:
            return show.badge("open", "bad")
        return show.badge("settled" if row.status == WaitStatus.RESOLVED else "left with its run", "")

    @admin.display(description="since", ordering="id")
    def since(self, row: Any) -> SafeString:
        return show.moment(row.opened_at, row.asked_at)

    # --- the page ---------------------------------------------------------------------------------

    def title(self, row: Any) -> str:
        return self.what_happened(row)

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        case = show.read(row.data or "{}")
        effect = Effect.objects.filter(pk=case["effect"]).first() if case.get("effect") else None
        advice = desk.ADVICE.get(row.name, "") if row.status == WaitStatus.OPEN else ""
        parts = [
            self._settled(row) if row.status != WaitStatus.OPEN else None,
            Section("What is known", facts=self._known(row, case), intro=advice),
            self._compared(case),
            self._effect(row, effect) if effect is not None else None,
            self._probe(row, case) if effect is not None else None,
        ]
        return [p for p in parts if p is not None]

    def _known(self, row: Any, case: dict[str, Any]) -> list[tuple[str, Any]]:
        facts: list[tuple[str, Any]] = [
            ("State", self.state(row)),
            ("Run", self.of_run(row)),
            ("Run's status", show.badge(row.run.status)),
            ("Position", row.position),
            ("Since", self.since(row)),
        ]
        words = (
            ("type", "Exception"),
            ("message", "Message"),
            ("where", "Where"),
            ("doubt", "What went wrong"),
            ("reason", "Why you are asked"),
            ("found", "The read-back says"),
            ("what", "What differs"),
            ("workflow_version", "Version that was run"),
            ("turns_lost", "Turns lost"),
            ("after_position", "After position"),
            ("version", "Version needed"),
        )
        facts += [
            (label, show.text(str(case[name]))) for name, label in words if case.get(name) not in (None, "")
        ]
        if case.get("not_before"):
            at = datetime.fromisoformat(case["not_before"])
            facts.append(("Can be disproved from", show.moment(at, row.asked_at)))
        return facts

    def _compared(self, case: dict[str, Any]) -> Section | None:
        if case.get("receipt"):
            return Section("Receipt and world", table=side_by_side(case["receipt"], case.get("seen") or {}))
        if case.get("recorded"):
            facts = [
                ("The journal recorded", show.code(case["recorded"], 400)),
                ("The code asked for", show.code(case.get("seen"), 400)),
            ]
            return Section("Recorded and asked for", facts=facts)
        return None

    def _effect(self, row: Any, effect: Effect) -> Section:
        undone = effect.compensates
        facts = [
            *([("Undoes", show.link(undone, undone.name))] if undone is not None else []),
            ("Effect", show.link(effect, effect.name)),
            ("Kind", show.code(effect.kind)),
            ("Status", show.badge(effect.status)),
            ("Key", show.code(effect.key)),
            ("Target", show.code(effect.target)),
            ("Last sent", show.moment(effect.sent_at, row.asked_at)),
            ("Call deadline", show.moment(effect.deadline_at, row.asked_at)),
        ]
        return Section("The request", facts=facts, blocks=[show.json_block(effect.request)])

    def _probe(self, row: Wait, case: dict[str, Any]) -> Section | None:
        probe = case.get("probe")
        if probe is None:
            return None
        at = ("Looked up", show.moment(datetime.fromisoformat(probe["at"])))
        title = "What the peer has" + (" of what is to be undone" if row.position < 0 else "")
        if probe.get("problem"):
            return Section(title, facts=[at, ("No answer", show.text(probe["problem"]))])
        found = probe.get("found")
        if found is None:
            return Section(title, facts=[at, ("Found", "nothing under its key")])
        facts = [
            at,
            ("External id", show.code(found.get("external_id"), 400)),
            ("Checksum", show.code(found.get("checksum"), 400)),
        ]
        return Section(title, facts=facts)

    def _settled(self, row: Wait) -> Section:
        facts: list[tuple[str, Any]] = [("As", row.outcome), ("When", show.moment(row.closed_at))]
        entry = Entry.objects.filter(run=row.run_id, seq=row.closed_seq or 0).first()
        value = (show.read(entry.data, unfold=True) if entry else {}).get("value")
        if isinstance(value, dict):
            facts += [("By", value.get("by", "")), ("Note", show.text(value.get("note", "")))]
        return Section("How it was settled", facts=facts)

    # --- what operators may do --------------------------------------------------------------------

    def forms(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        if row.status != WaitStatus.OPEN or not request.user.has_perm("approvals.operate"):
            return {"sees_only": row.status == WaitStatus.OPEN}
        case = show.read(row.data or "{}")
        asked = Outbox.objects.filter(kind=Outbox.Kind.PROBE, subject=row.pk).exists()
        effect = Effect.objects.filter(pk=case["effect"]).first() if case.get("effect") else None
        may_look = effect is not None and desk.may_be_looked_up(effect)
        return {"form": self._form(row), "may_look": may_look, "asked": asked}

    def _form(self, row: Wait, data: Any = None) -> ResolveForm:
        return ResolveForm(
            desk.choices(row.name, show.read(row.data or "{}")), receipt=row.name == "in doubt", data=data
        )

    def resolve_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Settles the case."""
        if not request.user.has_perm("approvals.operate"):
            raise PermissionDenied
        row = self.found(request, object_id)
        form = self._form(row, request.POST)
        if form.is_valid():
            said = form.cleaned_data
            try:
                reconciliation.resolve(
                    row.pk,
                    actor=request.user,
                    resolution=said["resolution"],
                    note=said["note"],
                    external_id=said.get("external_id") or None,
                    checksum=said.get("checksum") or None,
                )
            except ApprovalsError as error:
                form.add_error(None, told(error))
            else:
                gone = "ends as failed" if said["resolution"] == "fail" else "goes on"
                messages.success(request, f"The case is settled; the run {gone}.")
                return HttpResponseRedirect(show.address(row))
        return self.page(request, object_id, status=HTTPStatus.UNPROCESSABLE_ENTITY, form=form)

    def look_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks a worker to look."""
        if not request.user.has_perm("approvals.operate"):
            raise PermissionDenied
        row = self.found(request, object_id)
        try:
            reconciliation.ask_to_look(row.pk, actor=request.user)
        except ApprovalsError as error:
            return self.page(request, object_id, status=HTTPStatus.UNPROCESSABLE_ENTITY, problem=told(error))
        messages.success(request, "A worker was asked to look it up. Its answer appears on this page.")
        return HttpResponseRedirect(show.address(row))
