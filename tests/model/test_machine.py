"""The state machine over public events, for as many examples as there is time for."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.model.budget import examples
from tests.model.machine import Machine

pytestmark = pytest.mark.usefixtures("engine")


def test_whatever_happens_in_whatever_order() -> None:
    run_state_machine_as_test(Machine, settings=examples(5, steps=20))
