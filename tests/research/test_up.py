"""The parts of `manage.py up`: a port, a worker that is kept alive, what is printed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from approvals.testing import wait_for
from durable_app import up
from durable_app.seed import LogIn


def test_the_next_free_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with up.listening("127.0.0.1", taken) as listener:
            assert taken < listener.getsockname()[1] < taken + up.PORTS_TRIED


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(OSError, match="assign"), up.listening("192.0.2.1", 8000):
        pass


def test_a_worker_that_dies_is_replaced_and_the_last_one_ends_with_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "manage.py"
    fake.write_text(
        f"import os, signal; open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n'); signal.pause()"
    )
    monkeypatch.setattr(up, "MANAGE", fake)

    def pids() -> list[int]:
        file = tmp_path / "pids"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    worker = up.WorkerProcess()
    worker.start()
    try:
        wait_for(lambda: len(pids()) == 1)
        os.kill(pids()[0], signal.SIGKILL)
        wait_for(lambda: len(pids()) == 2)
    finally:
        worker.stop()
    for pid in pids():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_will_not_end_is_killed() -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    up.end(process, seconds=0.1)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL


def test_what_is_printed() -> None:
    told = up.greeting(
        "http://127.0.0.1:8000",
        [LogIn("vera", "reviewers", "pass-word"), LogIn("rita", "requesters", "x", sees_admin=False)],
    )
    assert told.startswith("Up at http://127.0.0.1:8000/ (Ctrl-C ends it).")
    assert "vera   pass-word            reviewers, and the admin\n" in told
    assert "rita   x                    requesters\n" in told
    assert "sam    (its own password)" in up.greeting("http://x", [LogIn("sam", "reviewers", "")])
    assert told.index("Sign in as rita") < told.index("sign in as vera") < told.index("verified")
    assert "runs start research-and-publish --as rita\n" in told
