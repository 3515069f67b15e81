"""Every boundary of a process, found by program: before and after each statement, COMMIT, call to a peer and hint.

The product knows nothing of this. `watch` wraps, in this process and for good, the one door of statements written
by hand, every cursor, the database's commit and rollback, and the hints of the outbox.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any

from django.db import connection, connections

from approvals import outbox
from approvals.models import statements
from approvals.outbox import pages
from tests.crash.peers import world

_BELOW = ("approvals.models", "approvals.clock")
"""Where every statement passes; who sent it stands above."""
MUST_OCCUR = frozenset(
    {
        *(
            "alone:" + room
            for room in ("engine.history", "engine.leases", "engine.recovery", "engine.sweeper", "journal")
        ),
        *(
            "sql:" + room
            for room in ("engine.bodies", "engine.effects", "facts", "journal", "services.decisions")
        ),
        *("sql:" + room for room in ("transitions.effects", "transitions.guard", "transitions.runs")),
        *(
            "alone:queries.sheets",
            "alone:transitions.effects",
            "sql:transitions.waits",
            "sql:outbox",
        ),
        *("commit:engine.steps", "commit:journal", "commit:outbox"),
        *("peer:perform", "peer:lookup", "peer:verify", "hint:commit", "hint:wake", "hint:page"),
    }
)
"""The classes (by room) that a whole run of the matrix must meet; one that is missing means that a hook was lost."""
MUST_OCCUR_ON = {"postgresql": frozenset({"hint:rq"})}


class Boundaries:
    """Counts the boundaries in the sections that matter, and does `act` at the n-th (from 1; 0: never)."""

    def __init__(self, role: str, n: int, act: Callable[[str], None]) -> None:
        self.role, self.n, self.act = role, n, act
        self.section = ""
        self.passed: list[str] = []

    @contextmanager
    def within(self, section: str) -> Iterator[None]:
        """While this process plays this role."""
        before, self.section = self.section, section
        try:
            yield
        finally:
            self.section = before

    def at(self, what: str, moment: str) -> None:
        """A boundary: its class, and on which side of it."""
        if not self.section or self.role not in ("all", self.section):
            return
        inside = " in a transaction" if _holds_locks() else ""
        self.passed.append(f"{self.section} {moment} {what}{inside}")
        if len(self.passed) == self.n:
            self.act(self.passed[-1])


def class_of(label: str) -> str:
    """The class of a boundary: what, and where it was sent from."""
    return label.split()[2]


def room_of(label: str) -> str:
    """The class without the function's name."""
    what, _, where = class_of(label).partition(":")
    room = where.rpartition(".")[0] if what in ("sql", "alone", "commit", "rollback") else where
    return f"{what}:{room}"


def watch(boundaries: Boundaries) -> None:
    """Wraps every door of this process."""
    at, inside = boundaries.at, [False]
    send = statements.run

    def run(sql: str, parameters: Any) -> Any:
        what = _kind() + _sender()
        at(what, "before")
        inside[0] = True
        try:
            rows = send(sql, parameters)
        finally:
            inside[0] = False
        at(what, "after")
        return rows

    def execute(call: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if inside[0]:  # it was counted at its own door
            return call(sql, params, many, context)
        what = _kind() + _sender()
        at(what, "before")
        result = call(sql, params, many, context)
        at(what, "after")
        return result

    statements.run = run
    statements.harmless[execute] = lambda: (
        True
    )  # so that statements written by hand pass below the cursors here, too
    connection.execute_wrappers.append(execute)
    make = connections.create_connection

    def create_connection(alias: str) -> Any:
        made = make(alias)
        made.execute_wrappers.append(execute)
        return made

    setattr(connections, "create_connection", create_connection)  # noqa: B010
    _watch_ends(type(connections["default"]), at)
    _watch_hints(at)
    world.hook = at


def _watch_ends(backend: Any, at: Callable[[str, str], None]) -> None:
    backend._commit = _around(backend._commit, lambda: f"commit:{_sender()}", at)
    backend._rollback = _around(backend._rollback, lambda: f"rollback:{_sender()}", at)


def _watch_hints(at: Callable[[str, str], None]) -> None:
    """Nobody listens to open pages here, and no thread tells them; that a hint would be given counts."""
    outbox._after_commit = _around(outbox._after_commit, lambda: "hint:commit", at)
    outbox.wake_here = _around(outbox.wake_here, lambda: "hint:wake", at)
    outbox._enqueue = _around(outbox._enqueue, lambda: "hint:rq", at)
    pages._teller.is_heard = lambda: True  # type: ignore[method-assign]
    setattr(pages._teller, "add", _around(lambda run_id, lists: None, lambda: "hint:page", at))  # noqa: B010


def _around(do: Callable[..., Any], what: Callable[[], str], at: Callable[[str, str], None]) -> Any:
    @wraps(do)
    def call(*args: Any, **options: Any) -> Any:
        name = what()
        at(name, "before")
        result = do(*args, **options)
        at(name, "after")
        return result

    return call


def _holds_locks() -> bool:
    """Whether the server has a transaction open: from its BEGIN, sent with the first statement, to its COMMIT."""
    if (session := connection.connection) is None:
        return False
    if connection.vendor == "postgresql":
        return bool(session.info.transaction_status)
    return bool(session.in_transaction)


def _kind() -> str:
    return "sql:" if connection.in_atomic_block else "alone:"


def _sender() -> str:
    """Module and function of the product that sent this statement or ended this transaction."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("approvals.") and not module.startswith(_BELOW):
            return f"{module.removeprefix('approvals.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "django."
