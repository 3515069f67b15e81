"""The cells, by name; each is a function of a stage, with what it needs of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.stage import Stage


@dataclass(frozen=True)
class Cell:
    """A fault, and the work that it strikes."""

    play: Callable[[Stage], None]
    meaning: str
    has_redis: bool = False
    has_proxy: bool = False
    tablespace_megabytes: int = 0


cells: dict[str, Cell] = {}


def cell(
    name: str,
    *,
    has_redis: bool = False,
    has_proxy: bool = False,
    tablespace_megabytes: int = 0,
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Registers a cell; its docstring says what it means."""

    def register(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        meaning = (play.__doc__ or "").strip().splitlines()[0]
        cells[name] = Cell(play, meaning, has_redis, has_proxy, tablespace_megabytes)
        return play

    return register
