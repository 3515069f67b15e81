"""A step has no state of its own beyond its entry: it is recorded once, when it ends."""

from __future__ import annotations

import json

from approvals.journal import NewEntry
from approvals.states import SYNC_STEP


def complete(kind: str, position: int, name: str, digest: str, value: str, *, sync: bool = False) -> NewEntry:
    """It ended with this result (JSON text). `sync`: a step that is committed before the next line runs."""
    return NewEntry(f"{SYNC_STEP if sync else kind}.complete", position, name, digest, value)


def fail(
    kind: str, position: int, name: str, digest: str, error: dict[str, str], *, sync: bool = False
) -> NewEntry:
    """It is out of attempts."""
    return NewEntry(f"{SYNC_STEP if sync else kind}.fail", position, name, digest, json.dumps(error))


def note(kind: str, position: int, name: str, value: str) -> NewEntry:
    """Something that the code asked for and that replay must answer alike: the time, a winner."""
    return NewEntry(kind, position, name, "", value)
