"""Policies: loading, showing, checking."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import unified_diff
from typing import Any

import yaml
from django.core.management.base import CommandParser
from django.db import DatabaseError

from approvals import clock, policy, queries
from approvals.management.arguments import add_person, file
from approvals.management.output import MANAGE, Answer, VerbCommand
from approvals.management.people import find
from approvals.management.text import block, fields, table, when
from approvals.services import policies

Json = Mapping[str, Any]


class Command(VerbCommand):
    """`manage.py policies`."""

    name = "policies"
    overview = "show"
    help = "Loads policy files as immutable versions, shows what holds, and checks a file without loading it."

    def add_verbs(self, add: Callable[..., CommandParser]) -> None:
        load = add(
            "load", self.load, "Loads a policy file as the next version; the same again changes nothing."
        )
        load.add_argument("file", type=file, metavar="FILE")
        add_person(load)
        show = add("show", self.show, "Shows the policies that hold, or one in full.")
        show.add_argument("slug", nargs="?", metavar="SLUG")
        lint = add("lint", self.lint, "Checks a policy file and names every problem; loads nothing.")
        lint.add_argument("file", type=file, metavar="FILE")

    def load(self, options: Namespace) -> Answer:
        loaded = policies.load(options.file, actor=find(options.person))
        found = queries.policy_version(loaded.slug)
        before = queries.policy_version(loaded.slug, loaded.version - 1)["body"] if loaded.version > 1 else {}
        change = list(_difference(before, found["body"])) if loaded.changed else []
        return Answer({**found, "changed": loaded.changed, "difference": change}, _loaded(found, change))

    def show(self, options: Namespace) -> Answer:
        if options.slug is None:
            found = queries.policies()
            return Answer(found, _listed(found))
        one = queries.policy_version(options.slug)
        return Answer(one, _whole(one))

    def lint(self, options: Namespace) -> Answer:
        read = policies.read(options.file)
        body, warnings = policy.body(read), []
        with suppress(DatabaseError):  # a file can be checked where there is no database
            warnings = policies.warnings(read)
        told = f"{options.file}: policy {read.slug}, no problem."
        return Answer(
            {"slug": read.slug, "ok": True, "body": body, "warnings": warnings},
            [told, *(f"  warning: {warning}" for warning in warnings)],
        )


def _written(body: Json) -> list[str]:
    return yaml.safe_dump(dict(body), sort_keys=False, allow_unicode=True).splitlines() if body else []


def _difference(before: Json, after: Json) -> Iterator[str]:
    lines = unified_diff(_written(before), _written(after), n=1, lineterm="")
    yield from (line for line in lines if not line.startswith(("---", "+++")))


def _loaded(found: Json, change: list[str]) -> Iterator[str]:
    if not change:
        yield f"Policy {found['slug']} v{found['version']} holds already; nothing changed."
        return
    yield f"Policy {found['slug']} v{found['version']} holds now."
    yield from block("\n".join(change))


def _listed(found: Json) -> Iterator[str]:
    rows = [
        (
            p["slug"],
            f"v{p['version']}",
            ", ".join(p["body"]["effects"]),
            p["author"] or "",
            (p["created_at"] or "")[:19],
        )
        for p in found["items"]
    ]
    yield from table(("policy", "version", "effects that need it", "loaded by", "at (UTC)"), rows)
    yield f"One in full: {MANAGE} policies show SLUG"
    if len(rows) == 1:
        yield f"Only the one that always exists. Load another: {MANAGE} policies load FILE"


def _whole(one: Json) -> Iterator[str]:
    yield f"Policy {one['slug']} v{one['version']}"
    told = [
        ("loaded by", one["author"]),
        ("at", when(one["created_at"], clock.now())),
        ("digest", one["digest"]),
    ]
    yield from fields(told)
    yield ""
    yield from block("\n".join(_written(one["body"])))
