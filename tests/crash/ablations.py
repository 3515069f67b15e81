"""What the engine does against faults, taken away one by one: the matrix must turn red, or it proves nothing.

Each is applied in the victim and in the rescuer, to the modules of that process alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from approvals import journal
from approvals.engine import effects as engine_effects
from approvals.engine import positions
from approvals.engine.calls import Call, stored
from approvals.models import Effect
from approvals.transitions import effects as events
from approvals.types import Receipt
from approvals.workflows import effects as authoring
from approvals.workflows.registry import Durability
from tests.crash.cells import Cell
from tests.crash.peers import DEADLINE_SECONDS, world

WHOLE = "-"


class _Unfenced(journal.Held):
    """A hold that is never compared."""

    def __bool__(self) -> bool:
        return False


def _without_the_fence() -> None:
    setattr(positions, "Held", _Unfenced)  # noqa: B010
    journal._HELD = ""
    journal._update.cache_clear()
    setattr(events, "may_still_be_sent", lambda effect, held: True)  # noqa: B010


def _without_the_intent() -> None:
    """The peer is called before anything is committed."""
    dispatch = engine_effects._dispatch

    def at_once(tx: Any, call: Call, row: Effect, seen: Any, move: Any) -> None:
        dispatch(tx, call, row, seen, move)
        if row.status != "dispatched":
            return
        token = authoring.call_ends.set(world.ledger.time.monotonic() + DEADLINE_SECONDS)
        receipt = call.author.perform(call.request(row), row.key)
        authoring.call_ends.reset(token)
        setattr(call.author, "perform", lambda request, key: receipt)  # noqa: B010

    engine_effects._dispatch = at_once


def _receipt_before_the_act() -> None:
    def perform(call: Call, row: Effect, started: float) -> Receipt[Any]:
        data = stored(Receipt(f"peer:{row.key}"))
        with call.turn.boundary(honour=False) as tx:
            tx.position = max(tx.position, row.position)
            events.commit(tx, row, data)
        token = authoring.call_ends.set(started + DEADLINE_SECONDS)
        call.author.perform(call.request(row), row.key)
        authoring.call_ends.reset(token)
        return call.receipt(row, data, row.key)

    engine_effects.perform = perform


def _without_grace() -> None:
    setattr(events, "settled_after", lambda effect: effect.sent_at)  # noqa: B010


def _another_key_per_attempt() -> None:
    send = events._send

    def renamed(tx: Any, effect: Effect, *rest: Any) -> Any:
        if effect.calls:
            effect.key = f"{events.key_of(effect)}-{effect.calls}"
            Effect.objects.filter(pk=effect.pk).update(key=effect.key)
        return send(tx, effect, *rest)

    setattr(events, "_send", renamed)  # noqa: B010


@dataclass(frozen=True)
class Ablation:
    """What is taken away, and the deaths at which it must show; each by its cell and the boundary's name.

    `harm`: what the verdict must say then, one of these. That a run did not end is none.
    """

    take_away: Callable[[], None]
    shows: Sequence[tuple[Cell, str]]
    harm: Sequence[str]


_LATE = Cell(peer="found", lands="late")
_STOPPED = Cell(peer="found", death="stop")
ABLATIONS = {
    "fence": Ablation(
        _without_the_fence,
        (
            (_STOPPED, "worker after peer:perform"),
            (Cell(peer="once", death="stop"), "worker before alone:transitions.effects.may_still_be_sent"),
            (
                Cell(scene="tables", peer="once", death="stop"),
                "worker before alone:engine.steps._transaction",
            ),
        ),
        harm=("the application's table has", "was applied 2 times", "written while nobody held it"),
    ),
    "intent": Ablation(
        _without_the_intent,
        (
            (Cell(peer="found"), "worker after peer:perform"),
            (Cell(peer="blind"), "worker after peer:perform"),
        ),
        harm=("was applied 2 times",),
    ),
    "receipt": Ablation(
        _receipt_before_the_act,
        (
            (Cell(peer="once"), "worker before peer:perform"),
            (Cell(peer="found"), "worker before peer:perform"),
        ),
        harm=("and nothing was done",),
    ),
    "grace": Ablation(
        _without_grace,
        ((_LATE, "worker arrived peer:perform"), (_LATE, "worker after peer:perform")),
        harm=("was applied 2 times",),
    ),
    "none": Ablation(
        lambda: None,
        ((Cell(peer="once"), "worker before peer:perform"),),
        harm=("a mail went out that no reviewer saw",),
    ),
    "key": Ablation(
        _another_key_per_attempt,
        ((Cell(peer="once"), "worker arrived peer:perform"),),
        harm=("was applied 2 times",),
    ),
}


def draft_label(name: str) -> Durability:
    """How the draft, a step with random content, is labelled."""
    return "none" if name == "none" else "async"


def harm_in(name: str, told: str) -> bool:
    """Whether a verdict tells of what this ablation does; without one nothing is expected."""
    return name != WHOLE and any(harm in told for harm in ABLATIONS[name].harm)


def apply(name: str) -> None:
    """Takes one guard away, in this process and for good. Raises KeyError."""
    if name != WHOLE:
        ABLATIONS[name].take_away()
