"""A trip whose bookings can be undone, and the ledger of what was done and undone; for the tests of compensation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from pydantic import BaseModel

from approvals import Context, Effect, Receipt, Retry, workflow
from approvals import faults as points
from approvals.errors import Failed
from approvals.models import Effect as Row


class Trip(BaseModel):
    city: str = "Oslo"


class World:
    """What is booked, by key; what was undone, in order; and how the next undoings answer."""

    def __init__(self) -> None:
        self.booked: dict[str, str] = {}
        self.undone: list[tuple[str, str]] = []
        self.answers: list[Any] = []
        self.calls: list[str] = []

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def undo(self, kind: str, receipt: Receipt[Any], key: str) -> Receipt[Any] | None:
        """An exception in `answers` is raised and nothing happens; "lose": it happens, and nobody hears of it."""
        assert (
            receipt.request == Trip() and receipt.kind == kind and receipt.external_id == f"id-{receipt.key}"
        )
        self.calls.append(key)
        answer = self.answers.pop(0) if self.answers else "done"
        if isinstance(answer, BaseException):
            raise answer
        if answer == "nothing":
            return None
        if key not in [k for _, k in self.undone]:
            self.undone.append((kind, key))
        self.booked.pop(receipt.key, None)
        if answer == "lose":
            raise ConnectionError("the answer was lost")
        return Receipt(f"undone-{key}")

    @property
    def order(self) -> list[str]:
        """What was undone, by kind."""
        return [kind for kind, _ in self.undone]


world = World()


class Booking(Effect[Trip]):
    retry = Retry(attempts=2)

    def perform(self, request: Trip, key: str) -> Receipt[Trip]:
        world.booked[key] = self.kind
        return Receipt(f"id-{key}")


class Undoable(Booking):
    def compensate(self, receipt: Receipt[Trip], key: str) -> Receipt[Any] | None:
        return world.undo(self.kind, receipt, key)


class Flight(Undoable):
    kind = "undo.flight"
    deduplicates = True


class Hotel(Undoable):
    kind = "undo.hotel"

    def lookup(self, request: Trip, key: str) -> Receipt[Trip] | None:
        return Receipt(f"id-{key}") if key in world.booked else None


class Car(Undoable):
    """Blind."""

    kind = "undo.car"


class Mail(Booking):
    """Cannot be undone."""

    kind = "undo.mail"


def booking(ctx: Context, *effects: type[Effect[Trip]]) -> list[str]:
    """Books one after the other."""
    return [ctx.effect(e.kind, e, Trip()).external_id for e in effects]


def trip(name: str, *effects: type[Effect[Trip]], ends: str = "fails", compensate: bool | None = None) -> Any:
    """A workflow that books these, and then fails, waits for a word, or undoes and goes on, as `ends` says.

    Without a word about it, one that fails compensates.
    """

    def run(ctx: Context, n: int) -> int:
        booking(ctx, *effects)
        passages.before = Counter(passages.all)
        if ends == "fails":
            raise Failed("no visa")
        if ends == "undoes":
            ctx.compensate("changed my mind")
        else:
            ctx.wait(ctx.signal("go"))
        return len(effects)

    run.__qualname__ = f"trip.{name}"
    undoes = ends == "fails" if compensate is None else compensate
    return workflow(name=f"undo-{name}", version=1, compensate=undoes)(run)


def effects(run: Any) -> list[tuple[str, str]]:
    """(kind, status) of every effect of a run: those of its code, then the compensations as they were made."""
    rows = sorted(Row.objects.filter(run=run.id), key=lambda row: (row.position < 0, row.position))
    return [(row.kind.removeprefix("undo."), row.status) for row in rows]


def compensation(run: Any, kind: str) -> Row:
    """The compensation of the effect of this kind."""
    return Row.objects.get(run=run.id, kind=f"{kind}.compensate")


class Passages:
    """How often each crash point was passed: in all, and before a trip had made its bookings."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.before: Counter[str] = Counter()

    def since(self) -> list[str]:
        """Every passage since, as `crash_at` names them."""
        return [f"{p}:{n}" for p in points.POINTS for n in range(self.before[p] + 1, self.all[p] + 1)]


passages = Passages()


@contextmanager
def counted() -> Iterator[Passages]:
    """Counts the passages of every crash point."""
    passages.__init__()  # type: ignore[misc]
    reach: Callable[[str], None] = points.reach

    def counting(point: str) -> None:
        passages.all[point] += 1
        reach(point)

    with mock.patch.object(points, "reach", counting):
        yield passages
