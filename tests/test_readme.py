"""What README shows is run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from approvals.services import policies

HERE = Path(__file__).parents[1]
README = (HERE / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The code that README shows in a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_first_workflow_and_its_test_run_as_shown(tmp_path: Path) -> None:
    letters, test = blocks("python")
    (tmp_path / "letters.py").write_text(letters)
    (tmp_path / "test_letters.py").write_text(test)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["approvals.testing"]\n')
    paths = os.pathsep.join((str(tmp_path), str(HERE)))
    mine = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTEST_", "DURABLE_", "DATABASE_", "REDIS_"))
    }
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_letters.py"],
        cwd=tmp_path,
        env={**mine, "PYTHONPATH": paths, "DJANGO_SETTINGS_MODULE": "durable_app.settings_test"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "1 passed" in told.stdout


def test_the_policy_that_is_shown_can_be_loaded() -> None:
    (shown,) = blocks("yaml")
    assert policies.read(shown).slug == "refunds"


def test_nothing_is_left_to_be_filled_in() -> None:
    assert not re.search(r"TODO|FIXME|[A-Z]+_TABLE\b", README)
