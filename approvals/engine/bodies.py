"""Runs the bodies that authors write, with what they may not do made impossible or noticed."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.db import Error as DatabaseError
from django.db import connection, connections

from approvals.errors import ContextMisuse, StepTimeout, StepWrites
from approvals.models import statements

log = logging.getLogger(__name__)

_WORDS = "insert|update|delete|merge|replace|truncate|create|alter|drop|grant|revoke|copy|call|do|lock|vacuum|refresh"
_BEFORE = r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*"
_WRITE = re.compile(
    rf"\A{_BEFORE}(?:explain\b.*?)?(?:{_WORDS})\b"
    rf"|\A{_BEFORE}with\b.*[\s()](?:insert\s+into|update\s+\S+\s.*\bset|delete\s+from|merge\s+into)\b"
    rf"|\A{_BEFORE}select\b.*\binto\s+(?:temp|unlogged|table|\")",
    re.IGNORECASE | re.DOTALL,
)


_ENDS = re.compile(
    rf"{_BEFORE}(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction"
    rf"|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b))\b",
    re.IGNORECASE,
)
_SESSION = re.compile(rf"{_BEFORE}(?:set|reset|pragma|discard|listen|load|attach|detach)\b", re.IGNORECASE)
_IN_SESSION = ("set_config", "advisory_lock")
_body = threading.local()


def _refuse_writes(execute: Any, sql: Any, params: Any, many: bool, context: Mapping[str, Any]) -> Any:
    text = sql if isinstance(sql, str) else str(sql)
    if _SESSION.match(text) or any(word in text for word in _IN_SESSION):
        _body.changed_session = True
    if getattr(_body, "commits_with_entry", False) and _ENDS.match(text):
        told = "A transaction is ended by the engine, with its entry; its body may not"
        raise ContextMisuse.of(told, statement=text[:80])
    if not getattr(_body, "reads_only", False):
        return execute(sql, params, many, context)
    if _WRITE.search(text):
        raise StepWrites(statement=text[:80])
    return execute(sql, params, many, context)


# A body may well ask a service for something: only between bodies is there nothing to refuse.
statements.harmless[_refuse_writes] = lambda: not getattr(_body, "reads_only", False)


@contextmanager
def guarded() -> Iterator[None]:
    """Watches this thread's connections for as long as a turn lasts; `reading_only` then costs nothing."""
    with ExitStack() as stack:
        stack.callback(_end_changed_session)
        for each in connections.all():
            stack.enter_context(each.execute_wrapper(_refuse_writes))
        yield


def _end_changed_session() -> None:
    """What a body set holds for its session, and so for whatever this thread moves next: it gets a new one."""
    if getattr(_body, "changed_session", False) and not connection.in_atomic_block:
        _body.changed_session = False
        connection.close()


@contextmanager
def reading_only() -> Iterator[None]:
    """Inside `guarded`: refuses every writing statement of this thread with StepWrites.

    Raises ContextMisuse for a body that leaves a transaction open: nothing after it would be committed.
    What the body itself raised goes first.
    """
    _body.reads_only, was_open = True, False
    try:
        yield
    finally:
        _body.reads_only = False
        was_open = _is_rolled_back()
        _end_changed_session()
    if was_open:
        raise ContextMisuse("A step left a transaction of its own open; it was rolled back")


@contextmanager
def committed_with_entry() -> Iterator[None]:
    """Inside `guarded`: the body of a transaction, which may not end it (ContextMisuse), nor begin another.

    Rows without their entry would be written again by the next turn; an entry without its rows never.
    """
    _body.commits_with_entry = True
    try:
        yield
    finally:
        _body.commits_with_entry = False


def _is_rolled_back() -> bool:
    """Ends a transaction that a body left open; False if it left none."""
    if connection.connection is None or connection.autocommit or connection.in_atomic_block:
        return False
    try:
        connection.rollback()
        connection.set_autocommit(True)
    except DatabaseError:  # its session is gone, and with it all that was open; another one begins anew
        connection.close()
    return True


@contextmanager
def one_process() -> Iterator[None]:
    """Ends a copy of this process that author code forked, and that comes out of it.

    A copy holds the same run by the same fence, over the same connection: it would write beside this process,
    and whoever came first would be believed.
    """
    here, code = os.getpid(), 1
    try:
        yield
    except SystemExit as error:  # what a forked copy mostly ends with
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    finally:
        end_copy(of=here, code=code)


def end_copy(*, of: int, code: int = 1) -> None:
    """Does not return in any other process than `of`; nothing that was inherited is tidied up on the way."""
    if os.getpid() != of:
        log.warning(
            "process %s was forked by author code and is no worker: it ends with %s", os.getpid(), code
        )
        os._exit(code)


def call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], timeout: timedelta | None
) -> Any:
    """The result of a plain or async function. Raises StepTimeout past `timeout`, else what it raises."""
    if timeout is None:
        return _plain(fn, args, kwargs)
    return _in_thread(fn, args, kwargs, timeout)


def _plain(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    result = fn(*args, **kwargs)
    if not inspect.isawaitable(result):
        return result
    # async_to_sync, not asyncio.run: ORM calls come back to this thread, and so under its write guard.
    return async_to_sync(_await)(result)


async def _await(awaitable: Any) -> Any:
    try:
        return await awaitable
    except asyncio.CancelledError as error:  # a BaseException: left so, it would end the turn, not the step
        raise RuntimeError("the coroutine was cancelled") from error


def _in_thread(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], timeout: timedelta
) -> Any:
    """A thread cannot be ended from outside: past the timeout it is abandoned, and its result ignored."""
    outcome: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            with one_process(), guarded(), reading_only():
                outcome.append((True, _plain(fn, args, kwargs)))
        except BaseException as error:
            outcome.append((False, error))
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, name=f"step {getattr(fn, '__name__', fn)}", daemon=True)
    thread.start()
    thread.join(timeout.total_seconds())
    if not outcome:
        raise StepTimeout(seconds=timeout.total_seconds())
    done, value = outcome[0]
    if not done:
        raise value
    return value
