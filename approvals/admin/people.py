"""What people decide on and by which rules: approvals, decisions, policies."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString

from approvals import queries
from approvals.admin import show
from approvals.admin.base import Section, Table, Window, by
from approvals.admin.forms import DecideForm, told
from approvals.errors import ApprovalsError
from approvals.facts import counts
from approvals.models import Approval, Decision, Effect
from approvals.queries.wording import short
from approvals.services import decisions
from approvals.states import WaitStatus


@admin.register(Approval)
class ApprovalAdmin(Window[Approval]):
    """What people were asked, and what became of it."""

    list_display = ("title", "state", "quorum", "of_run", "asked", "due", "risk_of_it")
    list_filter = (by("wait__status", WaitStatus, title="state"), by("risk", show.RISKS, title="risk"))
    ordering = ("-wait_id",)
    search_fields = ("title", "kind", "target", "digest")
    list_defer = ("action", "evidence", "summary", "form")
    empty_text = "Nobody has been asked for anything yet."
    buttons = (("decide", "decide_view"),)
    page_template = "admin/approvals/approval_page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        found = super().get_queryset(request)
        return found.select_related("wait__run", "policy").prefetch_related("decisions")

    @admin.display(description="state", ordering="wait__status")
    def state(self, row: Approval) -> SafeString:
        if row.invalidated:
            return show.badge("refused later", "bad")
        return show.badge(row.wait.outcome or row.wait.status)

    @admin.display(description="approvals")
    def quorum(self, row: Approval) -> str:
        counted = queries.quorum(row)
        return f"{counted.got} of {counted.needed}"

    @admin.display(description="risk", ordering="risk")
    def risk_of_it(self, row: Approval) -> str:
        return row.risk if row.reversible else f"{row.risk}, irreversible"

    @admin.display(description="run", ordering="wait__run")
    def of_run(self, row: Approval) -> SafeString:
        return show.run_link(row.wait.run_id, row.wait.run.workflow)

    @admin.display(description="asked", ordering="wait_id")
    def asked(self, row: Any) -> SafeString:
        return show.moment(row.wait.opened_at, row.asked_at)

    @admin.display(description="due", ordering="wait__due_at")
    def due(self, row: Any) -> SafeString:
        return show.moment(row.wait.due_at, row.asked_at if row.wait.status == WaitStatus.OPEN else None)

    # --- the page ---------------------------------------------------------------------------------

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        sections = [
            Section(
                "What will happen if approved" if row.kind else "The question",
                facts=self._action(row),
                blocks=[show.json_block(row.action)],
            ),
            Section("Approval", facts=self._facts(row)),
            Section("Decisions", table=_decisions(row)),
        ]
        if row.evidence != "[]":
            sections.insert(1, Section("Evidence", blocks=[show.json_block(row.evidence)]))
        if row.form:
            sections.append(Section("Form that a reviewer fills in", blocks=[show.json_block(row.form)]))
        return sections

    def _action(self, row: Approval) -> list[tuple[str, Any]]:
        facts = [("In words", row.sentence), ("Kind", show.code(row.kind)), ("Target", show.code(row.target))]
        said = [(label, value) for label, value in facts if value not in ("", show.NOTHING)]
        bound = [("Summary", show.text(row.summary))] if row.summary else []
        return [*said, *bound, ("Revision", row.revision), ("Digest of exactly this", show.code(row.digest))]

    def _facts(self, row: Any) -> list[tuple[str, Any]]:
        return [
            ("State", self.state(row)),
            ("Approvals", self.quorum(row)),
            ("Risk", self.risk_of_it(row)),
            ("Run", self.of_run(row)),
            ("Requester", row.wait.run.requester_name or "the installation itself"),
            ("Policy", show.link(row.policy, f"{row.policy}, rule {row.rule + 1}")),
            ("Asked", self.asked(row)),
            ("Due", self.due(row)),
            ("Closed", show.moment(row.wait.closed_at, row.asked_at)),
            ("For effect", _effect_link(row.effect_id)),
            ("Used by", _effect_link(row.consumed_by_id)),
            ("Refused later", row.invalidated or show.NOTHING),
        ]

    # --- deciding ---------------------------------------------------------------------------------

    def forms(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        if row.wait.status != WaitStatus.OPEN:
            return {}
        may = queries.may_decide(row, request.user)
        if not may.ok:
            return {"may_not": f"{request.user.get_username()} {may.reason}"}
        return {"form": DecideForm(with_form=bool(row.form))}

    def decide_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Takes a decision to the one door; it says who may."""
        row: Any = self.found(request, object_id)
        form = DecideForm(with_form=bool(row.form), data=request.POST)
        if form.is_valid():
            said = form.cleaned_data
            try:
                decided = decisions.decide(
                    row.pk,
                    actor=request.user,
                    outcome=said["outcome"],
                    digest=said["digest"],
                    revision=said["revision"],
                    comment=said["comment"],
                    form=said.get("form"),
                    channel="admin",
                )
            except ApprovalsError as error:
                form.add_error(None, told(error))
            else:
                messages.success(
                    request, f"Your decision is recorded: {decided.got} of {decided.needed} approvals."
                )
                return HttpResponseRedirect(show.address(row))
        return self.page(request, object_id, status=HTTPStatus.UNPROCESSABLE_ENTITY, form=form)


def _effect_link(pk: Any) -> SafeString:
    return show.link(Effect, short(pk), pk=pk) if pk else SafeString(show.NOTHING)


def _decisions(row: Approval) -> Table:
    cells = [
        (
            show.link(d, d.reviewer_name),
            show.badge(d.outcome),
            show.text(d.comment),
            show.moment(d.at),
            d.channel,
            d.revision,
            "withdrawn" if d.withdrawn_at else "yes" if counts(d, row) else "no",
        )
        for d in sorted(row.decisions.all(), key=lambda d: (d.at, d.pk))
    ]
    headers = ("Reviewer", "Decision", "Comment", "When", "Channel", "Revision", "Counts")
    return Table(headers, cells, "Nobody has decided yet.")


@admin.register(Decision)
class DecisionAdmin(Window[Decision]):
    """What each person said about one revision."""

    list_display = ("reviewer_name", "what", "about", "when", "channel", "counted")
    list_filter = (by("outcome", decisions.OUTCOMES, title="decision"),)
    ordering = ("-id",)
    search_fields = ("reviewer_name", "comment", "digest")
    list_defer = ("form",)
    empty_text = "Nobody has decided anything yet."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Decision]:
        return super().get_queryset(request).select_related("approval__wait__run", "approval__policy")

    @admin.display(description="decision", ordering="outcome")
    def what(self, row: Decision) -> SafeString:
        return show.badge(row.outcome)

    @admin.display(description="about", ordering="approval")
    def about(self, row: Decision) -> SafeString:
        return show.link(row.approval)

    @admin.display(description="when", ordering="id")
    def when(self, row: Any) -> SafeString:
        return show.moment(row.at, row.asked_at)

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        facts = [
            ("Reviewer", row.reviewer_name),
            ("Decision", self.what(row)),
            ("About", self.about(row)),
            ("Run", show.run_link(row.approval.wait.run_id, row.approval.wait.run.workflow)),
            ("Comment", show.text(row.comment)),
            ("When", self.when(row)),
            ("Channel", row.channel),
            ("Revision", row.revision),
            ("Digest", show.code(row.digest)),
            ("Stage", row.stage + 1),
            ("Counted", "yes" if row.counted else "no"),
            ("Withdrawn", show.moment(row.withdrawn_at, row.asked_at)),
        ]
        form = [Section("Form", blocks=[show.json_block(row.form)])] if row.form else []
        return [Section("Decision", facts=facts), *form]
