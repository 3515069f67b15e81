"""Named crash points (CONTRACT section 3): where a test or a demo ends a worker as SIGKILL would."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from approvals.errors import Crashed, FaultsNotAllowed

POINTS = (
    "claimed",
    "step_done",
    "before_flush",
    "after_flush",
    "intent_committed",
    "performing",
    "performed",
    "receipt_committed",
    "before_suspend",
    "suspended",
    "decided",
    "before_complete",
    "completed",
)

_lock = threading.Lock()
_armed: dict[str, tuple[int, Literal["raise", "kill"]]] = {}


def _parse(text: str) -> tuple[str, int]:
    point, _, count = text.partition(":")
    if point not in POINTS or (count and not (count.isdigit() and int(count) > 0)):
        raise ValueError(
            f"fault point {text!r}: needed POINT or POINT:N with N ≥ 1, POINT one of {', '.join(POINTS)}"
        )
    return point, int(count or 1)


def arm_from_environment(environ: Mapping[str, str] = os.environ) -> None:
    """Arms `APPROVALS_FAULT`; the process then kills itself there.

    Raises FaultsNotAllowed without `APPROVALS_ALLOW_FAULTS=1`, ValueError for an unknown point.
    """
    if not (text := environ.get("APPROVALS_FAULT")):
        return
    if environ.get("APPROVALS_ALLOW_FAULTS") != "1":
        raise FaultsNotAllowed
    point, count = _parse(text)
    _armed[point] = (count, "kill")


@contextmanager
def crash_at(text: str) -> Iterator[None]:
    """In process: the given passage of a point raises `Crashed`, once. ValueError for an unknown point."""
    point, count = _parse(text)
    _armed[point] = (count, "raise")
    try:
        yield
    finally:
        _armed.pop(point, None)


def reach(point: str) -> None:
    """Marks the passage of a crash point; does nothing unless a test or a demo armed it."""
    if not _armed or point not in _armed:
        return
    with _lock:
        left, how = _armed[point]
        _armed[point] = (left - 1, how)
    if left != 1:
        return
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Crashed(point)
