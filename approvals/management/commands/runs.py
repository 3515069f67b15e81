"""Starting runs, looking at them, and stopping them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from approvals import clock, queries
from approvals.errors import InvalidInput
from approvals.management import reports
from approvals.management.arguments import add_paging, add_person, identifier, json_value, page
from approvals.management.output import FAILED, MANAGE, Answer, VerbCommand
from approvals.management.people import find
from approvals.queries import starting
from approvals.services import runs
from approvals.states import RunStatus
from approvals.workflows.values import mask

BY_COMMAND = "asked for on the command line"


class Command(VerbCommand):
    """`manage.py runs`."""

    name = "runs"
    help = "Starts runs, shows them, sends them signals, pauses, resumes, cancels and replays them."

    def add_verbs(self, add: Callable[..., CommandParser]) -> None:
        start = add("start", self.start, "Starts a run of a workflow; a worker moves it.")
        start.add_argument("workflow", metavar="NAME")
        start.add_argument(
            "--input", type=json_value, default={}, metavar="JSON|@FILE", help="without it: {}"
        )
        start.add_argument("--key", help="your own name for it; the same key again starts nothing twice")
        add_person(start)
        listing = add("list", self.list, "Lists runs, the newest first.")
        listing.add_argument("--status", choices=[s.value for s in RunStatus])
        listing.add_argument("--workflow", metavar="NAME")
        add_paging(listing)
        _with_id(add("show", self.show, "Shows a run: its waits, effects and timeline."))
        self._add_stops(add)
        _with_id(add("replay", self.replay, "Runs today's code against the journal, performing nothing."))
        signal = _with_id(add("signal", self.signal, "Sends a message to a run."))
        signal.add_argument("signal", metavar="NAME")
        signal.add_argument("--payload", type=json_value, required=True, metavar="JSON|@FILE")
        signal.add_argument("--message-id", help="the same id again is the same message")

    def _add_stops(self, add: Callable[..., CommandParser]) -> None:
        for verb, do, what in (
            ("cancel", self.cancel, "Ends a run as cancelled, at its next boundary."),
            ("pause", self.pause, "Holds a run, at its next boundary."),
        ):
            stop = _with_id(add(verb, do, what))
            stop.add_argument("--reason", default=BY_COMMAND, help="stays with the run")
            add_person(stop)
            if verb == "cancel":
                stop.add_argument("--compensate", action="store_true", help="and undo what it has done first")
        add_person(_with_id(add("resume", self.resume, "Lets a paused run go on.")))

    def start(self, options: Namespace) -> Answer:
        run = self._started(find(options.person), options)
        if run.status == RunStatus.PENDING and not queries.workers():
            return _shown(run.id, f"Started. No worker lives to move it: {MANAGE} worker")
        return _shown(run.id, "Started.")

    def _started(self, actor: Any, options: Namespace) -> runs.Run[Any]:
        try:
            if actor is None:
                return runs.start_json(options.workflow, options.input, key=options.key)
            return runs.start_as(actor, options.workflow, options.input, key=options.key)
        except InvalidInput as error:
            if fields := starting.asked(options.workflow).schema.get("properties"):
                error.values["fields"] = ", ".join(fields)
            raise

    def list(self, options: Namespace) -> Answer:
        filters = {k: v for k in ("status", "workflow") if (v := getattr(options, k))}
        found = queries.runs(**page(options), **filters)
        return Answer(found, reports.table_of(found, filtered=bool(filters)))

    def show(self, options: Namespace) -> Answer:
        run = queries.run(options.id)
        return Answer(run, reports.whole(run, clock.now()))

    def cancel(self, options: Namespace) -> Answer:
        undo = options.compensate
        runs.cancel(options.id, actor=find(options.person), reason=options.reason, compensate=undo)
        first = " What it did is undone first." if undo else ""
        return _shown(options.id, f"Cancelled, or to be cancelled at its next boundary.{first}")

    def pause(self, options: Namespace) -> Answer:
        runs.pause(options.id, actor=find(options.person), reason=options.reason)
        return _shown(options.id, "Paused, or to be paused at its next boundary.")

    def resume(self, options: Namespace) -> Answer:
        runs.resume(options.id, actor=find(options.person))
        return _shown(options.id, "Goes on.")

    def signal(self, options: Namespace) -> Answer:
        runs.signal(options.id, options.signal, options.payload, message_id=options.message_id)
        return _shown(options.id, f"Signal {options.signal!r} sent.")

    def replay(self, options: Namespace) -> Answer:
        report: dict[str, Any] = asdict(runs.replay(options.id))
        report["output"] = mask(report["output"]) if report["output"] else None
        return Answer(report, reports.replayed(report), code=0 if report["same"] else FAILED)


def _with_id(parser: CommandParser) -> CommandParser:
    parser.add_argument("id", type=identifier, metavar="ID")
    return parser


def _shown(run_id: UUID, what: str) -> Answer:
    run = queries.run(run_id)
    return Answer(run, [what, *reports.brief(run, clock.now())])
