"""A fork server: everything is imported once, and each cell is a forked process with a database of its own."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from tests.crash.cells import Cell, Outcome
from tests.crash.databases import Databases, databases, fill, in_child, settle_file, use
from tests.crash.harness import play
from tests.crash.processes import load_pages

CELL_SECONDS = 1800
"""After this a cell is broken, whatever it waits for."""


class Matrix:
    """Plays cells, some at a time."""

    def __init__(self, folder: Path, copies: Databases, jobs: int) -> None:
        self.folder, self.copies, self.jobs = folder, copies, jobs
        self._running: dict[int, tuple[Cell, Path, str]] = {}
        self._count = 0

    def play(self, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """The outcomes, as they come."""
        for cell in cells:
            if len(self._running) >= self.jobs:
                yield self._reap()
            self._start(cell)
        while self._running:
            yield self._reap()

    def _start(self, cell: Cell) -> None:
        self._count += 1
        path = self.folder / f"cell{self._count}"
        path.mkdir()
        database = self.copies.copy(path)
        pid = os.fork()
        if pid:
            self._running[pid] = cell, path, database
            return
        code = 1
        try:
            os.setpgid(0, 0)
            signal.alarm(CELL_SECONDS)
            told = os.open(path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(told, 2)
            (path / "outcome.json").write_text(json.dumps(asdict(play(cell, path, database))))
            code = 0
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    def _reap(self) -> Outcome:
        pid, status = os.wait()
        cell, path, database = self._running.pop(pid)
        _end(pid)
        told = path / "outcome.json"
        if told.exists():
            outcome = Outcome.of(json.loads(told.read_text()))
        else:
            log = (path / "log").read_text()[-3000:]
            outcome = Outcome(str(cell), "broken", f"the harness ended by itself ({status}): {log}")
        self.copies.drop(database)
        shutil.rmtree(path, ignore_errors=True)
        return outcome

    def end(self) -> None:
        """Ends what is still running."""
        for pid, (_, _, database) in self._running.items():
            _end(pid)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self.copies.drop(database)


def _end(group: int) -> None:
    """A cell's processes are a group; a stopped one hears this, too."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


@contextmanager
def matrix(jobs: int) -> Iterator[Matrix]:
    """With a template of the database at hand, which goes with it."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="durable-crash-", dir=where) as name:
        folder = Path(name)
        copies = databases(folder)
        try:
            made = copies.template()

            def prepare() -> None:
                use(made, folder)
                fill()

            if in_child(prepare):
                raise RuntimeError("the template of the database could not be made")
            settle_file(made)
            load_pages()
            gc.freeze()
            machine = Matrix(folder, copies, jobs)
            try:
                yield machine
            finally:
                machine.end()
        finally:
            copies.close()
