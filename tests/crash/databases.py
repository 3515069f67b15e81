"""A database of its own for each cell, copied from one that is migrated and has people and policies."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings
from django.db import connection, connections

from approvals.testing import clock

REVIEWERS = ("vera", "sam", "ann")
OPERATOR = "olaf"
REQUESTER = "rita"


def use(name: str, folder: Path) -> None:
    """From here on this process works on this database; it must not have opened any yet."""
    connections.settings["default"]["NAME"] = name
    settings.DATA_DIR = folder


def known_as(name: str) -> None:
    """What the server calls the sessions of this process; before the first of them."""
    if connection.vendor == "postgresql":
        connections.settings["default"]["OPTIONS"]["application_name"] = name


def end_transactions(name: str) -> None:
    """What the server does to a stopped process that holds locks, a minute later (settings: idle in transaction)."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = %s AND state LIKE 'idle in transaction%%'",
                [name],
            )


class Databases(Protocol):
    """How cells get theirs."""

    def template(self) -> str: ...
    def copy(self, folder: Path) -> str: ...
    def drop(self, name: str) -> None: ...
    def close(self) -> None: ...


def databases(folder: Path) -> Databases:
    """Of the kind that this deployment is configured for."""
    configured = settings.DATABASES["default"]
    return _Sqlite(folder) if "sqlite" in configured["ENGINE"] else _Postgresql(configured)


class _Sqlite:
    def __init__(self, folder: Path) -> None:
        self._template = folder / "template.sqlite3"

    def template(self) -> str:
        return str(self._template)

    def copy(self, folder: Path) -> str:
        made = folder / "db.sqlite3"
        shutil.copyfile(self._template, made)
        return str(made)

    def drop(self, name: str) -> None:
        """It goes with its folder."""

    def close(self) -> None:
        """Likewise."""


class _Postgresql:
    def __init__(self, configured: dict[str, Any]) -> None:
        self._configured, self._made, self._prefix = configured, 0, f"crash_{os.getpid()}"
        self._do(f"CREATE DATABASE {self._prefix}")

    def _do(self, sql: str) -> None:
        import psycopg

        given = self._configured
        with closing(
            psycopg.connect(
                dbname=given["NAME"],
                user=given["USER"] or None,
                password=given["PASSWORD"] or None,
                host=given["HOST"] or None,
                port=given["PORT"] or None,
                autocommit=True,
            )
        ) as server:
            server.execute(sql)

    def template(self) -> str:
        return self._prefix

    def copy(self, folder: Path) -> str:
        name = f"{self._prefix}_{folder.name}"
        self._do(f"CREATE DATABASE {name} TEMPLATE {self._prefix}")
        return name

    def drop(self, name: str) -> None:
        self._do(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def close(self) -> None:
        self.drop(self._prefix)


def fill() -> None:
    """Migrates the database at hand, and puts in people and policies."""
    from django.contrib.auth.models import Group, Permission, User
    from django.core.management import call_command

    from approvals.services import policies
    from tests.crash import scenes

    call_command("migrate", verbosity=0)
    group, _ = Group.objects.get_or_create(name="crash")
    for name, codename in (*((r, "review") for r in REVIEWERS), (OPERATOR, "operate"), (REQUESTER, "start")):
        user = User.objects.create_user(name)
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label="approvals", codename=codename)
        )
        if codename == "review":
            user.groups.add(group)
    policies.load(scenes.TWO_OF_THREE)
    clock.shift(
        timedelta(hours=2)
    )  # so long has the database been up: a lease that is over is believed to be
    connections.close_all()


def settle_file(name: str) -> None:
    """Brings all of an SQLite database into the one file that is copied."""
    if name.endswith(".sqlite3"):
        with closing(sqlite3.connect(name)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def in_child(work: Callable[[], None]) -> int:
    """Does something in a forked process, so that this one opens no connection; its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)
