"""`manage.py demo`, as on a fresh machine: real processes, a real SIGKILL, nothing done twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = {"DATABASE_URL", "REDIS_URL", "DATA_DIR", "SECRET_KEY", "EMAIL_URL", "DJANGO_SETTINGS_MODULE"}


@pytest.mark.sigkill
def test_demo(tmp_path: Path) -> None:
    fresh = {name: value for name, value in os.environ.items() if name not in OURS}
    ended = subprocess.run(
        [sys.executable, ROOT / "manage.py", "demo"],
        env={**fresh, "TMPDIR": str(tmp_path), "DATA_DIR": str(tmp_path / "ours")},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^repeated effects: 0$", ended.stdout, re.MULTILINE)
    assert re.search(r"worker lost, noticed by B after \d+\.\d s", ended.stdout)
    assert "\r" not in ended.stdout, "no progress in a pipe"
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"ours", "ours/secret_key"}, "it uses data of its own, and tidies up"
