"""The real site as a process of its own on the test's database, and pages that listen to it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.test import Client
from websockets.sync.client import ClientConnection, connect

from approvals.outbox import pages
from approvals.services import runs
from approvals.testing import wait_for
from durable_app.environment import BASE_DIR
from durable_app.up import end
from tests.commands.conftest import shared
from tests.live import flows, serve

HEARD_SECONDS = 10.0


def cookie(account: AbstractBaseUser | None) -> str:
    """What the browser of somebody who signed in sends."""
    if account is None:
        return ""
    client = Client()
    client.force_login(account)  # type: ignore[arg-type]
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@dataclass
class Page:
    """An open page's websocket."""

    socket: ClientConnection

    def follow(self, *topics: str) -> list[str]:
        """Asks for topics; those that were joined."""
        self.socket.send(json.dumps({"topics": topics}))
        while "joined" not in (told := self.hear()):
            pass
        return list(told["joined"])

    def hear(self, seconds: float = HEARD_SECONDS) -> dict[str, list[str]]:
        """The next message. Raises TimeoutError."""
        told: dict[str, list[str]] = json.loads(self.socket.recv(timeout=seconds))
        return told

    def hear_of(self, topic: str, seconds: float = HEARD_SECONDS) -> None:
        """Returns once this topic is told to have changed. Raises TimeoutError when nothing is said for so long."""
        while topic not in self.hear(seconds).get("changed", []):
            pass


class Site:
    """`manage.py up`: web and worker."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.process, self.address = process, address
        self._pages = ExitStack()

    def page(self, account: Any, *, origin: str | None = "", path: str = "/ws/live/") -> Page:
        """A page's socket, as a browser opens it. Raises InvalidStatus where it is refused."""
        host = self.address.removeprefix("http://")
        headers = {"Cookie": cookie(account)}
        origin = f"http://{host}" if origin == "" else origin
        opened = connect(
            f"ws://{host}{path}",
            origin=origin,  # type: ignore[arg-type]
            additional_headers=headers,
            open_timeout=60,  # it may still be loading
        )
        return Page(self._pages.enter_context(opened))

    def close(self) -> None:
        """Closes the pages."""
        self._pages.close()


@pytest.fixture
def teller(monkeypatch: pytest.MonkeyPatch) -> Iterator[pages.Teller]:
    """What tells open pages in this process: one of the test's own, whose thread ends with it."""
    made = pages.Teller()
    monkeypatch.setattr(pages, "_teller", made)
    monkeypatch.setattr(
        pages, "_PATIENCE_SECONDS", 10.0
    )  # the machine may be busy, and what is late is dropped
    yield made
    made.end()


@pytest.fixture
def site(engine: object, tmp_path: Path) -> Iterator[Site]:
    """The site on the test's database: embedded on SQLite; beside PostgreSQL with a worker process and Redis."""
    env = {**shared(tmp_path), "WORKFLOW_MODULES": flows.__name__, "PYTHONUNBUFFERED": "1"}
    path = tmp_path / "up.log"
    with path.open("w") as log:
        command = [sys.executable, "-m", serve.__name__]
        process = subprocess.Popen(command, env=env, cwd=BASE_DIR, stdout=log, stderr=log)
    try:
        found = Site(process, wait_for(lambda: _address(process, path), seconds=60))
        yield found
        found.close()
    finally:
        end(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    said = log.read_text()
    assert process.poll() is None, said
    found = re.search(r"http://127\.0\.0\.1:\d+", said)
    return found[0] if found else ""


def suspended(of: Any, requester: Any = None) -> Any:
    """A run that waits for a signal."""
    run = runs.start(of, 1, requester=requester)
    wait_for(lambda: runs.get(run.id).status == "suspended")
    return run
