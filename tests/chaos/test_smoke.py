"""A small cell of `make chaos` in every run of the suite, and that its verdict can be a bad one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from durable_app.environment import BASE_DIR
from tests.chaos.stage import Outcome


@pytest.mark.postgres
def test_a_database_that_is_stopped_at_once_and_comes_back_costs_nothing(tmp_path: Path) -> None:
    """CASES 15."""
    report = tmp_path / "chaos.json"
    command = [sys.executable, "-m", "tests.chaos", "postgres-restarted-twice", "--report", str(report)]
    told = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, timeout=180, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    (cell,) = json.loads(report.read_text())["cells"]
    assert cell["fired"] == {"restart": 2} and cell["runs"] > 0 and cell["good"]


@pytest.mark.parametrize(
    ("changed", "good"),
    [
        ({}, True),
        ({"fired": {}}, False),
        ({"fired": {"restart": 1, "cut": 0}}, False),
        ({"during": 0}, False),
        ({"wrong": ["a run that was acknowledged is not there"]}, False),
    ],
)
def test_a_cell_is_good_only_if_its_faults_fired_and_work_went_on(
    changed: dict[str, Any], good: bool
) -> None:
    assert (
        Outcome(**{"cell": "c", "fired": {"restart": 1}, "runs": 2, "during": 2, **changed}).is_good is good
    )
