"""A step has no state of its own beyond its entry."""

from __future__ import annotations

import json

import pytest

from approvals.models import Entry
from approvals.transitions import Held, NewEntry, locked, record, steps
from tests.transitions import make


def test_entries_are_of_the_call_that_made_them():
    assert steps.complete("step", 1, "a", "d", "2") == NewEntry("step.complete", 1, "a", "d", "2")
    failed = steps.fail("transaction", 2, "b", "", {"type": "OSError", "message": "no"})
    assert (failed.kind, json.loads(failed.data)) == (
        "transaction.fail",
        {"type": "OSError", "message": "no"},
    )
    assert steps.note("now", 3, "", "1") == NewEntry("now", 3, "", "", "1")


@pytest.mark.django_db
@pytest.mark.parametrize("count", [1, 2, 300])
def test_a_record_numbers_its_entries_without_gaps_in_their_order(count):
    run = make.run()
    held = Held(run.pk, run.worker_id, 1)
    last = record(held, [steps.note("now", n + 1, f"n{n}", str(n)) for n in range(count)], position=count)
    assert last == 1 + count
    rows = list(Entry.objects.order_by("seq").values_list("seq", "position", "name", "data"))
    assert rows == [(n + 2, n + 1, f"n{n}", str(n)) for n in range(count)]


@pytest.mark.django_db
def test_results_that_waited_for_a_boundary_are_in_its_transaction_in_order():
    run = make.run()
    with locked(run.pk) as tx:
        tx.take([steps.note("now", 1, "a", "1"), steps.note("now", 2, "b", "2")], position=2)
        tx.append("odd", position=3)
    assert list(Entry.objects.order_by("seq").values_list("kind", "position")) == [
        ("now", 1),
        ("now", 2),
        ("odd", 3),
    ]
    run.refresh_from_db()
    assert (run.position, run.seq) == (2, 4)
