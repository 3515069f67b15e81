"""Real worker processes on a test's database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection

from approvals.models import Worker
from approvals.testing import wait_for
from durable_app.environment import BASE_DIR


def database_url() -> str:
    """The database of this test, as another process finds it."""
    told = connection.settings_dict
    if connection.vendor != "postgresql":
        return f"sqlite:///{told['NAME']}"
    login = quote(told["USER"]) + (f":{quote(told['PASSWORD'])}" if told["PASSWORD"] else "")
    return f"postgresql://{login}@/{told['NAME']}?host={quote(told['HOST'], safe='')}&port={told['PORT'] or 5432}"


@pytest.fixture
def worker(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts `manage.py worker` on this test's database, and waits until it lives."""
    monkeypatch.setenv("KILLING_WORLD", str(tmp_path))
    environ = {
        **os.environ,
        "DATABASE_URL": database_url(),
        "DATA_DIR": str(settings.DATA_DIR),
        "DJANGO_SETTINGS_MODULE": "durable_app.settings",
        "WORKFLOW_MODULES": "tests.engine.killing",
        "SECRET_KEY": settings.SECRET_KEY,
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(**more: str) -> subprocess.Popen[bytes]:
        before = Worker.objects.count()
        log = (tmp_path / f"worker-{len(processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "worker", "--threads", "2"],
                cwd=BASE_DIR,
                env={**environ, **more},
                stdout=log,
                stderr=log,
            )
        processes.append(process)
        wait_for(lambda: Worker.objects.count() > before or process.poll() is not None, seconds=120)
        assert process.poll() is None, Path(log.name).read_text()
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(10)
