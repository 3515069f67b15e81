"""Fixtures of this folder, beside `engine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from approvals.engine.leases import Lease
from approvals.testing import assert_invariants, people
from tests.engine import make, workers
from tests.engine.processes import worker  # noqa: F401  # a fixture


@pytest.fixture
def checked(engine: Callable[[], int]) -> Iterator[None]:
    """`engine`; nobody has told the test anything yet; and every invariant holds at the end."""
    make.calls.clear()
    yield
    assert_invariants()


@pytest.fixture
def who(engine: Callable[[], int]) -> Any:
    """The small organisation."""
    return people()


@pytest.fixture
def fresh_workers(engine: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is left over from another test, and every worker's locks are gone after this one."""
    workers.done.clear()
    workers.gate.clear()
    workers.entered.clear()
    made: list[Lease] = []
    begin = Lease.__init__

    def begun(self: Lease, **options: Any) -> None:
        made.append(self)
        begin(self, **options)

    monkeypatch.setattr(Lease, "__init__", begun)
    yield
    workers.gate.set()
    for lease in made:
        lease.drop_locks()
