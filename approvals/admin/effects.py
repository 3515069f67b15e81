"""Effects: what was asked of the outside world, what it answered, what was seen of it since."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.admin import show
from approvals.admin.base import Section, Table, WindowOfRuns, by
from approvals.admin.work import wait_link
from approvals.models import Effect, Wait
from approvals.states import EffectStatus, WaitKind


def side_by_side(receipt: dict[str, Any], seen: dict[str, Any]) -> Table:
    """What was recorded against what is there; rows that differ say so."""
    problem = seen.get("problem")

    def found(name: str) -> Any:
        return "could not be told" if problem else _value(seen.get(name))

    rows = []
    for name in ("external_id", "checksum", "evidence"):
        same = receipt.get(name) == seen.get(name)
        mark = (
            show.badge("unknown")
            if problem
            else show.badge("same", "good")
            if same
            else show.badge("differs", "bad")
        )
        label = format_html("{}<br>{}", name.replace("_", " ").capitalize(), mark)
        rows.append((label, _value(receipt.get(name)), found(name)))
    return Table(("What", "Receipt", "Seen"), rows, "", f"The look-up answered: {problem}" if problem else "")


def _value(found: Any) -> Any:
    if found in (None, "", {}):
        return show.NOTHING
    return (
        show.code(found, 400)
        if isinstance(found, str)
        else show.json_block(json.dumps(found), show.SHORT_CHARS)
    )


@admin.register(Effect)
class EffectAdmin(WindowOfRuns[Effect]):
    """Every change in the outside world that a run intended."""

    list_display = ("name", "kind", "state", "of_run", "verified", "receipt")
    list_filter = (by("status", EffectStatus, title="status"), by("risk", show.RISKS, title="risk"))
    ordering = ("-id",)
    search_fields = ("name", "kind", "external_id", "key")
    list_defer = ("request", "evidence")
    empty_text = "No run has changed anything in the outside world yet."

    @admin.display(description="receipt", ordering="external_id")
    def receipt(self, row: Effect) -> SafeString:
        return show.code(row.external_id, 40)

    @admin.display(description="sent", ordering="sent_at")
    def sent(self, row: Any) -> SafeString:
        return show.moment(row.sent_at, row.asked_at)

    @admin.display(description="verified", ordering="verified_at")
    def verified(self, row: Any) -> SafeString:
        return show.moment(row.verified_at, row.asked_at)

    def title(self, row: Effect) -> str:
        return f"“{row.name}” ({row.kind})"

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        return [
            Section("Effect", facts=self._facts(row)),
            Section("Request", blocks=[show.json_block(row.request)]),
            self._receipt(row),
            *self._cases(row),
        ]

    def _facts(self, row: Any) -> list[tuple[str, Any]]:
        pinned = [f"{p['slug']} v{p['version']}" for p in json.loads(row.policies)]
        facts = [
            ("Run", self.of_run(row)),
            ("Position", row.position),
            ("Kind", show.code(row.kind)),
            ("Target", show.code(row.target)),
            ("Status", self.state(row)),
            ("Why", show.text(row.reason)),
            ("Key", show.code(row.key)),
            ("Generation", row.generation),
            ("Digest", show.code(row.digest)),
            ("Risk", f"{row.risk}, {'reversible' if row.reversible else 'irreversible'}"),
            ("Policies", ", ".join(pinned) or "none"),
            ("Sends", f"{row.sends}, besides {row.attempts} attempts that certainly sent nothing"),
            ("Last sent", self.sent(row)),
            ("Call deadline", show.moment(row.deadline_at, row.asked_at)),
        ]
        for approval in row.approvals.filter(wait__run=row.run_id).select_related("wait").order_by("wait_id"):
            facts.append(
                ("Approval", wait_link(approval.wait, f"{approval.title}: {approval.wait.outcome or 'open'}"))
            )
        if row.compensates_id:
            facts.append(("Undoes", show.link(Effect, "an earlier effect", pk=row.compensates_id)))
        return facts

    def _receipt(self, row: Any) -> Section:
        if row.external_id is None:
            return Section("Receipt", intro="There is no receipt: nothing is known to have happened.")
        facts = [
            ("External id", show.code(row.external_id, 400)),
            ("Checksum", show.code(row.checksum)),
            ("Verified", self.verified(row)),
            ("Superseded", "yes: it is not verified any more" if row.superseded else "no"),
        ]
        return Section("Receipt", facts=facts, blocks=[show.json_block(row.evidence, unfold=True)])

    def _cases(self, row: Effect) -> list[Section]:
        """What operators were shown of it, the newest first: the receipt beside what was found."""
        cases = Wait.objects.filter(
            run=row.run_id, position=row.position, kind=WaitKind.RECONCILIATION
        ).order_by("-ordinal")[:10]
        found = []
        for case in cases:
            told = show.read(case.data or "{}")
            facts = [
                ("Case", wait_link(case)),
                ("Opened", show.moment(case.opened_at)),
                ("Outcome", case.outcome or "open"),
            ]
            table = side_by_side(told["receipt"], told.get("seen") or {}) if told.get("receipt") else None
            found.append(Section("What was seen" if table else "Case", facts=facts, table=table))
        return found
