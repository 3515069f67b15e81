"""Commands as a shell calls them: in this process where that is enough, else in one of their own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.management import load_command_class
from django.db import connection

from approvals.testing import People, people
from durable_app.environment import BASE_DIR
from tests.commands import flows


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return self.document["error"]


Manage = Callable[..., Ended]


@pytest.fixture
def manage(engine: object) -> Manage:
    """`manage.py …` on the test's own database."""

    def call(name: str, *arguments: str) -> Ended:
        command = load_command_class("approvals", name)
        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            pytest.raises(SystemExit) as ended,
        ):
            type(command)().run_from_argv(["manage.py", name, *arguments])
        return Ended(int(ended.value.code or 0), out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def team(engine: object) -> People:
    return people()


def environment(data_dir: Path, **more: str) -> dict[str, str]:
    """Of a process beside the tests: settings as in production, a folder of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("APPROVALS_", "PYTEST", "DURABLE_"))}
    kept |= {"DATA_DIR": str(data_dir), "SECRET_KEY": settings.SECRET_KEY, "WORKFLOW_MODULES": flows.__name__}
    kept |= {"DJANGO_SETTINGS_MODULE": "durable_app.settings", "PYTHONPATH": str(BASE_DIR)}
    return {**kept, **more}


def shared(data_dir: Path) -> dict[str, str]:
    """The same, on the database that this test uses."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return environment(data_dir, DATABASE_URL=f"sqlite:///{name}", REDIS_URL="")
    return environment(
        data_dir, DATABASE_URL=urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    )


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`manage.py …` as a process of its own, ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, env: Mapping[str, str], **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, str(BASE_DIR / "manage.py"), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, env=env, text=True, **{**pipes, **options}))
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()


@pytest.fixture
def shell(process: Callable[..., subprocess.Popen[str]]) -> Manage:
    """The same, until it has ended."""

    def call(*arguments: str, **options: Any) -> Ended:
        one = process(*arguments, **options)
        out, err = one.communicate(timeout=60)
        return Ended(one.returncode, out, err)

    return call
