"""The matrix as a test calls it: a program of its own, which forks; pytest's process has threads and connections."""

from __future__ import annotations

import subprocess
import sys

from durable_app.environment import BASE_DIR


def matrix(*arguments: str) -> str:
    """What it told. Raises AssertionError, with all of that, if it failed."""
    command = [sys.executable, "-m", "tests.crash", *arguments]
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout
