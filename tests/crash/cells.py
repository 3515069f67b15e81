"""What a cell of the matrix is, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from tests.crash.peers import Kind

Role = Literal["all", "worker", "web", "sweeper", "outbox"]
Verdict = Literal["correct", "stopped", "window", "wrong", "broken"]


@dataclass(frozen=True)
class Cell:
    """One death: in which scene, who dies, at which boundary, and what the peer is like.

    `at` is the boundary's number, 0: nobody dies. A name of one reads `agent/all/once/prompt/answered/kill/lazy/-/17`.
    """

    scene: str = "agent"
    role: Role = "all"
    peer: Kind = "once"
    lands: Literal["prompt", "late"] = "prompt"
    answer: Literal["answered", "lost"] = "answered"
    death: Literal["kill", "stop"] = "kill"
    steps: Literal["lazy", "every"] = "lazy"
    ablation: str = "-"
    at: int = 0

    def __str__(self) -> str:
        return "/".join(str(value) for value in asdict(self).values())

    @classmethod
    def read(cls, text: str) -> Self:
        """Of its name. Raises ValueError."""
        parts = text.split("/")
        if len(parts) != len(fields(cls)):
            raise ValueError(f"a cell is named by {' / '.join(f.name for f in fields(cls))}, not {text!r}")
        *words, at = parts
        return cls(*words, int(at))  # type: ignore[arg-type, call-arg]

    def dying_at(self, n: int) -> Self:
        """The same with another boundary."""
        return replace(self, at=n)


@dataclass(frozen=True)
class Outcome:
    """What came of a cell. `passed`: the boundaries that the victim came by, where nobody dies.

    `after_seconds`: from the death until everything was over.
    """

    cell: str
    verdict: Verdict
    why: str = ""
    boundary: str = ""
    seconds: float = 0
    after_seconds: float | None = None
    passed: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """From JSON."""
        return cls(**{**told, "passed": tuple(told["passed"])})
