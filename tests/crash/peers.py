"""The outside world of a cell: a ledger that lies outside the product's database, and effects that reach it.

One line per call that arrived. A peer deduplicates on our key, can be looked up only, or is blind. Its work is done
at once, or lands when the call's time is over; the first answer under each key may be lost.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from approvals import MATCH, MISSING, Effect, NotSent, Receipt, Retry, Verification
from tests.crash.passing import Moved

Kind = Literal["once", "found", "blind"]
"""Deduplicates on our key; can be looked up only; neither."""
WINDOW = "sending"
"""Between the last look at the clock and the send: who stops here and wakes up later may send what others have sent."""
DEADLINE_SECONDS = 30.0


@dataclass(frozen=True)
class Arrival:
    """A call that the peer took in; `is_applied`: it changes the world, at `lands_at` (seconds of the cell's time)."""

    key: str
    kind: str
    request: Any
    pid: int
    lands_at: float
    is_applied: bool


class Ledger:
    """A file; every process of a cell has its own `Ledger` of it."""

    def __init__(self, path: Path, *, late: bool, lost: bool) -> None:
        self.path, self.late, self.lost = path, late, lost
        self.time = Moved(path.with_name("moved"))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous=OFF")
            yield file

    def create(self) -> None:
        """An empty one."""
        with self._open() as file:
            file.execute("CREATE TABLE call (key, kind, request, pid, lands_at, is_applied)")

    def arrive(
        self, kind: str, request: str, key: str, pid: int, *, seconds_left: float, deduplicates: bool
    ) -> None:
        """Takes a call in. Raises ConnectionError where the answer is lost."""
        lands_at = self.time.now() + (seconds_left if self.late else 0)
        with self._open() as file:
            file.execute("BEGIN IMMEDIATE")
            known = file.execute("SELECT count(*) FROM call WHERE key = ?", [key]).fetchone()[0]
            line = [key, kind, request, pid, lands_at, not (deduplicates and known)]
            file.execute("INSERT INTO call VALUES (?, ?, ?, ?, ?, ?)", line)
            file.execute("COMMIT")
        if self.lost and not known:
            raise ConnectionError("the answer was lost")

    def has(self, key: str, *, landed: bool) -> bool:
        """Whether work under this key was taken in, or has been done by now."""
        return any(a.key == key and (not landed or a.lands_at <= self.time.now()) for a in self.arrivals())

    def arrivals(self) -> list[Arrival]:
        """Every call that came, in order."""
        with self._open() as file:
            rows = file.execute("SELECT key, kind, request, pid, lands_at, is_applied FROM call").fetchall()
        return [Arrival(k, kind, json.loads(r), pid, at, bool(a)) for k, kind, r, pid, at, a in rows]

    @property
    def all_landed_at(self) -> float:
        """When nothing is under way any more."""
        return max((a.lands_at for a in self.arrivals()), default=0.0)


class _World:
    """What this process takes for the outside world; set once, when a cell begins."""

    ledger: Ledger
    pid = 0
    hook: Callable[[str, str], None] = staticmethod(lambda what, moment: None)
    """Told of every call: what, and "before", "sending", "arrived" (no answer yet) or "after"."""


world = _World()


class Asked(BaseModel):
    """What a peer is asked to do."""

    what: str
    amount_minor: int = 0
    note: str = ""


class _Call(Effect[Asked]):
    """A blind peer."""

    deadline = timedelta(seconds=DEADLINE_SECONDS)
    retry = Retry(attempts=3, first_seconds=60)  # no machine is so slow that a pause is over already

    def perform(self, request: Asked, key: str) -> Receipt[Asked]:
        world.hook("peer:perform", "before")
        text = request.model_dump_json()
        if not (left := self.seconds_left()):
            raise NotSent("there was no time left to send it")
        world.hook("peer:perform", WINDOW)
        try:
            world.ledger.arrive(
                self.kind, text, key, world.pid, seconds_left=left, deduplicates=self.deduplicates
            )
        finally:
            world.hook("peer:perform", "arrived")
        world.hook("peer:perform", "after")
        return Receipt(f"peer:{key}")


class _Found(_Call):
    """Can be looked up, and read back."""

    def lookup(self, request: Asked, key: str) -> Receipt[Asked] | None:
        world.hook("peer:lookup", "before")
        there = world.ledger.has(key, landed=True)
        world.hook("peer:lookup", "after")
        return Receipt(f"peer:{key}") if there else None

    def verify(self, receipt: Receipt[Asked]) -> Verification:
        world.hook("peer:verify", "before")
        there = world.ledger.has(receipt.key, landed=False)
        world.hook("peer:verify", "after")
        return MATCH if there else MISSING


class _Once(_Call):
    """Deduplicates on our key."""

    deduplicates = True


class ReserveOnce(_Once):
    kind = "crash.reserve.once"


class ReserveFound(_Found):
    kind = "crash.reserve.found"


class ReserveBlind(_Call):
    kind = "crash.reserve.blind"


class RefundOnce(_Once):
    kind = "crash.refund.once"


class RefundFound(_Found):
    kind = "crash.refund.found"


class RefundBlind(_Call):
    kind = "crash.refund.blind"


class MailOnce(_Once):
    kind = "crash.mail.once"


class MailFound(_Found):
    kind = "crash.mail.found"


class MailBlind(_Call):
    kind = "crash.mail.blind"


RESERVE: dict[Kind, type[Effect[Asked]]] = {"once": ReserveOnce, "found": ReserveFound, "blind": ReserveBlind}
REFUND: dict[Kind, type[Effect[Asked]]] = {"once": RefundOnce, "found": RefundFound, "blind": RefundBlind}
MAIL: dict[Kind, type[Effect[Asked]]] = {"once": MailOnce, "found": MailFound, "blind": MailBlind}
