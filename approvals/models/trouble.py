"""Which errors are the database's own trouble: it is away, full, too slow, or had to choose a victim."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, InterfaceError, InternalError, OperationalError
from django.db.utils import DatabaseErrorWrapper

_SESSION_ENDED = frozenset({"25P03", "25P04", "25006"})
"""PostgreSQL's codes of a session that was idle, or at work, for too long in a transaction, and of a standby."""


def is_trouble(error: BaseException | None) -> bool:
    """Whether nothing is wrong with what was asked of the engine's database: later it may well succeed.

    Another database of an author's is part of the outside world: that it is away is the failure of whoever asked it.
    """
    if error is None or _alias(error) != DEFAULT_DB_ALIAS:
        return False
    if isinstance(error, InternalError):
        return getattr(error.__cause__, "sqlstate", None) in _SESSION_ENDED
    # SQLite has one name for all that is wrong with a statement.
    is_wrong = getattr(error.__cause__, "sqlite_errorname", "") == "SQLITE_ERROR"
    return isinstance(error, OperationalError | InterfaceError) and not is_wrong


def _alias(error: BaseException) -> str:
    """Which database raised it: Django's wrapper of its errors is on the way, in whatever thread it came up."""
    trace = error.__traceback__
    while trace is not None:
        wrapper = trace.tb_frame.f_locals.get("self") if trace.tb_frame.f_code is _RAISES else None
        if isinstance(wrapper, DatabaseErrorWrapper):
            return str(wrapper.wrapper.alias)  # type: ignore[attr-defined]
        trace = trace.tb_next
    return DEFAULT_DB_ALIAS


_RAISES = DatabaseErrorWrapper.__exit__.__code__
