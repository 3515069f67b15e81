"""`manage.py bench [w1|w2|selective|detection|overhead …]`: see approvals/bench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.bench import detection, driver, overhead, selective
from approvals.bench.machine import Database

WORKLOADS: dict[str, Callable[[Database, dict[str, Any]], driver.Row]] = {
    "w1-sync": lambda db, o: driver.w1(db, "sync", n=o["runs"], threads=o["threads"]),
    "w1-async": lambda db, o: driver.w1(db, "async", n=o["runs"], threads=o["threads"]),
    "w1-sync-2": lambda db, o: driver.w1(db, "sync", n=o["runs"], threads=o["threads"], processes=2),
    "w2-signal": lambda db, o: driver.w2(db, "signal", n=o["parked"], threads=o["threads"]),
    "w2-decision": lambda db, o: driver.w2(db, "decision", n=o["parked"], threads=o["threads"]),
    "selective": lambda db, o: selective.played(db, "selective", n=o["runs"], threads=o["threads"]),
    "selective-full": lambda db, o: selective.played(db, "full", n=o["runs"], threads=o["threads"]),
    "overhead": lambda db, o: overhead.overhead(pairs=o["pairs"], seconds=o["seconds"], beside=o["beside"]),
    "detection-postgresql": lambda db, o: detection.detect(trials=o["trials"]),
    "detection-embedded": lambda db, o: detection.detect(trials=o["trials"]),
    "detection-lease": lambda db, o: detection.detect(trials=o["trials"], is_lock_hidden=True),
}
MODULES = "approvals.bench.workflows,approvals.bench.detection,approvals.bench.agents"
_ONCE = ("detection", "overhead")
"""What repeats itself."""
_SCRATCH = "approvals_bench"


class Command(BaseCommand):
    """Measures this engine on PostgreSQL beside the database's own commit rate, each repetition on a fresh database."""

    help = "Measure on PostgreSQL; DATABASE_URL must name a server on which databases may be created."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "workloads",
            nargs="*",
            help=f"of {', '.join(WORKLOADS)}, or the beginning of some; w1 and w2 by default",
        )
        parser.add_argument("--reps", type=int, default=3)
        parser.add_argument("--runs", type=int, default=500, help="of W1 and of the twenty-turn agent")
        parser.add_argument("--parked", type=int, default=1000, help="of W2")
        parser.add_argument(
            "--trials", type=int, default=20, help="of detection, which is repeated no further"
        )
        parser.add_argument("--pairs", type=int, default=30, help="of overhead")
        parser.add_argument("--seconds", type=float, default=60, help="of work in one run of overhead")
        parser.add_argument("--beside", type=int, default=5, help="pairs of overhead at once")
        parser.add_argument("--threads", type=int, default=4)
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
        parser.add_argument("--inside", help="(one repetition, in a process of its own)")

    def handle(self, *args: Any, **options: Any) -> None:
        url = os.environ.get("DATABASE_URL", "")
        if not url.startswith("postgres") and not options["inside"]:
            raise CommandError(
                "bench measures PostgreSQL: set DATABASE_URL, or run it as\n"
                "  .venv/bin/python tests/services.py --durable .venv/bin/python manage.py bench",
                returncode=2,
            )
        if options["inside"]:
            self._inside(url, options)
            return
        chosen = [
            name for name in WORKLOADS if any(name.startswith(w) for w in options["workloads"] or ("w",))
        ]
        if not chosen:
            raise CommandError(
                f"no workload of {options['workloads']}; there are {', '.join(WORKLOADS)}", returncode=2
            )
        found: dict[str, list[driver.Row]] = {}
        for n in range(options["reps"]):  # in turn, so that all meet the same machine
            for name in chosen:
                if n == 0 or not name.startswith(_ONCE):
                    found.setdefault(name, []).append(self._once(url, name, options))
        for name, rows in found.items():
            if not options["json"]:
                self.stdout.write(
                    f"{name}   (median, minimum – maximum of {len(rows)})\n{driver.table(rows)}\n"
                )
        if options["json"]:
            self.stdout.write(json.dumps(found))

    def _once(self, url: str, name: str, options: dict[str, Any]) -> driver.Row:
        scratch = Database(url, _SCRATCH)
        scratch.recreate()
        sizes = [
            f"--{key}={options[key]}"
            for key in ("runs", "parked", "trials", "threads", "pairs", "seconds", "beside")
        ]
        command = [sys.executable, "manage.py", "bench", "--inside", name, *sizes]
        try:
            with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
                environment = {
                    **os.environ,
                    "DATABASE_URL": scratch.url,
                    "DATA_DIR": folder,
                    "WORKFLOW_MODULES": MODULES,
                    "LOG_LEVEL": "WARNING",
                    **({"DATABASE_URL": ""} if name.endswith("embedded") else {}),
                    **({"LEASE_SECONDS": "3"} if name.endswith("lease") else {}),
                }
                told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        finally:
            scratch.drop()
        row: driver.Row = json.loads(told.stdout.splitlines()[-1])
        return row

    def _inside(self, url: str, options: dict[str, Any]) -> None:
        call_command("migrate", verbosity=0)
        database = Database(url, _SCRATCH)
        self.stdout.write(json.dumps(WORKLOADS[options["inside"]](database, options)))
