"""What is counted around a workload: the database's counters, its size, and its own commit rate."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg

_COUNTERS = (
    "SELECT d.xact_commit, d.tup_inserted + d.tup_updated + d.tup_deleted, pg_current_wal_lsn() - '0/0'::pg_lsn "
    "FROM pg_stat_database d WHERE d.datname = %s"
)
_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = 'public' "
    "AND c.relname LIKE 'approvals_%%'"
)


class Database:
    """A scratch database beside the configured one."""

    def __init__(self, admin_url: str, name: str) -> None:
        self.admin_url, self.name = admin_url, name
        parts = urlsplit(admin_url)
        # geturl() would drop the two slashes of a socket address, which has no host
        path = f"{parts.scheme}://{parts.netloc}/{name}"
        self.url = f"{path}?{parts.query}" if parts.query else path

    def recreate(self) -> None:
        """An empty one, whatever was there."""
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')
            admin.execute(f'CREATE DATABASE "{self.name}"')
            admin.execute("CHECKPOINT")

    def drop(self) -> None:
        """Leaves nothing behind."""
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')

    def counters(self) -> tuple[int, int, int]:
        """(transactions, rows written, WAL bytes). Sessions report when they end, so ask after they did."""
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            row = admin.execute(_COUNTERS, (self.name,)).fetchone()
        if row is None:
            raise RuntimeError(f"no counters of database {self.name}")
        return int(row[0]), int(row[1]), int(row[2])

    def commits(self) -> int:
        """How many transactions have written anything, in the whole server."""
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            row = admin.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
        return int(row[0]) if row else 0

    def size(self) -> int:
        """Bytes of our tables with their indexes."""
        with psycopg.connect(self.url, autocommit=True) as own:
            own.execute("VACUUM")
            row = own.execute(_SIZE.replace("%%", "%")).fetchone()
        return int(row[0]) if row else 0


def pgbench() -> str | None:
    """The program, if it is on this machine."""
    found = os.environ.get("PGBENCH") or shutil.which("pgbench")
    return found or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"), reverse=True)), None)


def ref(url: str, seconds: int = 2) -> tuple[float, str]:
    """Single-row INSERT commits per second of one client now, and who counted them."""
    with _table(url) as insert:
        if (program := pgbench()) is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
                script.write(insert.replace("%s", "repeat('x', 200)") + ";\n")
                script.flush()
                told = subprocess.run(
                    [program, "-n", "-M", "prepared", "-f", script.name, "-c", "1", "-T", str(seconds), url],
                    capture_output=True, text=True, timeout=seconds + 30, check=True,
                ).stdout  # fmt: skip
            if found := re.search(r"tps = ([0-9.]+)", told):
                return float(found[1]), "pgbench"
        with psycopg.connect(url, autocommit=True) as client:
            ends, n = time.monotonic() + seconds, 0
            while time.monotonic() < ends:
                client.execute(insert, ("x" * 200,), prepare=True)
                n += 1
        return n / seconds, "psycopg, no pgbench found"


@contextmanager
def _table(url: str) -> Iterator[str]:
    with psycopg.connect(url, autocommit=True) as own:
        own.execute(
            "CREATE TABLE IF NOT EXISTS bench_ref(id bigserial PRIMARY KEY, run int, step int, out text)"
        )
        yield "INSERT INTO bench_ref(run, step, out) VALUES (1, 1, %s)"
        own.execute("DROP TABLE bench_ref")
