"""The environment is made once."""

from __future__ import annotations

import subprocess
from pathlib import Path

from durable_app.environment import BASE_DIR


def test_a_second_run_does_nothing():
    mark = BASE_DIR / ".venv" / ".installed-dev"
    before = mark.stat()
    for kind in ("dev", "runtime"):
        ended = subprocess.run(
            ["sh", "bootstrap.sh", kind], cwd=BASE_DIR, capture_output=True, text=True, check=True
        )
        assert (ended.stdout, ended.stderr) == ("", "")
    assert mark.stat().st_mtime_ns == before.st_mtime_ns


def test_lock_files_hold_hashes_and_no_address():
    for lock in Path(BASE_DIR / "requirements").glob("*.txt"):
        lines = lock.read_text().splitlines()
        assert any(line.strip().startswith("--hash=sha256:") for line in lines)
        assert not any("://" in line or line.startswith("--") for line in lines), lock.name
