"""The one door of statements that are written by hand: journal, claims, locks.

On PostgreSQL they pass below Django's cursor, and outside a transaction below psycopg's too: for statements that
come with every step, cursors cost this process more than the database costs. Whoever watches the connection (an
execute wrapper, the query log) gets them by way of a cursor, as on SQLite. Transactions and errors are Django's.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import AutoField, Model

Row = tuple[Any, ...]
harmless: dict[Callable[..., Any], Callable[[], bool]] = {}
"""Execute wrappers that have nothing to say to what passes here while this is true; their rooms add them."""


def run(sql: str, parameters: Sequence[Any]) -> list[Row]:
    """The rows that a statement returns (none for one without RETURNING). `%s` stands for a parameter, `%%` for %."""
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor == "postgresql" and not _is_watched(database):
        session = database.connection
        with database.wrap_database_errors:
            if session.autocommit and session.pgconn.transaction_status == _IDLE:
                return _send(session, sql, [as_text(value) for value in parameters])
            cursor = session.execute(sql, parameters, prepare=True)
            return cursor.fetchall() if cursor.description else []
    with database.cursor() as cursor:
        cursor.execute(sql, [adapted(value, database) for value in parameters])
        return cursor.fetchall() if cursor.description else []


WHILE_SECONDS = 0.05
"""A session that rested for less is not looked at."""


def freshen(since: float | None = None) -> None:
    """Drops this thread's connection if the server has ended it; for whoever has not used it for a while.

    `since`: the moment of its last use, by time.monotonic. Costs no round trip: a server that has something to say
    to a session that asked nothing mostly says goodbye.
    """
    if since is not None and time.monotonic() - since < WHILE_SECONDS:
        return
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor != "postgresql" or database.connection is None or database.in_atomic_block:
        return
    session = database.connection
    if session.closed or _is_spoken_to(session.pgconn.socket):
        database.close()


def _is_spoken_to(socket: int) -> bool:
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))


_patience: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def be_impatient(milliseconds: int) -> None:
    """This thread waits no longer than that for what somebody else has locked. PostgreSQL's sessions forget it with
    their end, and one that is lost in the middle of things is replaced in silence: so to be said again and again.

    It costs a statement for each new session.
    """
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor != "postgresql":
        return
    if database.connection is not None and _patience.get(database.connection) == milliseconds:
        return
    with database.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{milliseconds}ms'")
    _patience[database.connection] = milliseconds


def adapted(value: Any, database: Any) -> Any:
    """As a cursor of this database takes it."""
    if database.vendor == "postgresql":
        return value
    if isinstance(value, UUID):
        return value.hex
    return database.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


def fetch[M: Model](model: type[M], where: str, parameters: Sequence[Any]) -> list[M]:
    """Rows of a table; `where` may go on with ORDER BY."""
    database, names, sql = connections[DEFAULT_DB_ALIAS], *_select(model)
    if database.vendor == "postgresql":
        return [model.from_db(database.alias, names, row) for row in run(f"{sql} WHERE {where}", parameters)]
    values = [adapted(value, database) for value in parameters]
    return list(model._default_manager.raw(f"{sql} WHERE {where}", values))


def insert(row: Model) -> None:
    """Writes a new row as it is. Its id, if the database gives it, stays unknown."""
    names, sql = _insert(type(row))
    run(sql, [getattr(row, name) for name in names])
    row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def update(row: Model, columns: Mapping[str, Any]) -> None:
    """Writes these columns of a row."""
    run(_update(type(row), tuple(columns)), [*columns.values(), row.pk])


@cache
def _insert(model: type[Model]) -> tuple[list[str], str]:
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, AutoField)]
    columns = ", ".join(str(field.column) for field in fields)
    places = ", ".join(["%s"] * len(fields))
    return [
        field.attname for field in fields
    ], f"INSERT INTO {model._meta.db_table} ({columns}) VALUES ({places})"


@cache
def _update(model: type[Model], names: tuple[str, ...]) -> str:
    sets = ", ".join(f"{model._meta.get_field(name).column} = %s" for name in names)  # type: ignore[union-attr]
    return f"UPDATE {model._meta.db_table} SET {sets} WHERE {model._meta.pk.column} = %s"


@cache
def _select(model: type[Model]) -> tuple[list[str], str]:
    fields = model._meta.concrete_fields
    columns = ", ".join(str(field.column) for field in fields)
    return [field.attname for field in fields], f"SELECT {columns} FROM {model._meta.db_table}"


def _is_watched(database: Any) -> bool:
    """Whether a statement must pass by Django's cursor: it is listened to there, or the connection is not sound."""
    if database.connection is None or database.queries_logged or database.needs_rollback:
        return True
    for wrapper in database.execute_wrappers:
        if (quiet := harmless.get(wrapper)) is None or not quiet():
            return True
    return bool(database.health_check_enabled and not database.health_check_done)


_IDLE = 0  # of libpq's PGTransactionStatusType
_COMMAND_OK, _TUPLES_OK = 1, 2  # of libpq's ExecStatusType
_UNPREPARED = b"26000"  # of PostgreSQL's error codes
_names: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()
_numbers = count()


def _send(session: Any, sql: str, values: list[bytes | None]) -> list[Row]:
    """Outside a transaction: the server forgets what was prepared whenever psycopg rolls back, and must be asked."""
    prepared = _names.get(session)
    if prepared is None:
        prepared = _names[session] = {}
    name = prepared.get(sql)
    result = session.pgconn.exec_prepared(name, values) if name else None
    if result is None or result.error_field(_SQLSTATE) == _UNPREPARED:
        name = prepared[sql] = f"approvals_{next(_numbers)}".encode()
        _check(session, session.pgconn.prepare(name, _numbered(sql).encode()))
        result = session.pgconn.exec_prepared(name, values)
    _check(session, result)
    readers = [_READERS.get(result.ftype(column), bytes.decode) for column in range(result.nfields)]
    return [
        tuple(
            None if (text := result.get_value(row, column)) is None else read(text)
            for column, read in enumerate(readers)
        )
        for row in range(result.ntuples)
    ]


_SQLSTATE = ord("C")  # of libpq's diagnostic fields


def _check(session: Any, result: Any) -> None:
    if result.status in (_COMMAND_OK, _TUPLES_OK):
        return
    from psycopg import OperationalError, errors

    # libpq, not the server, says what has no code: the connection was lost, whether or not it knows that already.
    if session.closed or not result.error_field(_SQLSTATE):
        raise OperationalError(result.get_error_message() or "the connection is lost")
    raise errors.error_from_result(result)


def _numbered(sql: str) -> str:
    """With PostgreSQL's own placeholders."""
    first, *others = sql.split("%s")
    numbered = first + "".join(f"${n}{part}" for n, part in enumerate(others, 1))
    return numbered.replace("%%", "%")


# --- values as PostgreSQL's text -------------------------------------------------------------------


def as_text(value: Any) -> bytes | None:
    """A value as PostgreSQL reads it. Raises ValueError for a text with NUL, at which libpq would end it."""
    if value is None:
        return None
    if (write := _WRITERS.get(type(value))) is not None:
        return write(value)
    if isinstance(value, str):  # an enumeration's member: what it is, not what it prints
        return _string(str.__str__(value))
    raise TypeError(f"{type(value).__name__} is no parameter of a statement written by hand")


def _string(value: str) -> bytes:
    if "\0" in value:
        raise ValueError("A text cannot contain NUL (0x00) characters")
    return value.encode()


def _number(value: int) -> bytes:
    return b"%d" % value


def _array(values: Sequence[Any]) -> bytes:
    return b"{" + b",".join(_item(value) for value in values) + b"}"


def _item(value: Any) -> bytes:
    if (text := as_text(value)) is None:
        return b"NULL"
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _plain(value: Any) -> bytes:
    return str(value).encode()


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    str: _string,
    int: _number,
    bool: lambda value: b"t" if value else b"f",
    UUID: _plain,
    datetime: lambda value: value.isoformat().encode(),
    list: _array,
}
# By type oid; anything else is text.
_READERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda text: text == b"t",
    20: int,
    21: int,
    23: int,
    2950: lambda text: UUID(text.decode()),
    1184: lambda text: datetime.fromisoformat(text.decode()),
}
