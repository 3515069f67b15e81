"""A run's journal as lines for a person. Reads the JSON of `manage.py runs show --json`, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from approvals.management.text import clean

# What each kind of entry means in plain words; the others are shown by their own name.
_WORDS = {
    "run.start": "started",
    "run.claim": "a worker takes the run",
    "run.suspend": "suspended: nothing is held for it",
    "run.wake": "woken",
    "run.yield": "handed on",
    "run.stop": "stopped for an operator",
    "run.strand": "stopped for an operator: no live worker knows its version",
    "run.pause": "paused",
    "run.resume": "goes on",
    "run.complete": "completed",
    "run.fail": "failed",
    "run.cancel": "cancelled",
    "run.cancel_asked": "asked to cancel, at its next boundary",
    "run.pause_asked": "asked to pause, at its next boundary",
    "run.fail_asked": "is going to fail, and first undoes what it did",
    "run.unwind": "taken up to settle what is in doubt and to undo what is to be undone, before it ends",
    "compensate.begin": "undoes what was done up to here",
    "compensate.complete": "undone, as far as the journal says",
    "step.complete": "done",
    "step.fail": "failed",
    "transaction.complete": "committed",
    "transaction.fail": "failed",
    "effect.intend": "intent stored",
    "effect.dispatch": "sent",
    "effect.redispatch": "sent again, under the same key",
    "effect.doubt": "outcome unknown",
    "effect.confirm": "looked up: it did happen",
    "effect.disprove": "looked up: it did not happen",
    "effect.commit": "receipt stored",
    "effect.not_sent": "certainly not sent",
    "effect.refuse": "the peer refused",
    "effect.withdraw": "withdrawn: never sent",
    "effect.verify": "read back: as the receipt says",
    "effect.contradict": "read back: NOT as the receipt says",
    "effect.accept": "what is there was accepted",
    "effect.redo": "to be done again, under a new key",
    "effect.compensate": "undone",
    "effect.abandon": "looked up: it did not happen; nothing is sent any more",
    "wait.open": "waits",
    "wait.resolve": "resolved",
    "wait.expire": "expired",
    "wait.cancel": "no longer waited for",
    "wait.invalidate": "approval void",
    "wait.withdraw": "a decision was withdrawn",
    "approval.deny": "the policy denies it",
    "message.keep": "a message came early, kept",
    "message.refuse": "a message came that does not fit",
}
# What an operator said of an effect; what a look-up or a read-back found stands above.
_SAID = {
    "effect.confirm": "it did happen",
    "effect.disprove": "it did not happen",
    "effect.verify": "the receipt is right",
    "effect.accept": "what is there is right",
    "effect.redo": "to be done again, under a new key",
}
_NOT_DONE = ("effect.not_sent", "effect.refuse", "effect.withdraw")
_NOBODY = ("look-up", "read-back")
_WHY = ("why", "reason", "message")


def timeline(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One line per entry: the time of day, the seconds since the start, what it was about, what happened."""
    first: datetime | None = None
    for entry in entries:
        at = datetime.fromisoformat(entry["at"])
        first = first or at
        about = clean(entry["name"] or "run")
        since = (at - first).total_seconds()
        yield f"  {at:%H:%M:%S}.{at.microsecond // 1000:03} {since:9.2f} s  {about:<28} {clean(_told(entry))}"


def _told(entry: Mapping[str, Any]) -> str:
    kind: str = entry["kind"]
    data = entry["data"] if isinstance(entry["data"], Mapping) else {}
    words = _WORDS.get(kind, kind)
    match kind:
        case "run.lose_lease":
            return f"worker lost ({data.get('why', 'unknown why')})"
        case "wait.decide":
            return f"{data.get('reviewer', 'somebody')}: {data.get('outcome', 'decided')}"
        case "wait.resolve" if data.get("outcome"):
            return f"resolved: {data['outcome']}"
        case "wait.open" if data.get("wait"):
            return f"waits ({data['wait']})"
    if kind in _SAID and data.get("by", _NOBODY[0]) not in _NOBODY:
        return _by_an_operator(_SAID[kind], str(data["by"]), str(data.get("note", "")))
    if entry.get("durability") == "sync":
        words += " (sync)"
    if kind in _NOT_DONE and (entry["position"] or 0) < 0:
        words = "could not be undone"
    if kind == "run.cancel_asked" and data.get("compensate"):
        words += ", and to undo what it did first"
    why = next((str(data[key]) for key in _WHY if data.get(key)), "")
    return f"{words}: {why}" if why else words


def _by_an_operator(said: str, by: str, note: str) -> str:
    name, _, told = by.partition(": ")
    note = note or told
    return f"{name}: {said} ({note})" if note else f"{name}: {said}"
