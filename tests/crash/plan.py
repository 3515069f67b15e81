"""Which deaths are tried: every boundary of the twenty-turn agent, and pairs of everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from django.db import connection

from tests.crash.boundaries import class_of
from tests.crash.cells import Cell
from tests.crash.scenes import SCENES

PEERS = ("once", "found", "blind")
DIMENSIONS: Mapping[str, Sequence[Any]] = {
    "scene": tuple(SCENES),
    "role": ("worker", "web", "sweeper", "outbox"),
    "peer": PEERS,
    "lands": ("prompt", "late"),
    "answer": ("answered", "lost"),
    "death": ("kill", "stop"),
    "steps": ("lazy", "every"),
}
_SEVERAL = 2
"""So often is a class of boundary tried in one row: at its first and its last passage."""


def pairs() -> list[Cell]:
    """Few rows in which every two values of two dimensions meet that can. Greedy, and the same each time."""
    given = [dict(zip(DIMENSIONS, values, strict=True)) for values in product(*DIMENSIONS.values())]
    every = [row for row in given if row["role"] in SCENES[row["scene"]].roles]
    left = set().union(*(_met(row) for row in every))
    rows: list[Cell] = []
    while left:
        best = max(every, key=lambda row: len(_met(row) & left))
        left -= _met(best)
        rows.append(Cell(**best))
    return rows


def _met(row: Mapping[str, Any]) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    return set(combinations(row.items(), 2))


def all_boundaries() -> list[Cell]:
    """The rows of which every boundary is tried."""
    return [Cell(peer=peer) for peer in PEERS]  # type: ignore[arg-type]


def zombies() -> list[Cell]:
    """The same agent, its process stopped past its lease instead of killed, and woken when others have gone on."""
    return [replace(row, death="stop") for row in all_boundaries()]


def unanswered() -> list[Cell]:
    """The same agent, whose peers take their time and whose first answers are lost: there is doubt without a death."""
    return [replace(row, lands="late", answer="lost") for row in all_boundaries()]


def full_slice() -> list[Cell]:
    """The same agent with every step committed by itself: as correct, and dearer."""
    return [replace(row, steps="every") for row in all_boundaries()]


def whole() -> list[Cell]:
    """Every row. Of those that are not exhaustive, each class of boundary a few times."""
    return list(dict.fromkeys([*all_boundaries(), *unanswered(), *zombies(), *full_slice(), *pairs()]))


def sampled() -> list[Cell]:
    """The rows that the sample takes its boundaries from: every scene, every kind of peer, both ways to die."""
    return [
        Cell(peer="found", answer="lost"),
        Cell(peer="blind"),
        Cell(peer="once", lands="late"),
        Cell(scene="children", peer="once", answer="lost"),
        Cell(scene="quorum", peer="found", lands="late"),
        Cell(scene="loop", peer="blind", answer="lost"),
        Cell(scene="tables", peer="once"),
        Cell(peer="found", death="stop"),
        Cell(scene="loop", peer="once", death="stop"),
    ]


def every(row: Cell, passed: Sequence[str]) -> Iterator[Cell]:
    """Each boundary, and one more, which the victim must survive."""
    yield from (row.dying_at(n) for n in range(1, len(passed) + 2))


def some(row: Cell, passed: Sequence[str], *, times: int = _SEVERAL) -> Iterator[Cell]:
    """Each class of boundary a few times, on both sides."""
    where: dict[str, list[int]] = {}
    for n, label in enumerate(passed, 1):
        if may_die_at(row, label):
            where.setdefault(label, []).append(n)
    for numbers in where.values():
        chosen = {numbers[i * (len(numbers) - 1) // max(times - 1, 1)] for i in range(times)}
        yield from (row.dying_at(n) for n in sorted(chosen))


def may_die_at(row: Cell, label: str) -> bool:
    """A process that sleeps inside a transaction keeps the whole of an SQLite database; PostgreSQL ends its session."""
    return row.death == "kill" or connection.vendor == "postgresql" or " in a transaction" not in label


def sample(
    rows: Sequence[Cell], passed: Mapping[Cell, Sequence[str]], part: int, parts: int
) -> Iterator[Cell]:
    """Every class of boundary of these rows once, the rows taking turns; a part of it."""
    where: dict[str, dict[Cell, list[int]]] = {}
    for row in rows:
        for n, label in enumerate(passed[row], 1):
            if may_die_at(row, label):
                where.setdefault(class_of(label), {}).setdefault(row, []).append(n)
    chosen = []
    for turn, there in enumerate(where.values()):
        row = list(there)[turn % len(there)]
        chosen.append(row.dying_at(there[row][turn % len(there[row])]))
    yield from chosen[part::parts]
