"""A sample of the crash matrix: a real process dies at each class of boundary once (CASES 13, 22, 23)."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.crash.running import matrix

pytestmark = pytest.mark.sigkill


PARTS = ("1/3",) if connection.vendor == "postgresql" else ("1/2", "2/2")


@pytest.mark.parametrize("part", PARTS)
def test_whoever_dies_wherever_nothing_is_lost_and_nothing_happens_twice(part: str) -> None:
    told = matrix("--sample", part, "--jobs", "4")
    assert connection.vendor in told
