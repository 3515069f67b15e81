"""An effect in words: intent, sent, receipt; how doubt was settled; how often its receipt was read back. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from approvals.queries import trees
from approvals.queries.documents import MISSING
from approvals.queries.lines import (
    FAILURES_SHOWN,
    NAME_CHARS,
    Line,
    Note,
    Seen,
    clip,
    instant,
    waits_in,
)
from approvals.states import EffectStatus, WaitKind

SHOWN_CHARS = 4_000
"""Of a request that is unfolded."""
_DIGEST_ENDS = 4


@dataclass(frozen=True, slots=True)
class EffectSeen:
    """The row of an effect, its long values only where they can be shown."""

    status: str
    kind: str
    key: str
    target: str
    digest: str
    risk: str
    reversible: bool
    undoing: bool
    calls: int
    external_id: str | None
    checksum: str | None
    verified_at: datetime | None
    superseded: bool
    reason: str
    policies: tuple[str, ...]
    request: str
    evidence: str


@dataclass
class _Story:
    """What its entries tell, read one after the other."""

    stamps: dict[str, datetime] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    failures: list[Note] = field(default_factory=list)
    doubt: str = ""
    verified: int = 0
    verified_at: datetime | None = None

    def read(self, entries: Sequence[Seen]) -> None:
        for entry in entries:
            if (handler := _HANDLERS.get(entry.kind)) is not None:
                handler(self, entry)

    def settled(self, how: str, tone: str = "good", at: datetime | None = None) -> None:
        """Doubt is over."""
        if self.doubt:
            self.failures.append(Note(f"outcome unknown ({self.doubt}); {how}", tone=tone, at=at))
            self.doubt = ""


def _sent(story: _Story, entry: Seen) -> None:
    story.stamps["sent"] = entry.at
    if entry.kind == "effect.redispatch":
        story.settled("sent again under the same key, which the peer knows", "warn")


def _doubted(story: _Story, entry: Seen) -> None:
    story.doubt = clip(entry.get("reason")) or "no answer"


def _who(entry: Seen, found: str, said: str) -> str:
    """A look-up found it, or an operator said so."""
    by = str(entry.get("by") or "look-up")
    if by in ("look-up", "read-back"):
        return found
    name, _, note = by.partition(": ")
    note = note or str(entry.get("note"))
    return clip(f"{name} says {said}" + (f" (“{note}”)" if note else ""))


def _confirmed(story: _Story, entry: Seen) -> None:
    if entry.get("external_id"):
        story.stamps["receipt"] = entry.at
    if story.doubt:
        story.settled(_who(entry, "looked up: it is there, so it was not sent again", "it did happen"))
    else:
        told = _who(entry, "read back again: as the receipt says", "the receipt is right")
        story.failures.append(Note(told, tone="good", at=entry.at))


def _disproved(story: _Story, entry: Seen) -> None:
    story.settled(_who(entry, "looked up: it is not there", "it did not happen"), "warn")


def _failed(story: _Story, entry: Seen) -> None:
    reason = str(entry.get("reason"))
    if reason.startswith(_DENIED):
        denied = clip(reason.removeprefix(_DENIED))
        story.failures.append(Note(denied, tone="bad", at=entry.at))
        return
    if entry.kind == "effect.not_sent":
        story.stamps.pop("sent", None)
    words = {
        "effect.not_sent": "certainly not sent",
        "effect.refuse": "the peer refused",
        "effect.withdraw": "withdrawn",
    }[entry.kind]
    if entry.position is not None and entry.position < 0:
        words = "could not be undone"
    tone = "" if entry.kind == "effect.withdraw" else "bad"
    story.failures.append(Note(f"{words}: {clip(reason)}", tone=tone, at=entry.at))


def _contradicted(story: _Story, entry: Seen) -> None:
    found = entry.get("found")
    told = "it is gone" if found == MISSING else "it is not what the receipt says"
    story.failures.append(Note(f"read back: {told}", tone="bad", at=entry.at))


def _said(story: _Story, entry: Seen) -> None:
    words = {
        "effect.accept": "what is there is right",
        "effect.redo": "it is to be done again, under a new key",
    }[entry.kind]
    story.failures.append(Note(_who(entry, words, words), at=entry.at))


def _verified(story: _Story, entry: Seen) -> None:
    story.verified, story.verified_at = entry.size, entry.at


def _undone(story: _Story, entry: Seen) -> None:
    story.failures.append(Note("undone, with the key", code=clip(entry.get("key"), NAME_CHARS), at=entry.at))


def _revised(story: _Story, entry: Seen) -> None:
    story.notes.append(
        Note("today's code reads the request as something else: it was frozen anew", tone="warn")
    )


_HANDLERS: Mapping[str, Any] = {
    "effect.intend": lambda story, entry: story.stamps.update(intent=entry.at),
    "effect.dispatch": _sent,
    "effect.redispatch": _sent,
    "effect.commit": lambda story, entry: story.stamps.update(receipt=entry.at),
    "effect.doubt": _doubted,
    "effect.confirm": _confirmed,
    "effect.disprove": _disproved,
    "effect.abandon": _disproved,
    "effect.not_sent": _failed,
    "effect.refuse": _failed,
    "effect.withdraw": _failed,
    "effect.contradict": _contradicted,
    "effect.accept": _said,
    "effect.redo": _said,
    "effect.verify": _verified,
    "effect.revise": _revised,
    "effect.compensate": _undone,
}

_STATES: Mapping[str, tuple[str, str]] = {
    EffectStatus.INTENDED: ("not sent yet", ""),
    EffectStatus.DISPATCHED: ("being sent", "busy"),
    EffectStatus.IN_DOUBT: ("outcome unknown", "bad"),
    EffectStatus.COMMITTED: ("done", "good"),
    EffectStatus.VERIFIED: ("verified", "good"),
    EffectStatus.CONTRADICTED: ("contradicted", "bad"),
    EffectStatus.COMPENSATED: ("undone", ""),
    EffectStatus.REFUSED: ("refused", "bad"),
    EffectStatus.WITHDRAWN: ("withdrawn", ""),
}
_DENIED = "denied: "
_NOT_DONE = frozenset({EffectStatus.INTENDED, EffectStatus.DISPATCHED, EffectStatus.WITHDRAWN})
_BAD = frozenset({EffectStatus.IN_DOUBT, EffectStatus.CONTRADICTED, EffectStatus.REFUSED})


def effect_line(entries: Sequence[Seen], row: EffectSeen | None) -> Line:
    """An effect's line; `row` is None only if its row was removed by hand."""
    first = entries[0]
    position, undoing = first.position, first.position is not None and first.position < 0
    name = clip(first.name.removeprefix("undo ") if undoing else first.name, NAME_CHARS)
    if row is None:
        return Line(first.seq, f"p{position}", "effect", name, look="effect", position=position)
    story = _Story()
    story.read(entries)
    stamps = [(word, story.stamps[word]) for word in ("intent", "sent", "receipt") if word in story.stamps]
    took = None
    if {"sent", "receipt"} <= story.stamps.keys():
        took = max(story.stamps["receipt"], story.stamps["sent"]) - story.stamps["sent"]
    look = "bad" if row.status in _BAD or _is_denied(row) else "todo" if row.status in _NOT_DONE else "effect"
    return Line(
        first.seq,
        f"p{position}",
        "undoing" if undoing else "effect",
        name,
        look=look,
        position=position,
        badges=tuple(_badges(row, story)),
        notes=tuple(_notes(row, story, entries)),
        stamps=tuple(stamps),
        took=took,
        facts=tuple(_facts(row)),
    )


def _is_denied(row: EffectSeen) -> bool:
    """By a policy: nobody was asked."""
    return row.status == EffectStatus.WITHDRAWN and row.reason.startswith(_DENIED)


def _badges(row: EffectSeen, story: _Story) -> Iterator[tuple[str, str]]:
    words, tone = _STATES[row.status]
    if _is_denied(row):
        words, tone = "denied", "bad"
    if row.status == EffectStatus.VERIFIED and story.verified > 1:
        words = f"verified {story.verified:,} times"
    yield words, tone
    if row.risk != "low":
        yield f"{row.risk} risk", "bad" if row.risk == "high" else "warn"
    if not row.reversible and not row.undoing:
        yield "cannot be undone", "warn"


def _notes(row: EffectSeen, story: _Story, entries: Sequence[Seen]) -> Iterator[Note]:
    yield from _receipt(row, story)
    if row.policies and row.status == EffectStatus.INTENDED:
        yield Note(f"guarded by policy {', '.join(row.policies)}")
    if row.calls > 1:
        yield Note(f"called {row.calls:,} times")
    yield from story.notes
    left = len(story.failures) - FAILURES_SHOWN
    if left > 0:
        yield Note(f"{left:,} earlier difficulties are not shown")
    yield from story.failures[-FAILURES_SHOWN:]
    if story.doubt:
        yield Note(f"outcome unknown ({story.doubt}); not settled yet", tone="bad")
    for wait in waits_in(entries):
        if wait.kind == WaitKind.TIMER and wait.closed is None:
            due, name = instant(wait.opened.get("due_at")), wait.opened.name
            yield Note("tries again" if name == entries[0].name else clip(f"to {name}"), at=due, tone="warn")


def _receipt(row: EffectSeen, story: _Story) -> Iterator[Note]:
    if row.target:
        yield Note("on", code=clip(row.target, NAME_CHARS))
    if row.external_id is not None and row.external_id != row.target:
        yield Note("receipt", code=clip(row.external_id, NAME_CHARS))
    if row.checksum:
        yield Note("checksum", code=_digest(row.checksum))
    last = row.verified_at or story.verified_at
    if row.superseded:
        yield Note("not verified any more")
    elif last is not None:
        yield Note("last verified", at=last)


def _digest(checksum: str) -> str:
    """A long one by its ends."""
    plain = checksum.rpartition(":")[2]
    if len(plain) < 32:
        return clip(checksum, NAME_CHARS)
    return f"{checksum[: len(checksum) - len(plain)]}{plain[:_DIGEST_ENDS]}…{plain[-_DIGEST_ENDS:]}"


def _facts(row: EffectSeen) -> Iterator[tuple[str, str]]:
    """What is unfolded."""
    yield "kind", row.kind
    yield "key", row.key
    yield "digest", row.digest
    if row.checksum:
        yield "checksum", clip(row.checksum)
    yield "request", _json(row.request)
    if row.evidence not in ("", "{}"):
        yield "evidence", _json(row.evidence)


def _json(text: str) -> str:
    return trees.written(trees.read(text)) if text else "too long to be shown here"
