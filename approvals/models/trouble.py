"""Which errors are the database's own trouble: it is away, full, too slow, or had to choose a victim."""

from __future__ import annotations

from django.db import InterfaceError, InternalError, OperationalError

_SESSION_ENDED = frozenset({"25P03", "25P04", "25006"})
"""PostgreSQL's codes of a session that was idle, or at work, for too long in a transaction, and of a standby."""


def is_trouble(error: BaseException | None) -> bool:
    """Whether nothing is wrong with what was asked of the database: later it may well succeed."""
    if isinstance(error, InternalError):
        return getattr(error.__cause__, "sqlstate", None) in _SESSION_ENDED
    # SQLite has one name for all that is wrong with a statement.
    is_wrong = getattr(error.__cause__, "sqlite_errorname", "") == "SQLITE_ERROR" if error else False
    return isinstance(error, OperationalError | InterfaceError) and not is_wrong
