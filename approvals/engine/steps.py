"""Steps, transactions, and the time: what is recorded once, when it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from django.db import transaction

from approvals import canonical, clock
from approvals.engine import bodies
from approvals.engine.history import Recorded, end_of
from approvals.errors import (
    RAISED_BY_AUTHORS,
    AuthoringError,
    ContextMisuse,
    StepFailed,
    StepTimeout,
    words_of,
)
from approvals.models import Wait
from approvals.models.trouble import is_trouble
from approvals.states import WaitKind
from approvals.transitions import NewEntry
from approvals.transitions import steps as events
from approvals.transitions import waits as wait_events
from approvals.workflows import values
from approvals.workflows.registry import StepOptions, result_codec, step_options

if TYPE_CHECKING:
    from approvals.engine.turn import Turn


def step(
    turn: Turn, kind: str, name: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """The recorded result, or that of an attempt made now."""
    options = step_options(fn)
    stored = kind == "transaction" or options.durability != "none"
    entries = turn.at(kind, name, stored=stored)
    if not stored:
        return _computed(turn, name, fn, args, kwargs, options)
    if kind == "transaction" and options.timeout is not None:
        raise ContextMisuse(
            "A transaction has no timeout: it cannot be left while it writes", transaction=name
        )
    digest = _digest(args, kwargs)
    codec = result_codec(fn)
    if end := end_of(entries):
        if digest and end.digest and digest != end.digest:
            turn.warnings.append(
                f"position {turn.position}: the arguments of {name!r} differ from the recorded ones"
            )
        return _recorded(end, codec, name)
    attempt = _attempt(turn, entries)
    codec.check(what=f"{kind} {name!r}")
    if kind == "transaction":
        return _transaction(turn, name, fn, args, kwargs, options, codec, digest, attempt)
    try:
        result = _run(turn, kind, name, fn, args, kwargs, options)
    except Exception as error:
        _failed(turn, kind, name, digest, options, attempt, error)
    text, value = codec.roundtrip(result, what=f"step {name!r}")
    turn.reach("step_done")
    sync = options.durability == "sync"
    turn.keep(events.complete(kind, turn.position, name, digest, text, sync=sync), sync=sync)
    return value


def _computed(
    turn: Turn, name: str, fn: Callable[..., Any], args: Any, kwargs: Any, options: StepOptions
) -> Any:
    """A step that is never stored: it fails alike whenever it is computed."""
    try:
        return _run(turn, "step", name, fn, args, kwargs, options)
    except Exception as error:
        _raise_own(error)
        _raise(name, {"type": type(error).__name__, "message": words_of(error)}, error)


def _raise_own(error: Exception) -> None:
    """What is not the step's failure: a mistake of its author, or the database's trouble."""
    if isinstance(error, AuthoringError) or is_trouble(error):
        raise error


def _run(
    turn: Turn, kind: str, name: str, fn: Callable[..., Any], args: Any, kwargs: Any, options: StepOptions
) -> Any:
    with turn.inside(f"the {kind} {name!r}"), bodies.reading_only():
        return bodies.call(fn, args, kwargs, options.timeout)


def _transaction(
    turn: Turn,
    name: str,
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    options: StepOptions,
    codec: values.Codec[Any],
    digest: str,
    attempt: int,
) -> Any:
    """The author's rows and the entry commit together; the run is locked last, and shortly."""
    with turn.lock:
        turn.flush_due()  # the body may take long, and the heartbeat cannot commit meanwhile
        try:
            with transaction.atomic():
                with turn.inside(f"the transaction {name!r}"), bodies.committed_with_entry():
                    result = bodies.call(fn, args, kwargs, None)
                text, value = codec.roundtrip(result, what=f"transaction {name!r}")
                turn.reach("step_done")
                turn.record_with(events.complete("transaction", turn.position, name, digest, text))
        except Exception as error:
            _failed(turn, "transaction", name, digest, options, attempt, error)
        turn.committed(turn.position)
        return value


def _recorded(end: Recorded, codec: values.Codec[Any], name: str) -> Any:
    if end.kind.endswith(".complete"):
        return codec.decode(end.data, what=f"step {name!r}")
    _raise(name, end.read())


def _raise(name: str, told: Mapping[str, str], cause: Exception | None = None) -> NoReturn:
    """Alike on the first run and on every replay: built from what is recorded."""
    if told["type"] == "StepTimeout":
        raise StepTimeout(f"step {name!r}: {told['message']}", step=name) from cause
    text = f"step {name!r} is out of attempts: {told['type']}: {told['message']}"
    raise StepFailed(text, step=name, type=told["type"], message=told["message"]) from cause


def _attempt(turn: Turn, entries: Sequence[Recorded]) -> int:
    """Which attempt is due; if its timer is still running, the run goes back to sleep."""
    timers = [e.read() for e in entries if e.kind == "wait.open"]
    for timer in timers:
        if (wait_id := UUID(timer["id"])) not in turn.history.closed:
            turn.park([(wait_id, Wait.KEEP)])
    if turn.replaying:  # the next attempt is not recorded, and a replay makes none
        turn.end_of_journal()
    return len(timers) + 1


def _failed(
    turn: Turn, kind: str, name: str, digest: str, options: StepOptions, attempt: int, error: Exception
) -> NoReturn:
    """An attempt failed: a timer for the next one, or the end of the step."""
    _raise_own(error)
    retry = options.retry
    told = {"type": type(error).__name__, "message": words_of(error)}
    if retry is not None and attempt < retry.attempts and retry.covers(error):
        wait = Wait(position=turn.position, kind=WaitKind.TIMER, ordinal=attempt, name=name, parked=Wait.KEEP)
        park_for(turn, wait, retry.delay(attempt), call=kind, attempt=attempt, error=told)
    sync = kind == "step" and options.durability == "sync"
    entry: NewEntry = events.fail(kind, turn.position, name, digest, told, sync=sync)
    turn.keep(entry, sync=sync or kind == "transaction")
    _raise(name, told, error)


def park_for(turn: Turn, wait: Wait, delay: timedelta, **data: Any) -> NoReturn:
    """Suspends on a new timer, in one transaction."""
    turn.reach("before_suspend")
    with turn.boundary() as tx:
        wait.due_at, wait.parked = tx.now + delay, Wait.TOGETHER
        wait_events.open_(tx, wait, **data)
        suspended = turn.park_in(tx, [(wait.pk, Wait.KEEP)])
    turn.left(suspended)


def _digest(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Of a step's arguments, for a warning only; what has no canonical form has no digest (and may raise anything)."""
    try:
        return canonical.digest([list(args), dict(kwargs)])
    except RAISED_BY_AUTHORS:
        return ""


def now(turn: Turn) -> datetime:
    """Database time, remembered at this position."""
    if entries := turn.at("now", ""):
        return datetime.fromisoformat(entries[0].read())
    value = clock.now()
    turn.keep(events.note("now", turn.position, "", json.dumps(value.isoformat())))
    return value
