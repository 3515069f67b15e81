"""`manage.py up`: database, people and policies, then the web server and a worker until Ctrl-C."""

from __future__ import annotations

import errno
import fcntl
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

import uvicorn
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import OutputWrapper
from django.db import connection

from approvals.engine.loop import Worker
from approvals.management.output import MANAGE as PASTED
from durable_app.seed import LogIn, seed

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
PORTS_TRIED = 50


class Stoppable(Protocol):
    """A worker, wherever it runs."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


def up(host: str, port: int, out: OutputWrapper) -> None:
    """Brings everything up and serves until it is told to stop (SIGINT or SIGTERM)."""
    ending = Ending()
    _say(out, "Preparing the database, people and policies …")
    log_ins = prepare()
    with listening(host, port) as listener:
        worker: Stoppable = Worker(settings.APPROVALS_WORKER_THREADS) if is_embedded() else WorkerProcess()
        worker.start()
        try:
            taken = listener.getsockname()[1]
            if port and taken != port:
                _say(out, f"Port {port} is taken; using {taken}.")
            _say(out, greeting(f"http://{host}:{taken}", log_ins))
            ending.check()
            config = uvicorn.Config(
                "durable_app.asgi:application",
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
            )
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            worker.stop()


class Ending:
    """Makes SIGINT and SIGTERM a KeyboardInterrupt, and remembers it.

    One that is raised inside a destructor or a weak reference's callback is swallowed by the interpreter; while
    everything is loaded that is not rare. uvicorn takes both signals over, and raises them again once it has ended.
    """

    def __init__(self) -> None:
        self.is_asked = False
        signal.signal(signal.SIGINT, self)
        signal.signal(signal.SIGTERM, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raises KeyboardInterrupt if one came and was lost."""
        if self.is_asked:
            raise KeyboardInterrupt


def _say(out: OutputWrapper, what: str) -> None:
    out.write(what)
    out.flush()


def is_embedded() -> bool:
    """Whether this process is the whole installation: database, web and worker."""
    return connection.vendor == "sqlite"


def prepare() -> list[LogIn]:
    """Migrates and seeds; a second `up` at the same moment waits here for the first."""
    settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
    with open(settings.DATA_DIR / "up.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        call_command("migrate", interactive=False, verbosity=0)
        return seed()


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket on this port, or on the next one that is free; port 0: on any."""
    for candidate in range(port, port + PORTS_TRIED):
        try:
            listener = socket.create_server((host, candidate))
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE or candidate == port + PORTS_TRIED - 1:
                raise
        else:
            break
    with listener:
        yield listener


class WorkerProcess:
    """`manage.py worker` as a child; another one takes its place if it dies."""

    def __init__(self) -> None:
        self._is_stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="worker keeper")

    def start(self) -> None:
        self._keeper.start()

    def stop(self) -> None:
        """Lets it finish its turn; ends it hard if that takes too long."""
        self._is_stopping.set()
        self._keeper.join()

    def _keep(self) -> None:
        while not self._is_stopping.is_set():
            # A session of its own: Ctrl-C reaches `up` alone, which then asks the worker to end.
            process = subprocess.Popen([sys.executable, MANAGE, "worker"], start_new_session=True)
            while process.poll() is None and not self._is_stopping.wait(0.5):
                pass
            end(process)


def end(process: subprocess.Popen[bytes], seconds: float = 20) -> None:
    """Asks a process to end, and kills it if it does not within this time."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def greeting(address: str, log_ins: list[LogIn]) -> str:
    """What a person needs in order to go on."""
    people = [
        f"  {each.name:<6} {each.password or '(its own password)':<20} {each.group}"
        f"{', and the admin' if each.sees_admin else ''}"
        for each in log_ins
    ]
    lines = [
        f"Up at {address}/ (Ctrl-C ends it). Log-ins:",
        "",
        *people,
        "",
        "The main job, in two minutes:",
        "",
        "  1. Sign in as rita. Under Workflows, start research-and-publish; its form may stay as it is.",
        "  2. In a private window, sign in as vera. Her inbox asks for a yes: read what will happen, approve.",
        "  3. rita's page has moved on by itself: published, read back and verified.",
        "",
        "The same on the command line; once the run waits, the second command prints what to type next:",
        "",
        f"  {PASTED} runs start research-and-publish --as rita",
        f"  {PASTED} approvals list",
        "",
    ]
    return "\n".join(lines)
