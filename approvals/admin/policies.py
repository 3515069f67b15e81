"""Policies and their versions, as the YAML that people write."""

from __future__ import annotations

import json
from typing import Any

import yaml
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from approvals import policy
from approvals.admin import show
from approvals.admin.base import Section, Table, Window
from approvals.models import Policy, PolicyVersion

VERSIONS = 100


def as_yaml(body: str) -> str:
    """A stored policy in the order of the policy file."""
    return yaml.safe_dump(_ordered(json.loads(body)), sort_keys=False, allow_unicode=True, width=100)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in (*policy.KEYS, *value) if key in value}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


@admin.register(Policy)
class PolicyAdmin(Window[Policy]):
    """Each policy, with the version that holds now."""

    list_display = ("slug", "holds_now", "claimed", "since")
    ordering = ("slug",)
    search_fields = ("slug", "claims__kind")
    empty_text = "No policy is loaded. `manage.py policies load FILE` loads one."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Policy]:
        return super().get_queryset(request).select_related("current").prefetch_related("claims")

    @admin.display(description="holds now")
    def holds_now(self, row: Policy) -> SafeString:
        return show.link(row.current, f"version {row.current.version}")

    @admin.display(description="effects that need it")
    def claimed(self, row: Policy) -> str:
        return ", ".join(sorted(c.kind for c in row.claims.all())) or "those that name it"

    @admin.display(description="since")
    def since(self, row: Any) -> SafeString:
        return show.moment(row.current.created_at, row.asked_at)

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        facts = [
            ("Holds now", self.holds_now(row)),
            ("Since", self.since(row)),
            ("Effects that need it", self.claimed(row)),
        ]
        versions = PolicyVersion.objects.filter(slug=row.slug).defer("body").order_by("-version")[:VERSIONS]
        cells = [
            (
                show.link(v, f"version {v.version}"),
                v.author_name or "system",
                show.moment(v.created_at),
                show.code(v.digest),
            )
            for v in versions
        ]
        return [
            Section("Policy", facts=facts, blocks=[show.block(as_yaml(row.current.body))]),
            Section("Versions", table=Table(("Version", "Loaded by", "When", "Digest"), cells, "")),
        ]


@admin.register(PolicyVersion)
class PolicyVersionAdmin(Window[PolicyVersion]):
    """Every version that ever held; none is ever changed."""

    list_display = ("__str__", "author_name", "when", "digest")
    list_filter = ("slug",)
    ordering = ("slug", "-version")
    search_fields = ("slug", "digest")
    list_defer = ("body",)
    empty_text = "No policy is loaded. `manage.py policies load FILE` loads one."

    @admin.display(description="loaded", ordering="created_at")
    def when(self, row: Any) -> SafeString:
        return show.moment(row.created_at, row.asked_at)

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        facts = [
            ("Policy", show.link(Policy, row.slug, pk=row.slug)),
            ("Version", row.version),
            ("Loaded by", row.author_name or "system"),
            ("When", self.when(row)),
            ("Digest", show.code(row.digest)),
        ]
        return [Section("Version", facts=facts, blocks=[show.block(as_yaml(row.body))])]
