"""`python -m tests.chaos [CELL …]` (`make chaos`): plays each cell, prints a table, writes var/chaos.json.

Starts a PostgreSQL that waits for the disk and a Redis of its own. Ends with 1 if a cell failed: if its fault did
not fire, no work was acknowledged, or the ledger and the rows show anything lost, doubled or made up.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from durable_app.environment import BASE_DIR
from tests import services
from tests.chaos.proxy import Proxy
from tests.chaos.registry import Cell, cells
from tests.chaos.servers import Postgres, Redis, running

if TYPE_CHECKING:
    from tests.chaos.stage import Outcome

TEMPLATE = "chaos_template"


def main(arguments: list[str]) -> int:
    """0 if every cell is good."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="all by default")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--report", type=Path, default=BASE_DIR / "var" / "chaos.json")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, services._terminated)  # so that everything it started is ended
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, running() as (postgres, redis):
        _prepare(Path(folder), postgres)
        from tests.chaos import of_connections, of_errors, of_postgres, of_redis, of_workers  # noqa: F401  # needs Django

        if options.list:
            print("\n".join(f"{name:<24} {cell.meaning}" for name, cell in cells.items()))
            return 0
        if unknown := set(options.cells) - cells.keys():
            parser.error(f"no such cells: {', '.join(sorted(unknown))}; there are {', '.join(cells)}")
        return _play_all(options.cells or list(cells), Path(folder), postgres, redis, options.report)


def _prepare(folder: Path, postgres: Postgres) -> None:
    """This process talks to the server as the product's own do; an empty database is kept to be copied."""
    postgres.ask(f"CREATE DATABASE {TEMPLATE}")
    os.environ.pop("REDIS_URL", None)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "durable_app.settings",
        "DATABASE_URL": postgres.url(TEMPLATE),
        "DATA_DIR": str(folder),
        "WORKFLOW_MODULES": "tests.chaos.flows",
        "SECRET_KEY": secrets.token_urlsafe(32),
        "LOG_LEVEL": "ERROR",
    }
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from approvals.testing import people

    call_command("migrate", verbosity=0)
    people()
    connection.close()


def _play_all(names: list[str], folder: Path, postgres: Postgres, redis: Redis, report: Path) -> int:
    from tests.chaos.stage import as_json

    outcomes: list[Outcome] = []
    for number, name in enumerate(names, 1):
        if cells[name].tablespace_megabytes and os.geteuid() != 0:
            print(f"left out: {name}, which needs a small disk that only root may mount")
            continue
        if sys.stderr.isatty():
            print(f"[{number}/{len(names)}] {name}: {cells[name].meaning}", file=sys.stderr)
        outcomes.append(_play(name, cells[name], folder, postgres, redis))
        print(_line(outcomes[-1]), flush=True)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(as_json(outcomes))
    good = sum(outcome.is_good for outcome in outcomes)
    print(f"{good} of {len(outcomes)} cells are good; the whole report is in {report.name}")
    return 0 if good == len(outcomes) else 1


def _line(found: Outcome) -> str:
    verdict = "good " if found.is_good else "WRONG"
    fired = ", ".join(f"{what} ×{times}" for what, times in found.fired.items())
    counted = f"{found.runs} runs: {found.during} done meanwhile, {found.after} after"
    people = f", {found.stopped} ask a person" if found.stopped else ""
    decided = f", {found.decisions} decisions" if found.decisions else ""
    head = f"{verdict} {found.cell:<24} {found.seconds:>4.0f} s  {fired}; {counted}{people}{decided}"
    notes = [f"        {what}: {told}" for what, told in found.notes.items()]
    return "\n".join([head, *notes, *(f"      ! {wrong}" for wrong in found.wrong[:8])])


def _play(name: str, cell: Cell, folder: Path, postgres: Postgres, redis: Redis) -> Outcome:
    from tests.chaos.site import Site
    from tests.chaos.stage import Outcome, Stage, use_world

    began = time.monotonic()
    own = folder / name
    own.mkdir()
    world = use_world(own)
    with ExitStack() as stack:
        url = stack.enter_context(_database(name, cell, own, postgres))
        site = Site(own, url, redis.url() if cell.has_redis else "")
        stack.callback(site.close)
        stage = Stage(name, postgres, redis, site, world)
        stage.disk = own / "disk"
        if cell.has_proxy:
            socket = own / "proxy"
            socket.mkdir()
            stage.proxy = Proxy(socket, postgres.home)
            stack.callback(stage.proxy.close)
            stage.proxied = postgres.url(stage.database, socket)
        try:
            cell.play(stage)
            stage.settle()
            found = stage.outcome()
        except Exception as error:
            found = Outcome(
                name, dict(stage.fired), wrong=[f"{type(error).__name__}: {error}"], notes=stage.notes
            )
            if "CHAOS_TRACE" in os.environ:
                raise
    found.seconds = time.monotonic() - began
    return found


@contextmanager
def _database(name: str, cell: Cell, own: Path, postgres: Postgres) -> Iterator[str]:
    """A copy of the empty one for this cell; its URL for the product's processes."""
    from django.db import connections

    database = f"chaos_{name.replace('-', '_')}"
    with _small_disk(own, cell.tablespace_megabytes, postgres) as where:
        postgres.ask(f'CREATE DATABASE "{database}" TEMPLATE {TEMPLATE}{where}')
        connections["default"].close()
        connections["default"].settings_dict["NAME"] = database
        try:
            yield postgres.url(database)
        finally:
            connections["default"].close()
            postgres.ask(f'DROP DATABASE "{database}" WITH (FORCE)')


@contextmanager
def _small_disk(own: Path, megabytes: int, postgres: Postgres) -> Iterator[str]:
    """A tablespace on a disk of its own (memory), which fills up soon."""
    if not megabytes:
        yield ""
        return
    disk = own / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", disk], check=True)
    try:
        for parent in (own, own.parent):
            parent.chmod(0o711)
        postgres.own(disk / "tables")
        postgres.ask(f"CREATE TABLESPACE small LOCATION '{disk / 'tables'}'")
        yield " TABLESPACE small"
        postgres.ask("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
