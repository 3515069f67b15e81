"""The outside world of the models: peers of three kinds, one ledger, and answers that may be bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from approvals import MATCH, MISSING, Effect, NotSent, Receipt, Refused, Retry, Verification
from approvals.models import Run
from approvals.testing import invariants

ANSWERS = ("apply", "refuse", "lose", "late", "not_sent")
"""Works; a definite no; acts, and the answer is lost; acts when it `lands`, and nobody hears of it; did not go out."""


class Order(BaseModel):
    """What the peers are asked for."""

    n: int = 0
    refused: bool = False
    """Whatever the next answer is."""


class World:
    """What was done under which key, what is there of it, and how the next calls are answered."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        """Everything that was applied, deeds and undoings alike, in order; twice the same key is a fault."""
        self.requests: list[Any] = []
        self.kinds: list[str] = []
        self.there: set[str] = set()
        self.calls: list[str] = []
        self.late: list[tuple[str, Any, str, str]] = []
        self.answers: list[str] = []
        """For the next calls, one each; then everything works."""

    def clear(self) -> None:
        """A new world, for those who hold this one."""
        self.__init__()  # type: ignore[misc]

    def arrive(self, kind: str, request: Any, key: str, *, undoes: str = "", once: bool = False) -> Receipt:
        """A call. Raises what the next answer says."""
        self.calls.append(key)
        answer = self.answers.pop(0) if self.answers else "apply"
        if once and key in self.keys:  # a peer that deduplicates gives the answer that it gave
            answer = "lose" if answer in ("lose", "late") else "apply"
        if answer == "refuse" or (request.refused and not undoes):
            raise Refused("the peer refused")
        if answer == "not_sent":
            raise NotSent("it did not go out")
        if answer == "late":
            self.late.append((kind, request, key, undoes))
            raise TimeoutError("no answer")
        self.apply(kind, request, key, undoes, once=once)
        if answer == "lose":
            raise ConnectionError("the answer was lost")
        return Receipt(f"id-{key}")

    def apply(self, kind: str, request: Any, key: str, undoes: str, *, once: bool) -> None:
        """The world changes; not again under a key that a peer knows which deduplicates."""
        if once and key in self.keys:
            return
        self.keys.append(key)
        self.requests.append(request)
        self.kinds.append(kind)
        self.there.add(key)
        self.there.discard(undoes)

    def land(self) -> None:
        """What was under way arrives."""
        for kind, request, key, undoes in self.late:
            self.apply(kind, request, key, undoes, once=kind.startswith(Once.kind))
        self.late.clear()

    def of(self, run_id: Any) -> Counter[str]:
        """How often what was applied for a run."""
        pairs = zip(self.kinds, self.keys, strict=True)
        return Counter(kind for kind, key in pairs if key.startswith(str(run_id)))

    def problems(self, runs: Iterable[Run]) -> list[str]:
        """Every invariant that does not hold of these runs, by the database and this ledger."""
        return invariants.problems([(Effect, self)], runs)


world = World()


class Peer(Effect[Order]):
    """Blind: nothing can be asked of it."""

    retry = Retry(attempts=2, first_seconds=5)

    def perform(self, request: Order, key: str) -> Receipt[Order]:
        return world.arrive(self.kind, request, key, once=self.deduplicates)


class Undoable(Peer):
    def compensate(self, receipt: Receipt[Order], key: str) -> Receipt[Any] | None:
        return world.arrive(
            f"{self.kind}.undo", receipt.request, key, undoes=receipt.key, once=self.deduplicates
        )


class Once(Undoable):
    """Deduplicates on our key."""

    kind = "model.once"
    deduplicates = True


class Found(Undoable):
    """Can be looked up and read back."""

    kind = "model.found"

    def lookup(self, request: Order, key: str) -> Receipt[Order] | None:
        return Receipt(f"id-{key}") if key in world.there else None

    def verify(self, receipt: Receipt[Order]) -> Verification:
        return MATCH if receipt.key in world.there else MISSING


class Blind(Peer):
    """And what it did cannot be undone."""

    kind = "model.blind"


class GuardedOnce(Once):
    kind = "model.once.guarded"
    policy = "one-reviewer"


class GuardedFound(Found):
    kind = "model.found.guarded"
    policy = "one-reviewer"


class GuardedBlind(Blind):
    kind = "model.blind.guarded"
    policy = "one-reviewer"


PLAIN: dict[str, type[Effect[Order]]] = {"once": Once, "found": Found, "blind": Blind}
GUARDED: dict[str, type[Effect[Order]]] = {"once": GuardedOnce, "found": GuardedFound, "blind": GuardedBlind}
