"""The crash matrix as a program: what is tried, how it is told, and what counts as failed."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.core.management.base import OutputWrapper
from django.db import connection

from approvals.management.output import Progress
from durable_app.environment import BASE_DIR
from tests.crash import plan
from tests.crash.ablations import ABLATIONS, WHOLE, harm_in
from tests.crash.boundaries import MUST_OCCUR, MUST_OCCUR_ON, room_of
from tests.crash.cells import Cell, Outcome
from tests.crash.matrix import Matrix, matrix

REPORT = BASE_DIR / "var" / "crash-matrix.json"
VERDICTS = ("correct", "stopped", "window", "wrong", "broken")
AGAIN = "python -m tests.crash --cell"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if anything was wrong, a peer that deduplicates was not served right, or a hook was lost."""
    options = _options(arguments)
    began = time.monotonic()
    with matrix(options.jobs) as machine:
        told = Report(connection.vendor)
        if options.cell:
            told.play(machine, [Cell.read(text) for text in options.cell])
        elif options.ablation:
            told.ablate(machine, options.ablation, (WHOLE,))
        else:
            _whole(machine, told, options)
    told.seconds = round(time.monotonic() - began, 1)
    if options.json:
        told.save(Path(options.json))
    print(told.table())
    return 1 if told.failures() else 0


def _options(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--cell", action="append", metavar="NAME", help="this one alone; again for more")
    parser.add_argument(
        "--ablation", action="append", choices=sorted(ABLATIONS), help="what must turn it red"
    )
    parser.add_argument("--sample", metavar="PART/PARTS", help="each class of boundary once; a part of that")
    parser.add_argument("--row", action="append", metavar="NAME", help="these rows of the plan only")
    parser.add_argument(
        "--jobs", type=int, default=3 * (os.cpu_count() or 1), metavar="N", help="cells at once"
    )
    parser.add_argument("--json", default="", metavar="FILE", help=f"the report, for instance {REPORT.name}")
    return parser.parse_args(arguments)


def _whole(machine: Matrix, told: Report, options: Namespace) -> None:
    rows = plan.sampled() if options.sample else plan.whole()
    if options.row:
        rows = [row for row in rows if any(name in str(row) for name in options.row)]
    passed = told.census(machine, rows)
    told.expects_every_class = not options.row
    if options.sample:
        part, _, parts = options.sample.partition("/")
        told.play(machine, plan.sample(rows, passed, int(part) - 1, int(parts)))
        return
    exhaustive = set(plan.all_boundaries())
    cells = [c for row in rows for c in (plan.every if row in exhaustive else plan.some)(row, passed[row])]
    told.play(machine, cells)
    if not options.row:
        told.ablate(machine, ABLATIONS)


class Report:
    """Outcomes by row, and what follows from them."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.rows: dict[Cell, Counter[str]] = {}
        self.bad: list[Outcome] = []
        self.classes: Counter[str] = Counter()
        self.passed: dict[Cell, Sequence[str]] = {}
        self.after: list[float] = []
        self.seconds = 0.0
        self.unbitten: list[str] = []
        self.expects_every_class = False

    def census(self, machine: Matrix, rows: Iterable[Cell]) -> Mapping[Cell, Sequence[str]]:
        """Nobody dies: the boundaries of each row, in order."""
        for outcome in machine.play(rows):
            self.passed[Cell.read(outcome.cell)] = outcome.passed
            self.classes.update(room_of(label) for label in outcome.passed)
            self._take(outcome)
        return self.passed

    def play(self, machine: Matrix, cells: Iterable[Cell]) -> list[Outcome]:
        """Plays cells and keeps what came of them."""
        progress, listed, outcomes = Progress(OutputWrapper(sys.stderr)), list(cells), []
        for n, outcome in enumerate(machine.play(listed), 1):
            self._take(outcome)
            outcomes.append(outcome)
            progress.say(f"{n} of {len(listed)} deaths, {len(self.bad)} bad")
        progress.say("")
        return outcomes

    def _take(self, outcome: Outcome) -> None:
        cell = Cell.read(outcome.cell)
        row = cell.dying_at(0)
        if (meant := self._meant(cell)) not in (None, outcome.boundary):
            outcome = replace(outcome, verdict="broken", why=f"it should have died {meant!r}; {outcome.why}")
        self.rows.setdefault(row, Counter())[outcome.verdict] += 1
        if outcome.after_seconds is not None and row.death == "kill":
            self.after.append(outcome.after_seconds)
        if outcome.verdict in ("wrong", "broken") or (row.peer == "once" and outcome.verdict != "correct"):
            self.bad.append(outcome)

    def _meant(self, cell: Cell) -> str | None:
        """The boundary of this number where nobody died: each time the same ones must come."""
        passed = self.passed.get(cell.dying_at(0), ())
        return passed[cell.at - 1] if 1 <= cell.at <= len(passed) else None

    def ablate(self, machine: Matrix, names: Iterable[str], beside: Sequence[str] = ()) -> None:
        """Each ablation must turn its cells red; `beside` it (with the guard there) the same are not.

        All at once: they mostly wait.
        """
        shown = [
            (replace(row, ablation=taken), label, name)
            for name in names
            for row, label in ABLATIONS[name].shows
            for taken in (name, *beside)
        ]
        rows = dict.fromkeys(row for row, _, _ in shown)
        self.passed |= {Cell.read(o.cell): o.passed for o in machine.play(rows)}
        cells: dict[Cell, str] = {}
        for row, label, name in shown:
            found = [n for n, there in enumerate(self.passed[row], 1) if there.startswith(label)]
            cells.update({row.dying_at(n): name for n in found[-1:]})
        bitten = set()
        for outcome in machine.play(cells):
            cell = Cell.read(outcome.cell)
            self.rows.setdefault(replace(cell, at=0), Counter())[outcome.verdict] += 1
            if outcome.verdict == "broken" or (outcome.verdict == "wrong" and cell.ablation == WHOLE):
                self.bad.append(outcome)
            elif harm_in(cell.ablation, outcome.why):
                bitten.add(cell.ablation)
        self.unbitten += [name for name in names if name not in bitten]

    def lost_hooks(self) -> list[str]:
        """Classes that nothing passed any more."""
        if not self.expects_every_class:
            return []
        return sorted((MUST_OCCUR | MUST_OCCUR_ON.get(self.database, frozenset())) - set(self.classes))

    def failures(self) -> list[str]:
        """What makes this run fail, in words."""
        lost = [f"a hook was lost: no boundary of class {name}" for name in self.lost_hooks()]
        red = [f"nothing was seen without: {told}" for told in self.unbitten]
        return [*lost, *red, *(f"{o.verdict}: {AGAIN} {o.cell}\n    {o.boundary}: {o.why}" for o in self.bad)]

    def table(self) -> str:
        """For people."""
        width = max((len(str(row)) for row in self.rows), default=0)

        def line(name: str, boundaries: object, counted: Counter[str]) -> str:
            return f"{name:{width}} {boundaries!s:>10} " + " ".join(f"{counted[v]:>8}" for v in VERDICTS)

        def lines(rows: Mapping[Cell, Counter[str]]) -> list[str]:
            return [line(str(r)[:-2], len(self.passed.get(r, ())), rows[r]) for r in sorted(rows, key=str)]

        whole = {row: counted for row, counted in self.rows.items() if row.ablation == WHOLE}
        without = {row: counted for row, counted in self.rows.items() if row.ablation != WHOLE}
        total: Counter[str] = sum(whole.values(), Counter())
        return "\n".join(
            [
                f"{self.database}, {total.total()} cells in {self.seconds:.0f} s",
                f"{'':{width}} {'boundaries':>10} " + " ".join(f"{v:>8}" for v in VERDICTS),
                *lines(whole),
                line("all", "", total),
                *(["without a guard, where something must be wrong:", *lines(without)] if without else []),
                *self.failures(),
            ]
        )

    def save(self, path: Path) -> None:
        """As JSON, beside what other databases have told there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        told[self.database] = {
            "seconds": self.seconds,
            "rows": [
                {
                    "row": str(row),
                    "boundaries": len(self.passed.get(row, ())),
                    **{v: counted[v] for v in VERDICTS},
                }
                for row, counted in self.rows.items()
            ],
            "classes": dict(sorted(self.classes.items())),
            "failures": self.failures(),
            "bad": [asdict(outcome) for outcome in self.bad],
        }
        path.write_text(json.dumps(told, indent=1))
