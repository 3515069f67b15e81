"""What the matrix is worth: each guard of the engine, taken away, turns it red."""

from __future__ import annotations

import pytest

from tests.crash.running import matrix

pytestmark = [pytest.mark.sigkill, pytest.mark.ablation]
GUARDS = ("fence", "intent", "receipt", "grace", "none", "key")


def test_without_each_guard_the_matrix_turns_red_and_with_it_the_same_cells_are_green() -> None:
    told = matrix(*(word for guard in GUARDS for word in ("--ablation", guard)))
    assert all(f"/{guard} " in told for guard in GUARDS), told
