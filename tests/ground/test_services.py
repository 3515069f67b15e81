"""The servers that tests run on: what is used, what is refused, what is cleaned up."""

from __future__ import annotations

import fcntl
import subprocess
import sys

import pytest

from tests import services


def test_a_service_that_cannot_be_had_is_an_error(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(services.Unavailable, match="install redis-server, or set TEST_REDIS_URL"):
        services._find(lambda: iter(()), "redis-server")


def test_a_program_that_does_not_run_is_passed_over(tmp_path):
    broken = tmp_path / "redis-server"
    broken.write_text("not a program")
    assert services._first_working(iter([("found", broken), ("found", tmp_path / "absent")])) is None


def test_an_old_postgresql_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setattr(services, "_server_user", dict)
    for version, found in (("14.9", None), ("15.1", "15.1")):
        program = tmp_path / "postgres"
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        program.chmod(0o755)
        working = services._first_working(iter([("found", program)]))
        assert (working and working.version) == found


def test_what_is_given_is_taken(monkeypatch):
    monkeypatch.setenv("TEST_DATABASE_URL", "postgresql://given/db")
    monkeypatch.setenv("TEST_REDIS_URL", "redis://given/0")
    with services.postgres() as database, services.redis() as broker:
        assert (database.url, broker.url) == ("postgresql://given/db", "redis://given/0")


def test_servers_of_a_killed_runner_are_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(services, "ROOT", tmp_path)
    ours, theirs = (tmp_path / f"{services.PREFIX}{name}" for name in ("ours", "theirs"))
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code, str(ours)], stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout
        orphan.stdout.readline()  # while it starts, its command line is empty
        for base in (ours, theirs):
            base.mkdir()
            (base / "lock").touch()
            (base / "pid").write_text(str(orphan.pid))
        try:
            with open(theirs / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # its owner lives
                services.clean_up()
            assert orphan.wait(5) != 0
        finally:
            orphan.kill()
    assert (ours.exists(), theirs.exists()) == (False, True)
