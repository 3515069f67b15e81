"""Small workflows, code that changes under a run, and counts of what the database was asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import Context, workflow
from approvals.models import Entry, Wait
from approvals.services import reconciliation, runs
from approvals.testing import drive, people
from approvals.workflows.registry import Workflow

_OURS = re.compile(
    r'^\s*(?:WITH held AS \()?(?:INSERT INTO|UPDATE)\s+"?approvals_(?:run|entry|wait|effect)\b', re.IGNORECASE
)

calls: list[Any] = []
"""What the bodies of a test tell it; the fixture `checked` empties it."""


def flow(fn: Callable[[Context, Any], Any]) -> Workflow[Any, Any]:
    """Registers a function under its module's and its own name."""
    name = f"{fn.__module__.rsplit('.', 1)[-1]}.{fn.__name__.strip('_')}"
    return workflow(name=name, version=1)(fn)


@contextmanager
def code(of: Workflow[Any, Any], fn: Callable[[Context, Any], Any]) -> Iterator[None]:
    """Deploys other code for a workflow, as an author would who forgot to raise the version."""
    with mock.patch.object(of, "fn", fn):
        yield


def ran(of: Workflow[Any, Any], input: Any = 0, **options: Any) -> Any:
    """A run that was started and driven until idle."""
    run = runs.start(of, input, **options)
    drive()
    return runs.get(run.id)


def kinds(run: Any) -> list[str]:
    """The kinds of a run's entries, in order."""
    return list(Entry.objects.filter(run=run.id).order_by("seq").values_list("kind", flat=True))


def case(run: Any) -> Wait:
    """The open case of a run."""
    return Wait.objects.get(run=run.id, status="open", kind="reconciliation")


def resume(run: Any) -> Any:
    """An operator resumes the open case; the run as it is after that."""
    reconciliation.resolve(case(run).pk, actor=people().operator, resolution="resume", note="mended")
    drive()
    return runs.get(run.id)


@contextmanager
def commits() -> Iterator[list[str]]:
    """One item per commit that wrote runs, entries, waits or effects while the block ran, claims apart."""
    found: list[str] = []
    with CaptureQueriesContext(connection) as captured:
        yield found
    inside, wrote, claims = False, "", False
    for sql in (q["sql"] for q in captured.captured_queries):
        if re.match(r"BEGIN\b", sql):
            inside, wrote, claims = True, "", False
        elif re.match(r"COMMIT\b", sql):
            found += [wrote] if wrote and not claims else []
            inside = False
        elif _OURS.match(sql) and "fence = fence + 1" in sql:
            claims = True
        elif _OURS.match(sql) and inside:
            wrote = sql
        elif _OURS.match(sql):
            found.append(sql)
