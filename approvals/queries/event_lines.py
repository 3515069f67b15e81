"""What happened to a run between two positions, in words: losses, pauses, cases, its end. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from approvals.queries import desk
from approvals.queries.lines import NAME_CHARS, Line, Note, Seen, WaitSeen, clip, closing_value, quoted


def loss_line(entry: Seen, before: Sequence[Seen], after: Sequence[Seen]) -> Line:
    """A worker was lost: when that was noticed, what was under way, and what became of it.

    `before` are the entries up to it, `after` those from it on, in the order of the journal.
    """
    why = str(entry.get("why"))
    name, _, cause = why.partition(": ") if why.startswith("worker ") else ("", "", why)
    notes = [Note(clip(cause or why))]
    noticed = entry.get("noticed_after_seconds", None)
    if isinstance(noticed, int | float):
        if before:  # whoever wrote the entry before was alive then
            last = next((e for e in reversed(before) if not _is_doubt_of(e, entry)), before[0])
            noticed = min(noticed, max((entry.at - last.at).total_seconds(), 0.0))
        notes.append(Note(f"noticed {_after(noticed)}"))
    doubted = [e for e in before if _is_doubt_of(e, entry)]
    notes += [_what_became_of(e, after) for e in doubted] or [
        Note("nothing outside was repeated", tone="good")
    ]
    claim = next((e for e in after if e.kind == "run.claim"), None)
    if claim is not None:
        notes.append(Note(f"another turn went on {_after((claim.at - entry.at).total_seconds())}"))
    kind = "worker lost" if name else "turn lost"
    return Line(entry.seq, f"e{entry.seq}", kind, clip(name.removeprefix("worker "), NAME_CHARS), look="event",
                notes=tuple(notes), took=None)  # fmt: skip


def _after(seconds: float) -> str:
    return f"after {seconds:.1f} s" if seconds >= 0.05 else "at once"


def _is_doubt_of(entry: Seen, loss: Seen) -> bool:
    """Whether it is in the transaction of this loss: its doubts come right before it."""
    return (
        entry.kind == "effect.doubt"
        and bool(entry.get("lost", False))
        and entry.get("reason") == loss.get("why")
    )


def _what_became_of(doubt: Seen, after: Sequence[Seen]) -> Note:
    name = quoted(doubt.name)
    for entry in after:
        if entry.position != doubt.position:
            continue
        match entry.kind:
            case "effect.confirm":
                return Note(f"the call of {name} was under way: it is there, not sent again", tone="good")
            case "effect.disprove" | "effect.abandon":
                return Note(f"the call of {name} was under way: it never arrived")
            case "effect.redispatch":
                return Note(f"{name} was sent again under the same key, which its peer knows", tone="good")
    return Note(f"the call of {name} was under way: its outcome is not known yet", tone="warn")


def _by(entry: Seen) -> str:
    actor, reason = entry.get("actor"), entry.get("reason")
    told = f"by {actor}" if actor else ""
    return clip(f"{told}: {reason}" if reason and told else told or reason)


_EVENTS: Mapping[str, tuple[str, str]] = {
    "run.pause": ("paused", ""),
    "run.resume": ("goes on", ""),
    "run.pause_asked": ("asked to pause, at its next boundary", ""),
    "run.cancel_asked": ("asked to cancel, at its next boundary", ""),
    "run.unwind": (
        "taken up to settle what is in doubt and to undo what is to be undone, before it ends",
        "",
    ),
    "run.fail_asked": ("is going to fail, and first undoes what it did", "bad"),
    "run.complete": ("done", ""),
    "run.cancel": ("cancelled", ""),
    "run.fail": ("failed", "bad"),
    "message.keep": ("a message came early and is kept", ""),
    "message.refuse": ("a message came that does not fit", "bad"),
    "warning": ("warning", ""),
}
EVENTS = (*_EVENTS, "run.start", "run.lose_lease", "run.claim")
"""Entries without a position that the timeline needs."""


def event_line(entry: Seen) -> Line | None:
    """What happened to the run itself, if people want to know."""
    if entry.kind == "run.start":
        by = entry.get("requester")
        note = Note(f"by {by}" if by else "by the installation itself", at=entry.at)
        return Line(entry.seq, f"e{entry.seq}", "started", look="event", notes=(note,))
    found = _EVENTS.get(entry.kind)
    if found is None:
        return None
    words, tone = found
    notes = [Note(told) for told in [_by(entry)] if told]
    if entry.get("compensate", False):
        notes.append(Note("and to undo what it did first"))
    if entry.kind in ("run.fail", "run.fail_asked"):
        notes.append(Note(clip(f"{entry.get('type')}: {entry.get('message')}"), tone="bad"))
    if entry.name:
        notes.append(Note(clip(entry.name), code=clip(entry.get("id"), NAME_CHARS)))
    look = "event bad" if tone else "event good" if entry.kind == "run.complete" else "event"
    return Line(entry.seq, f"e{entry.seq}", words, look=look, notes=(*notes, Note(at=entry.at)))


def case_line(wait: WaitSeen, sentence: str) -> Line:
    """An operator was asked."""
    closed = wait.closed
    line = Line(
        wait.opened.seq, f"w{wait.id}", "waits for an operator", clip(wait.opened.name, NAME_CHARS),
        position=wait.opened.position,
    )  # fmt: skip
    told = Note(clip(sentence))
    if closed is None:
        link = Note("settle it", to="case", id=wait.id)
        return replace(
            line, look="event bad", badges=(("open", "bad"),), notes=(told, link), since=wait.opened.at
        )
    value = closing_value(closed)
    resolution, by = str(value.get("resolution") or closed.get("outcome")), str(value.get("by") or "")
    words = desk.label(wait.opened.name, resolution)
    said = f"{by}: {words}" if by else words
    said += f" (“{clip(value['note'])}”)" if value.get("note") else ""
    took = closed.at - wait.opened.at
    return replace(
        line, kind="an operator settled", look="event", notes=(told, Note(said)), took=took, took_as="waited"
    )
