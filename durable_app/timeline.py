"""A run's journal as lines for a person. Reads the JSON of `manage.py runs show --json`, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

# What each kind of entry means in plain words; the others are shown by their own name.
_WORDS = {
    "run.start": "started",
    "run.claim": "a worker takes the run",
    "run.suspend": "suspended: nothing is held for it",
    "run.wake": "woken",
    "run.yield": "handed on",
    "run.stop": "stopped for an operator",
    "run.complete": "completed",
    "step.complete": "done",
    "effect.intend": "intent stored",
    "effect.dispatch": "sent",
    "effect.doubt": "outcome unknown",
    "effect.confirm": "looked up: it is there",
    "effect.disprove": "looked up: it is not there",
    "effect.commit": "receipt stored",
    "effect.verify": "read back: as the receipt says",
    "effect.contradict": "read back: NOT as the receipt says",
    "wait.open": "waits",
    "wait.resolve": "resolved",
}


def timeline(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One line per entry: the time of day, the seconds since the start, what it was about, what happened."""
    first: datetime | None = None
    for entry in entries:
        at = datetime.fromisoformat(entry["at"])
        first = first or at
        about = entry["name"] or "run"
        since = (at - first).total_seconds()
        yield f"  {at:%H:%M:%S}.{at.microsecond // 1000:03} {since:7.2f} s  {about:<28} {_told(entry)}"


def _told(entry: Mapping[str, Any]) -> str:
    kind, data = entry["kind"], entry["data"] if isinstance(entry["data"], Mapping) else {}
    match kind:
        case "run.lose_lease":
            return f"worker lost ({data.get('why', 'unknown why')})"
        case "wait.decide":
            return f"{data.get('reviewer', 'somebody')}: {data.get('outcome', 'decided')}"
        case "wait.resolve" if data.get("outcome"):
            return f"resolved: {data['outcome']}"
    return _WORDS.get(kind, kind)
