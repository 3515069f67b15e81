"""Deciding on the command line."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from approvals import clock, queries
from approvals.management import reports
from approvals.management.arguments import add_paging, add_person, identifier, json_value, page, positive
from approvals.management.output import Answer, VerbCommand
from approvals.management.people import find
from approvals.services import decisions


class Command(VerbCommand):
    """`manage.py approvals`."""

    name = "approvals"
    help = "Lists and shows what waits for people, and decides it in somebody's name."

    def add_verbs(self, add: Callable[..., CommandParser]) -> None:
        listing = add("list", self.list, "Lists the open approvals, the oldest first.")
        listing.add_argument("--all", action="store_true", help="those that are closed too")
        add_paging(listing)
        show = add("show", self.show, "Shows one approval: the action, the evidence, the digest.")
        show.add_argument("id", type=identifier, metavar="ID")
        decide = add("decide", self.decide, "Decides on exactly what was shown.")
        decide.add_argument("id", type=identifier, metavar="ID")
        add_person(decide, required=True)
        decide.add_argument("--outcome", required=True, choices=decisions.OUTCOMES)
        decide.add_argument("--digest", required=True, help="of what you saw; `show` prints it")
        decide.add_argument(
            "--revision", type=positive, metavar="N", help="of what you saw; needed after the first"
        )
        decide.add_argument("--comment", default="")
        decide.add_argument(
            "--action", type=json_value, metavar="JSON|@FILE", help="edit it, and approve that"
        )
        decide.add_argument(
            "--form", type=json_value, metavar="JSON|@FILE", help="what the approval's form asks for"
        )

    def list(self, options: Namespace) -> Answer:
        found = queries.approvals(**page(options), everything=options.all)
        return Answer(found, reports.approvals(found, clock.now(), everything=options.all))

    def show(self, options: Namespace) -> Answer:
        found = queries.approval(options.id)
        return Answer(found, reports.approval(found, clock.now()))

    def decide(self, options: Namespace) -> Answer:
        chosen: dict[str, Any] = {
            name: getattr(options, name)
            for name in ("outcome", "digest", "revision", "comment", "action", "form")
        }
        decided = decisions.decide(options.id, actor=find(options.person), channel="command", **chosen)
        said = f"{options.person}: {decided.outcome}. "
        if decided.status == "open":
            said += f"It stays open: {decided.got} of {decided.needed}."
        else:
            said += f"The approval is closed: {decided.result}."
        return Answer(queries.approval(options.id), [said])
