"""The operator's desk on the command line."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from itertools import chain

from django.core.management.base import CommandParser

from approvals import clock, queries
from approvals.errors import InvalidInput
from approvals.management import reports
from approvals.management.arguments import add_paging, add_person, identifier, json_value, page
from approvals.management.output import MANAGE, Answer, VerbCommand, WrongCall
from approvals.management.people import find
from approvals.services import reconciliation
from approvals.states import RESOLUTIONS


class Command(VerbCommand):
    """`manage.py reconciliation`."""

    name = "reconciliation"
    help = "Shows what only an operator can settle, and settles it."

    def add_verbs(self, add: Callable[..., CommandParser]) -> None:
        listing = add("list", self.list, "Lists the open cases, the oldest first.")
        listing.add_argument("--all", action="store_true", help="those that are settled too")
        add_paging(listing)
        show = add("show", self.show, "Shows one case, and how it can be settled.")
        show.add_argument("id", type=identifier, metavar="ID")
        resolve = add("resolve", self.resolve, "Settles a case; its run goes on, or fails.")
        resolve.add_argument("id", type=identifier, metavar="ID")
        add_person(resolve, required=True)
        every = dict.fromkeys(chain.from_iterable(RESOLUTIONS.values()))
        resolve.add_argument("--resolution", required=True, choices=list(every))
        resolve.add_argument("--note", required=True, help="what you saw and why; it stays with the run")
        resolve.add_argument("--external-id", metavar="X", help="to confirm: the id that the peer shows")
        resolve.add_argument("--checksum", help="to confirm: of what is there")
        resolve.add_argument(
            "--evidence", type=json_value, metavar="JSON|@FILE", help="to confirm: a JSON object"
        )
        look = add("look", self.look, "Asks a worker to look the effect up; the answer appears on the case.")
        look.add_argument("id", type=identifier, metavar="ID")
        add_person(look, required=True)

    def list(self, options: Namespace) -> Answer:
        found = queries.cases(**page(options), everything=options.all)
        return Answer(found, reports.cases(found, clock.now(), everything=options.all))

    def show(self, options: Namespace) -> Answer:
        found = queries.case(options.id)
        return Answer(found, reports.case(found, clock.now()))

    def resolve(self, options: Namespace) -> Answer:
        if not isinstance(options.evidence, dict | None):
            raise WrongCall("--evidence is a JSON object", found=type(options.evidence).__name__)
        try:
            reconciliation.resolve(
                options.id,
                actor=find(options.person),
                resolution=options.resolution,
                note=options.note,
                external_id=options.external_id,
                checksum=options.checksum,
                evidence=options.evidence,
            )
        except InvalidInput as error:
            if error.values.get("missing") == "external_id":
                error.values["next"] = "the same command with --external-id X"
            raise
        return Answer(queries.case(options.id), [f"Settled by {options.person}: {options.resolution}."])

    def look(self, options: Namespace) -> Answer:
        reconciliation.ask_to_look(options.id, actor=find(options.person))
        said = f"Asked. A worker looks it up; then: {MANAGE} reconciliation show {options.id}"
        return Answer(queries.case(options.id), [said])
