"""A journal in words, a line for a position. Pure; reads no table. `event_lines` has what lies between two."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from approvals.queries import trees
from approvals.states import WaitKind, durability

NAME_CHARS, WORDS_CHARS, GLANCE_CHARS = 200, 400, 120
FAILURES_SHOWN = 5
CASE: str = WaitKind.RECONCILIATION
CLOSINGS = frozenset({"wait.resolve", "wait.expire", "wait.cancel"})


@dataclass(frozen=True, slots=True)
class Seen:
    """One entry as the page reads it. `told` is empty where it is too long, or a step's value that is."""

    seq: int
    position: int | None
    kind: str
    name: str
    at: datetime
    told: Any = field(default_factory=dict)
    size: int = 0

    def get(self, key: str, default: Any = "") -> Any:
        """A part of what it tells."""
        return self.told.get(key, default) if isinstance(self.told, Mapping) else default


@dataclass(frozen=True, slots=True)
class Note:
    """A fact of a line: words, then a code, then an instant; `to` and `id` name what it leads to."""

    text: str = ""
    code: str = ""
    at: datetime | None = None
    tone: str = ""
    to: str = ""
    """approval, run or case: a page there is."""
    id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the timeline, in the order of the journal."""

    seq: int
    key: str
    kind: str
    name: str = ""
    look: str = ""
    """effect, wait, bad, todo, event: how it is marked."""
    position: int | None = None
    badges: tuple[tuple[str, str], ...] = ()
    notes: tuple[Note, ...] = ()
    stamps: tuple[tuple[str, datetime], ...] = ()
    took: timedelta | None = None
    took_as: str = ""
    """What took so long, where it is not the line itself: "waited", "3 steps in"."""
    since: datetime | None = None
    """It is still going on."""
    facts: tuple[tuple[str, str], ...] = ()
    """To be unfolded: what and its value."""
    skipped: tuple[int, int] | None = None
    """A gap: these positions are not shown."""


def clip(text: Any, limit: int = WORDS_CHARS) -> str:
    """An author's text, bounded."""
    text = str(text)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def quoted(name: str) -> str:
    """A name among words."""
    return f"“{clip(name, NAME_CHARS)}”"


def instant(text: Any) -> datetime | None:
    """An instant that an entry tells."""
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None


def identity(text: Any) -> UUID | None:
    """An id that an entry tells."""
    try:
        return UUID(str(text))
    except ValueError:
        return None


def glance(value: Any) -> str:
    """The first words of a value; secrets as dots, and what is empty left out."""
    if isinstance(value, Mapping) and not trees.is_file(value):
        parts = ((key, _flat(item)) for key, item in value.items())
        flat = ", ".join(f"{key}: {item}" for key, item in parts if item)
    else:
        flat = _flat(value)
    return flat if len(flat) <= GLANCE_CHARS else f"{flat[:GLANCE_CHARS]}…"


def _flat(value: Any) -> str:
    if isinstance(value, trees.Hidden):
        return str(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"{len(value):,} item{'s' if len(value) != 1 else ''}"
    if isinstance(value, Mapping):
        if trees.is_file(value):
            return f"{value['name']} ({value['size']} bytes)"
        return f"{len(value):,} field{'s' if len(value) != 1 else ''}" if value else ""
    return json.dumps(value, ensure_ascii=False)


def closing_value(entry: Seen) -> Mapping[str, Any]:
    """What a closed wait brought, where it is short enough to be here."""
    value = entry.get("value", None)
    read = trees.read(value) if isinstance(value, str) else value
    return read if isinstance(read, Mapping) else {}


# --- positions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WaitSeen:
    """The entries of one wait, from its opening on."""

    id: UUID
    entries: tuple[Seen, ...]

    @property
    def opened(self) -> Seen:
        """Its first entry."""
        return self.entries[0]

    @property
    def closed(self) -> Seen | None:
        """The entry that closed it."""
        return next((e for e in self.entries if e.kind in CLOSINGS), None)

    @property
    def kind(self) -> str:
        """approval, signal, timer, child, reconciliation."""
        return str(self.opened.get("wait"))


def waits_in(entries: Iterable[Seen]) -> list[WaitSeen]:
    """The waits among these entries, in the order in which they were opened."""
    found: dict[UUID, list[Seen]] = {}
    for entry in entries:
        wait_id = identity(entry.get("id")) if entry.kind.startswith("wait.") else None
        if wait_id is not None and (wait_id in found or entry.kind == "wait.open"):
            found.setdefault(wait_id, []).append(entry)
    return [WaitSeen(wait_id, tuple(rows)) for wait_id, rows in found.items()]


def call_of(first: Seen) -> str:
    """Which call of the context a position is."""
    machine, _, event = first.kind.partition(".")
    if first.kind == "refused":
        return "refused"
    if machine == "wait" and event:
        return str(first.get("call") or first.get("wait"))
    return first.kind if first.kind == "approval.deny" else machine


def step_line(entries: Sequence[Seen], took: tuple[timedelta | None, str], with_: str, result: Any) -> Line:
    """A step or a transaction: its attempts, their failures, and what came of it."""
    first, last = entries[0], entries[-1]
    call = call_of(first)
    retries = waits_in(entries)
    end = next((e for e in entries if e.kind.endswith((".complete", ".fail"))), None)
    notes = [Note(_stored_as(end.kind, with_))] if end else []
    attempts = len(retries) + 1
    if attempts > 1 and end is not None:
        notes.append(Note(f"attempt {attempts}"))
    for wait in retries[-FAILURES_SHOWN:]:
        error = wait.opened.get("error", {})
        told = f"attempt {wait.opened.get('attempt')} failed: {error.get('type')}: {error.get('message')}"
        notes.append(Note(clip(told), tone="bad"))
    waiting = retries[-1] if retries and retries[-1].closed is None else None
    line = Line(first.seq, f"p{first.position}", call, clip(first.name, NAME_CHARS), position=first.position)
    if waiting is not None:
        notes.append(Note("tried again", at=instant(waiting.opened.get("due_at"))))
        return replace(line, look="wait", notes=tuple(notes), badges=((f"attempt {attempts} next", "warn"),))
    if end is None:
        return replace(line, look="todo", notes=(*notes, Note("being tried again")))
    if end.kind.endswith(".fail"):
        notes.append(Note(clip(f"{end.get('type')}: {end.get('message')}"), tone="bad"))
        return replace(
            line, look="bad", badges=(("failed", "bad"),), notes=tuple(notes), took=took[0], took_as=took[1]
        )
    if result not in (None, {}, [], ""):
        notes.append(Note(code=glance(result)))
    elif last.size > GLANCE_CHARS:
        notes.append(Note(f"{last.size:,} characters"))
    return replace(line, notes=tuple(notes), took=took[0], took_as=took[1])


def _stored_as(kind: str, with_: str) -> str:
    """How its end was committed."""
    stored = durability(kind)
    return f"{stored}, {with_}" if stored else "exactly once, together with its own rows"


_WAIT_WORDS = {
    "approval": "approval",
    "signal": "signal",
    "webhook": "webhook",
    "timer": "timer",
    "child": "child run",
    "wait": "wait at most",
}
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "approved": ("approved", "good"),
    "rejected": ("rejected", "bad"),
    "changes_requested": ("changes requested", "warn"),
    "expired": ("expired", "bad"),
    "left": ("no longer waited for", ""),
    "received": ("received", "good"),
    "fired": ("over", "good"),
    "completed": ("done", "good"),
    "failed": ("failed", "bad"),
    "cancelled": ("cancelled", "bad"),
}


def wait_line(wait: WaitSeen, call: str, *, more: Sequence[Note] = (), may_open: bool = True) -> Line:
    """A wait: what for, since when, and how it ended. `more` is what is known of an open approval."""
    opened, closed = wait.opened, wait.closed
    notes = [*_about_wait(wait, call, may_open=may_open), *_said(wait)]
    line = Line(
        opened.seq,
        f"w{wait.id}",
        _WAIT_WORDS.get(call, call),
        clip(opened.name, NAME_CHARS),
        position=opened.position,
    )
    if closed is None:
        notes += [*more, Note("no worker is held")]
        return replace(line, look="wait", notes=tuple(notes), since=opened.at)
    outcome = str(closed.get("outcome") or "left")
    words, tone = _OUTCOMES.get(outcome, (outcome.replace("_", " "), ""))
    if call == "timer" and outcome == "fired":
        words = "fired"
    brought = closing_value(closed)
    if outcome == "received" and brought.get("id"):
        notes.append(Note("message", code=clip(brought["id"], NAME_CHARS)))
    void = next((e for e in wait.entries if e.kind == "wait.invalidate"), None)
    badges = [(words, tone)]
    if void is not None:
        badges.append(("void", "bad"))
        notes.append(Note(clip(f"asked again: {void.get('reason')}"), tone="bad"))
    automatic = outcome == "approved" and not any(e.kind == "wait.decide" for e in wait.entries)
    if automatic:
        notes.append(Note("decided by the policy itself"))
    return replace(
        line,
        look="bad" if tone == "bad" else "",
        badges=tuple(badges),
        notes=tuple(notes),
        took=closed.at - opened.at,
        took_as="waited",
    )


def _about_wait(wait: WaitSeen, call: str, *, may_open: bool) -> list[Note]:
    opened, due = wait.opened, instant(wait.opened.get("due_at"))
    notes = []
    if call == "approval":
        version = opened.get("policy_version")
        policy = f"policy {opened.get('policy')}" + (f" version {version}" if version else "")
        notes.append(Note(policy))
        if may_open:
            notes.append(Note("see the approval", to="approval", id=wait.id))
    if call == "child" and may_open:
        notes.append(Note("see the child run", to="run", id=identity(opened.get("child"))))
    fired = wait.closed is not None and wait.closed.get("outcome") == "fired"
    if due is not None and (wait.closed is None or fired):
        words = {"timer": "fired" if fired else "fires", "wait": "at the latest"}
        notes.append(Note(words.get(call, "due"), at=due))
    return notes


def _said(wait: WaitSeen) -> list[Note]:
    """What people said."""
    notes = []
    for entry in wait.entries:
        if entry.kind == "wait.decide":
            words, tone = _OUTCOMES.get(str(entry.get("outcome")), (str(entry.get("outcome")), ""))
            comment = entry.get("comment")
            said = f"{entry.get('reviewer')}: {words}" + (f", “{clip(comment)}”" if comment else "")
            notes.append(Note(said, at=entry.at, tone=tone))
        elif entry.kind == "wait.withdraw":
            notes.append(Note(f"{entry.get('reviewer')} took the decision back", at=entry.at))
    return notes


def other_line(entries: Sequence[Seen], names: Mapping[UUID, str]) -> Line:
    """A position that is none of the above: the time, a first of several, a refusal."""
    first = entries[0]
    call = call_of(first)
    line = Line(first.seq, f"p{first.position}", call, clip(first.name, NAME_CHARS), position=first.position)
    match call:
        case "now":
            at = instant(first.told)
            return replace(line, kind="time", name="the time was read", notes=(Note(at=at),) if at else ())
        case "wait_any":
            winner = identity(first.get("winner"))
            name = names.get(winner, "") if winner is not None else ""
            told = (Note(f"the first to close: {quoted(name)}"),) if name else ()
            return replace(line, kind="first of", notes=told)
        case "wait":
            return replace(line, kind="wait at most", notes=(Note("it was closed already"),))
        case "approval.deny":
            note = Note(clip(f"policy {first.get('policy')} denies it: {first.get('reason')}"), tone="bad")
            return replace(line, kind="approval", look="bad", badges=(("denied", "bad"),), notes=(note,))
        case "compensate":
            is_over = any(e.kind == "compensate.complete" for e in entries)
            note, badge = Note(clip(first.get("reason"))), ("over", "") if is_over else ("under way", "busy")
            name = "what was done up to here"
            return replace(line, kind="undoing", name=name, badges=(badge,), notes=(note,))
        case "refused":
            note = Note(clip(f"{first.get('type')}: {first.get('message')}"), tone="bad")
            kind = str(first.get("call") or "call")
            return replace(line, kind=kind, look="bad", badges=(("refused", "bad"),), notes=(note,))
    return line
