"""The servers and the browser that tests run on: what is used, what is refused, what is cleaned up."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

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


def a_browser(path: Path, version: str = "140.0.7339.5") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho noise >&2\necho 'Chromium {version} built on a machine'\n")
    path.chmod(0o755)
    return path


def only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Lets nothing be found but what lies in this folder, and nothing be installed."""
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(folder / "downloads"))
    monkeypatch.delenv("TEST_CHROMIUM", raising=False)


def test_a_browser_that_cannot_be_had_is_an_error(monkeypatch, tmp_path):
    only(monkeypatch, tmp_path)
    (tmp_path / "chromium").write_text("#!/bin/sh\nexit 1\n")  # as a shim that only tells what to install
    (tmp_path / "chromium").chmod(0o755)
    with pytest.raises(services.Unavailable, match="install chromium, or set TEST_CHROMIUM"):
        services.chromium()
    told = with_a_browser("pass")
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("services: no chromium here")


def test_the_first_browser_that_runs_is_taken(monkeypatch, tmp_path):
    only(monkeypatch, tmp_path)
    downloaded = a_browser(tmp_path / "downloads" / "chromium-1" / "chrome-linux" / "chrome")
    assert str(services.chromium()) == f"140.0.7339.5 (playwright: {downloaded})"
    installed = a_browser(tmp_path / "google-chrome", "141.0")
    assert str(services.chromium()) == f"141.0 (found: {installed})"


def test_a_browser_that_is_given_is_taken_or_refused(monkeypatch, tmp_path):
    only(monkeypatch, tmp_path)
    a_browser(tmp_path / "chromium")
    mine = a_browser(tmp_path / "mine" / "browser", "142.1")
    monkeypatch.setenv("TEST_CHROMIUM", str(mine))
    assert str(services.chromium()) == f"142.1 (given: {mine})"
    monkeypatch.setenv("TEST_CHROMIUM", str(tmp_path / "absent"))
    with pytest.raises(services.Unavailable, match="absent, which does not run"):
        services.chromium()  # never another one instead


def with_a_browser(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, services.__file__, "--chromium", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_command_is_told_of_the_browser(monkeypatch, tmp_path):
    only(monkeypatch, tmp_path)
    browser = a_browser(tmp_path / "chromium")
    told = with_a_browser("import os; print(os.environ['TEST_CHROMIUM']); raise SystemExit(7)")
    assert (told.returncode, told.stdout) == (7, f"{browser}\n")
    assert told.stderr == f"services: Chromium 140.0.7339.5 (found: {browser})\n"


def test_what_another_process_installed_meanwhile_is_taken(monkeypatch, tmp_path):
    monkeypatch.setattr(services, "ROOT", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("installs it a second time"))
    installed = services.Program(tmp_path, "1.0", "found")
    answers = iter([None, installed])
    monkeypatch.setattr(services, "_first_working", lambda places: next(answers))
    assert services._find(lambda: iter(()), "chromium") is installed


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
