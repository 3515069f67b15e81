"""What the machine remembers and predicts, beside the database: plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from approvals.models import Approval, Decision, Entry, Message, Run, Wait
from approvals.states import RUN_FINAL
from tests.model.world import World

_ENTRY = ("seq", "position", "kind", "name", "digest", "data", "at")


@dataclass
class Asked:
    """One approval: what was said about it, and so what must have come of it."""

    needed: int
    said: list[tuple[str, str, str, str | None]] = field(default_factory=list)
    """Who, which outcome, which digest, under which key."""
    standing: dict[str, str] = field(default_factory=dict)
    outcome: str | None = None
    """By the decisions alone."""

    def answer(self, told: tuple[str, str, str, str | None], *, right: bool, may: bool, closed: bool) -> str:
        """Predicts what a decision comes to: "taken", "same" (nothing changes), or the name of the error."""
        who, outcome, _, key = told
        for earlier in self.said:
            if key is not None and earlier[3] == key:
                return "same" if earlier == told else "InvalidInput"
        if right and self.standing.get(who) == outcome:
            return "same"
        if self.outcome is not None:
            return "AlreadyDecided"
        if closed:
            return "WaitClosed"
        if not right:
            return "StaleDigest"
        if not may:
            return "DecisionRefused"
        return "AlreadyDecided" if who in self.standing else "taken"

    def take(self, who: str, outcome: str, digest: str, key: str | None) -> None:
        """It counts."""
        self.said.append((who, outcome, digest, key))
        self.standing[who] = outcome
        if outcome != "approved":
            self.outcome = outcome
        elif sum(o == "approved" for o in self.standing.values()) >= self.needed:
            self.outcome = "approved"


@dataclass
class Seen:
    """A run as it was when one last looked."""

    entries: list[Any] = field(default_factory=list)
    fence: int = 0
    end: Any = None
    """The whole row, once it is over."""
    messages: dict[tuple[str, str], Any] = field(default_factory=dict)


class Memory:
    """Looks at every run after each event."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[Any, Seen] = {}
        self.asked: dict[Any, Asked] = {}

    def run(self, run_id: Any) -> Seen:
        return self.seen.setdefault(run_id, Seen())

    def approval(self, wait: Wait) -> Asked:
        if wait.pk not in self.asked:
            self.asked[wait.pk] = Asked(Approval.objects.get(pk=wait.pk).needed)
        return self.asked[wait.pk]

    def look(self) -> list[str]:
        """Everything that is not as it must be, in words."""
        changed = [run for run in Run.objects.all() if run.seq != len(self.run(run.pk).entries)]
        found = self.world.problems(changed)
        calls = Counter(key[:36] for key in self.world.calls)
        for run in Run.objects.all():
            found += self._changed(run, self.run(run.pk), calls[str(run.pk)])
        for wait in Wait.objects.filter(kind="approval"):
            found += self._decided(wait, self.approval(wait))
        return found

    def _changed(self, run: Run, seen: Seen, calls: int) -> list[str]:
        found: list[str] = []
        entries = list(Entry.objects.filter(run=run).order_by("seq").values_list(*_ENTRY))
        if entries[: len(seen.entries)] != seen.entries:
            found.append(f"{run}: what was read once in its journal has changed")
        row = {f.attname: getattr(run, f.attname) for f in Run._meta.concrete_fields}
        if seen.end is not None and (row, len(entries), calls) != seen.end:
            found.append(f"{run} was over, and went on: {seen.end} is now {(row, len(entries), calls)}")
        if run.fence < seen.fence:
            found.append(f"{run}: its fence went from {seen.fence} to {run.fence}")
        if Message.objects.filter(run=run).count() != len(seen.messages):
            found.append(f"{run} has other messages than it was sent: {seen.messages}")
        seen.entries, seen.fence = entries, run.fence
        if run.status in RUN_FINAL:
            seen.end = row, len(entries), calls
        return found

    def _decided(self, wait: Wait, asked: Asked) -> list[str]:
        found: list[str] = []
        if (wait.outcome if wait.status == "resolved" else None) != asked.outcome:
            found.append(f"{wait} is {wait.status} {wait.outcome!r}, and its people said {asked}")
        if wait.status == "expired" and (wait.due_at is None or _at(wait) < wait.due_at):
            found.append(f"{wait} expired too early")
        if Decision.objects.filter(approval=wait.pk).count() != len(asked.said):
            found.append(f"{wait} has other decisions than were made: {asked}")
        return found


def _at(wait: Wait) -> datetime:
    assert wait.closed_at is not None
    return wait.closed_at
