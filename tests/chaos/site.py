"""The product's processes in a cell, and the people who use it: web requests and commands, no shortcuts."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from django.conf import settings
from django.db import connection
from django.test import Client
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from approvals.models.trouble import is_trouble
from approvals.testing import people, wait_for
from durable_app.environment import BASE_DIR

REQUEST_SECONDS = 30.0


def patiently[T](ask: Callable[[], T], *, seconds: float = 150) -> T:
    """The answer of the database, asked again while it is away."""
    found: list[T] = []

    def asked() -> bool:
        try:
            found.append(ask())
        except Exception as error:
            if not is_trouble(error):
                raise
            connection.close()
        return bool(found)

    wait_for(asked, seconds=seconds)
    return found[0]


class Site:
    """Worker processes and a web process on one database."""

    def __init__(self, folder: Path, database: str, redis: str) -> None:
        self.folder = folder
        ours = ("APPROVALS_", "PYTEST", "DJANGO_", "TEST_")
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self._env |= {
            "DATABASE_URL": database,
            "DATA_DIR": str(folder / "data"),
            "DJANGO_SETTINGS_MODULE": "durable_app.settings",
            "SECRET_KEY": settings.SECRET_KEY,
            "LOG_LEVEL": "WARNING",
        }
        self._env.pop("REDIS_URL", None)
        if redis:
            self._env["REDIS_URL"] = redis
        self.processes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def worker(self, threads: int = 4, **more: str) -> subprocess.Popen[bytes]:
        """Starts one, and waits until it has its row."""
        from approvals.models import Worker

        before = patiently(Worker.objects.count)
        command = [sys.executable, "manage.py", "worker", "--threads", str(threads)]
        process = self._start(f"worker-{len(self.processes)}.log", command, **more)
        wait_for(lambda: process.poll() is not None or patiently(Worker.objects.count) > before, seconds=120)
        self.check(process)
        return process

    def web(self, **more: str) -> None:
        """Starts the web process, and waits until it serves."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            listener.set_inheritable(True)
            command = [sys.executable, "-m", "uvicorn", "durable_app.asgi:application", "--lifespan", "off"]
            command += ["--fd", str(listener.fileno()), "--log-level", "error"]
            process = self._start("web.log", command, pass_fds=(listener.fileno(),), **more)
        self._web = process

        def serves() -> bool:
            self.check(process)
            with suppress(URLError, OSError):
                return Person(self.address, "").get("/healthz")[0] == 200
            return False

        wait_for(serves, seconds=60)

    def _start(
        self, log: str, command: list[str], *, pass_fds: Any = (), **more: str
    ) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=BASE_DIR,
                env={**self._env, **more},
                stdout=output,
                stderr=output,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def check(self, process: subprocess.Popen[bytes]) -> None:
        """Raises AssertionError if it has ended by itself."""
        if process.poll() is not None:
            logs = "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("*.log")))
            raise AssertionError(f"{process.args!r} ended with {process.returncode}:\n{logs}")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL, also if it is stopped."""
        process.kill()
        process.wait(30)
        self.processes.remove(process)

    def close(self) -> None:
        """Ends every process, hard."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.processes:
            process.wait(30)

    def said(self, pattern: str) -> int:
        """How many lines of the processes' logs have it."""
        texts = [path.read_text() for path in self.folder.glob("*.log")]
        return sum(bool(re.search(pattern, line)) for text in texts for line in text.splitlines())

    def complaints(self) -> list[str]:
        """Errors in the processes' logs that are not the database's or Redis' absence."""
        found = []
        for path in self.folder.glob("*.log"):
            found += [
                f"{path.name}: {line[:200]}" for line in path.read_text().splitlines() if _is_fault(line)
            ]
        return found


_FAULT = re.compile(r" (ERROR|CRITICAL) |^[A-Za-z_.]*(Error|Exception)\b")
_EXPECTED = re.compile(
    r"Service Unavailable|OperationalError|InterfaceError|psycopg|redis|Connection|failed; "
)


def _is_fault(line: str) -> bool:
    return bool(_FAULT.search(line)) and not _EXPECTED.search(line)


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


class Person:
    """Somebody with a browser."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self._open = address, build_opener(_Stay).open
        self._cookies = ""
        if name:
            client = Client()
            client.force_login(_account(name))
            session = client.cookies[settings.SESSION_COOKIE_NAME].value
            self._cookies = f"{settings.SESSION_COOKIE_NAME}={session}; csrftoken={'c' * 32}"

    def get(self, path: str) -> tuple[int, str, dict[str, str]]:
        """(status, text, headers). Raises URLError or OSError if nobody answers."""
        return self._ask(Request(f"{self.address}{path}"))

    def post(self, path: str, **fields: str) -> tuple[int, str, dict[str, str]]:
        """The same, of a form."""
        headers = {"X-CSRFToken": "c" * 32}
        return self._ask(Request(f"{self.address}{path}", urlencode(fields).encode(), headers))

    def listens(self) -> int:
        """Opens a page's websocket; with which status it is answered (101: it is open)."""
        host = self.address.removeprefix("http://")
        headers = {"Cookie": self._cookies}
        try:
            with connect(
                f"ws://{host}/ws/live/",
                origin=Origin(self.address),
                additional_headers=headers,
                open_timeout=20,
            ):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code

    def _ask(self, request: Request) -> tuple[int, str, dict[str, str]]:
        request.add_header("Cookie", self._cookies)
        try:
            with self._open(request, timeout=REQUEST_SECONDS) as answer:
                return answer.status, answer.read().decode(), _lower(answer.headers)
        except HTTPError as error:
            with error:
                return error.code, error.read().decode(), _lower(error.headers)


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _account(name: str) -> Any:
    who = people()
    return {p.username: p for p in (who.requester, *who.reviewers, who.operator)}[name]


@contextmanager
def thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs beside the block until its end; what it raised, the block raises."""
    over, raised = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(over)
        except BaseException as error:
            raised.append(error)
        finally:
            connection.close()

    running = threading.Thread(target=run, daemon=True)
    running.start()
    try:
        yield
    finally:
        over.set()
        running.join(120)
    if raised:
        raise raised[0]
