"""One cell's stage: the product on a database of its own, work that goes on meanwhile, and the verdict.

The verdict comes from the ledger (the world's files) and the database's rows, never from what a run says of itself.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection

from approvals import clock
from approvals.models import Approval, Decision, Effect, Entry, Run, Wait
from approvals.services import runs
from approvals.states import RUN_FINAL
from approvals.testing import wait_for
from approvals.testing.invariants import problems
from tests.chaos import flows
from tests.chaos.proxy import Proxy
from tests.chaos.servers import Postgres, Redis
from tests.chaos.site import Person, Site, patiently, thread

SETTLE_SECONDS = 150.0
BLIND = "chaos-mail"


@dataclass
class Outcome:
    """What became of a cell."""

    cell: str
    fired: dict[str, int]
    """How often each of its faults was there; each must have been."""
    runs: int = 0
    during: int = 0
    """Runs that completed between the first fault and the last."""
    after: int = 0
    decisions: int = 0
    stopped: int = 0
    """Runs that wait for a person because their peer is blind."""
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether every fault fired, work was acknowledged, and nothing is wrong."""
        return (
            bool(self.fired) and all(self.fired.values()) and self.during + self.after > 0 and not self.wrong
        )


@dataclass
class Answer:
    """What a web request that decided was told, each time it was sent."""

    wait_id: UUID
    statuses: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class Stage:
    """What a cell plays on."""

    def __init__(self, cell: str, postgres: Postgres, redis: Redis, site: Site, world: Path) -> None:
        self.cell, self.postgres, self.redis, self.site, self.world = cell, postgres, redis, site, world
        self.fired: Counter[str] = Counter()
        self.notes: dict[str, Any] = {}
        self.wrong: list[str] = []
        self.started: dict[UUID, str] = {}
        self.answers: list[Answer] = []
        self._pause = threading.Event()  # never set
        self._began: datetime | None = None
        self._ended: datetime | None = None
        self._numbers = iter(range(1_000_000))
        self.proxy: Proxy  # where the cell asks for one
        self.proxied = ""
        self.disk: Path

    @property
    def database(self) -> str:
        """Its name on the server."""
        return str(connection.settings_dict["NAME"])

    def pass_time(self, seconds: float) -> None:
        """The faults' pace; nothing is waited for by this."""
        self._pause.wait(seconds)

    def expect(self, holds: bool, told: str) -> None:
        """Something that must be so, beside the verdict."""
        if not holds:
            self.wrong.append(told)

    # --- work --------------------------------------------------------------------------------------

    def start(self, flow: Any) -> UUID:
        """Starts a run; sent again with its key while the database is away, as a caller would."""
        number = next(self._numbers)
        run: Any = patiently(lambda: runs.start(flow, number, key=f"chaos-{number}"))
        self.started[run.id] = flow.name
        return UUID(str(run.id))

    def starting(self, *of: Any, every_seconds: float = 0.25) -> AbstractContextManager[None]:
        """Starts runs of these in turn, all the while."""

        def work(over: threading.Event) -> None:
            turn = 0
            while not over.wait(every_seconds):
                self.start(of[turn % len(of)])
                turn += 1

        return thread(work)

    def deciding(self, name: str = "vera-reviewers") -> AbstractContextManager[None]:
        """A reviewer approves over the web whatever is open, all the while."""

        def work(over: threading.Event) -> None:
            person = patiently(lambda: Person(self.site.address, name))
            while not over.wait(0.1):
                for wait_id in self.open_approvals():
                    if not over.is_set():
                        self.decide(person, wait_id)

        return thread(work)

    def open_approvals(self) -> list[UUID]:
        """What people are asked now."""
        rows = Wait.objects.filter(kind="approval", status="open").order_by("id")
        return patiently(lambda: list(rows.values_list("pk", flat=True)))

    def form(self, wait_id: Any) -> dict[str, str]:
        """What an approval's page sends."""
        approval = patiently(lambda: Approval.objects.get(pk=wait_id))
        return {"outcome": "approved", "digest": approval.digest, "revision": str(approval.revision)}

    def decide(self, person: Person, wait_id: Any) -> Answer:
        """Approves by the page's form, sent again until it is answered otherwise than by 503."""
        form = self.form(wait_id)
        answer, ends = Answer(wait_id), time.monotonic() + 60
        self.answers.append(answer)
        while time.monotonic() < ends:
            status, text = 0, ""
            with suppress(OSError):
                status, text, headers = person.post(f"/approvals/{wait_id}/", **form)
                self.expect(status != 503 or "retry-after" in headers, "503 without Retry-After")
            answer.statuses.append(status)
            answer.texts.append(text)
            if status not in (0, 503):
                break
            self.pass_time(0.2)
        self.expect(answer.statuses[-1] in (200, 303), f"a decision was answered {answer.statuses}")
        return answer

    # --- from the first fault to the last ----------------------------------------------------------

    def __enter__(self) -> Stage:
        self._began = patiently(clock.now)
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended = patiently(clock.now)

    # --- the verdict -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Returns when every run that was started is over or stands for a person."""
        with suppress(TimeoutError):
            wait_for(lambda: not patiently(self._unsettled), seconds=SETTLE_SECONDS)

    def _unsettled(self) -> list[UUID]:
        open_runs = Run.objects.filter(pk__in=self.started).exclude(status__in=RUN_FINAL)
        cases = Wait.objects.filter(kind="reconciliation", status="open").values("run")
        return list(open_runs.exclude(pk__in=cases).values_list("pk", flat=True))

    def outcome(self) -> Outcome:
        """To be asked when all has settled."""
        found = Outcome(
            self.cell, dict(self.fired), wrong=self.wrong, notes=self.notes, runs=len(self.started)
        )
        rows = {run.pk: run for run in Run.objects.filter(pk__in=self.started)}
        for run_id, flow in self.started.items():
            self._judge(found, rows.get(run_id), flow)
        finished = Run.objects.filter(status="completed", finished_at__gte=self._began)
        found.during = finished.filter(finished_at__lte=self._ended).count()
        found.after = finished.filter(finished_at__gt=self._ended).count()
        self._judge_world(found)
        self._judge_decisions(found)
        found.wrong += problems([])
        lost = Entry.objects.filter(kind="run.lose_lease")
        found.notes["turns lost"] = lost.count()
        if complaints := self.site.complaints():
            found.notes["complaints"] = [len(complaints), *complaints[:3]]
        return found

    def _judge(self, found: Outcome, run: Run | None, flow: str) -> None:
        if run is None:
            found.wrong.append("a run that was acknowledged is not there")
            return
        cases = Wait.objects.filter(run=run, kind="reconciliation", status="open").values_list(
            "name", flat=True
        )
        if run.status == "completed":
            done = Effect.objects.filter(run=run, status__in=("committed", "verified")).count()
            if done != flows.EFFECTS[flow]:
                found.wrong.append(f"{flow} {run.pk} completed with {done} effects")
        elif flow == BLIND and list(cases) == ["in doubt"]:
            found.stopped += 1
        else:
            lost = Entry.objects.filter(run=run, kind="run.lose_lease").order_by("seq")
            why = [json.loads(data)["why"][:100] for data in lost.values_list("data", flat=True)]
            found.wrong.append(
                f"{flow} {run.pk} is {run.status}: {list(cases)} {run.error or ''} lost: {why}"
            )

    def _judge_world(self, found: Outcome) -> None:
        """Each thing was done once, by an effect that is on record, and no receipt is of nothing."""
        done = {path.name: path.read_text().count("\n") for path in self.world.glob("chaos.*/*")}
        for key, times in done.items():
            if times != 1:
                found.wrong.append(f"{key} was done {times} times")
        effects = dict(Effect.objects.values_list("key", "status"))
        found.wrong += [f"{key} was done by no effect" for key in done.keys() - effects.keys()]
        having = {key for key, status in effects.items() if status in ("committed", "verified")}
        found.wrong += [f"{key} has a receipt and was not done" for key in having - done.keys()]
        found.notes["done"] = len(done)

    def _judge_decisions(self, found: Outcome) -> None:
        taken = Counter(Decision.objects.values_list("approval_id", flat=True))
        for answer in self.answers:
            if taken[answer.wait_id] != 1:
                found.wrong.append(
                    f"a decision was answered {answer.statuses} and recorded {taken[answer.wait_id]} times"
                )
        found.decisions = len(self.answers)
        sent = sum(len(answer.statuses) for answer in self.answers)
        if sent > len(self.answers):
            found.notes["decisions sent again"] = sent - len(self.answers)


def as_json(outcomes: list[Outcome]) -> str:
    """The report."""
    cells = [{**vars(o), "good": o.is_good} for o in outcomes]
    return json.dumps({"cells": cells, "good": all(o.is_good for o in outcomes)}, indent=1, default=str)


def use_world(folder: Path) -> Path:
    """An empty ledger, for this process and those it starts."""
    world = folder / "world"
    world.mkdir()
    os.environ["CHAOS_WORLD"] = str(world)
    return world
