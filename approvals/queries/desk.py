"""The cases that only an operator can settle: what to know of each, and how it may be settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.models import Effect, Wait
from approvals.queries import access
from approvals.queries.documents import MISSING, about, read, sentence, with_about
from approvals.states import NOT_UNDONE, resolutions
from approvals.workflows import effects

PAGE = 50

ADVICE: Mapping[str, str] = {
    "in doubt": "A call was sent, and it is not known what came of it. Look at the peer for an object made with the "
    "key below, then say what you found. Nothing is sent again until you do.",
    "contradicted": "The run was about to go on and read back what it had made. The world disagrees with the "
    "receipt, so it stopped before building on it.",
    "cannot tell": "The receipt was read back several times without an answer. Resume to try again once the peer "
    "answers.",
    NOT_UNDONE: "What came after it is undone, what came before it is not yet. Nothing more is undone until you have "
    "settled this. Look at the peer; undo it by hand if you must, and say what you did.",
    "crashed": "The journal is intact. Mend the code, deploy it, then resume: the run replays what it has done and "
    "goes on. If it cannot be mended, fail it.",
    "replay diverged": "The journal is intact, and nothing was performed. Deploy code that does what was recorded, "
    "then resume.",
    "no progress": "Look at the workers' logs: something ends them at this place. Resume once it is mended.",
    "too old": "Look whether what it set out to do is still wanted. Resumed, it may go on for as long again.",
    "version unknown": "Start a worker whose code knows this version, then resume.",
}

_RESUME = ("resume", "Resume.", "The cause is mended: the run replays its journal and goes on.")
_FAIL = (
    "fail",
    "Fail the run.",
    "It ends as failed. What it has done in the world stays as it is, unless its workflow undoes it then.",
)
_WORDS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("in doubt", "confirm"): (
        "It happened.",
        "The run goes on with the id that you give below as its receipt.",
    ),
    ("in doubt", "disprove"): (
        "It did not happen.",
        "It is sent again, or withdrawn if the run is to be cancelled. Only once the call can no longer land.",
    ),
    (NOT_UNDONE, "resume"): (
        "Try again.",
        "The cause is mended: it is undone now, then what came before it.",
    ),
    (NOT_UNDONE, "accept"): (
        "Let it be.",
        "It stays as it is, or you have undone it by hand. What came before it is undone.",
    ),
    (NOT_UNDONE, "fail"): ("End the run.", "It ends as failed; what is not undone by now stays as it is."),
    ("contradicted", "accept"): (
        "What is there now is right.",
        "Both are kept; the run goes on with its first answer, and this is not checked again.",
    ),
    ("contradicted", "confirm"): (
        "The receipt is right.",
        "The read-back was wrong, or you have mended the world. It is checked again before later steps.",
    ),
    ("cannot tell", "confirm"): (
        "The receipt is right.",
        "You have looked yourself: the run goes on. It is checked again before later steps.",
    ),
    ("contradicted", "redo"): (
        "Do it again.",
        "What is gone is made again under a new key. If it needs approval, people are asked again.",
    ),
}


def label(why: str, resolution: str) -> str:
    """What an operator said of a case of this kind, without its full stop."""
    known = {"resume": _RESUME[1], "fail": _FAIL[1]}
    words, _ = _WORDS.get((why, resolution), (known.get(resolution, resolution), ""))
    return words.rstrip(".")


def choices(why: str, case: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(resolution, label, what it does): those that the service takes for this case."""
    found = []
    for resolution in resolutions(why):
        if resolution == "redo" and case.get("found") != MISSING:
            continue  # only what is gone is done again
        if resolution == "resume" and why == NOT_UNDONE and "ended" in case:
            continue  # it was refused for good
        if (why, resolution) in _WORDS:
            found.append((resolution, *_WORDS[why, resolution]))
        else:
            found.append(_RESUME if resolution == "resume" else _FAIL)
    return found


def may_be_looked_up(effect: Effect) -> bool:
    """Whether a worker can ask the peer for it: its kind says how, or its code is not known here."""
    author = effects.of_kind((effect.compensates or effect).kind)
    return author is None or author.offers("lookup")


@dataclass(frozen=True, slots=True)
class Case:
    """One open case, as its row shows it."""

    id: UUID
    why: str
    sentence: str
    ways: tuple[str, ...]
    """How it may be settled, in words."""
    run_id: UUID
    workflow: str
    version: int
    effect: str
    """The name and the kind of the effect that it is about; empty: about none."""
    since: datetime
    not_before: datetime | None
    """Until then nobody may say that it did not happen."""


@dataclass(frozen=True, slots=True)
class Cases:
    """A page of them, the longest waiting first."""

    rows: tuple[Case, ...]
    next: UUID | None
    """Where the next page goes on."""


def waiting(viewer: access.Viewer, *, after: UUID | None = None) -> Cases:
    """The open cases that this person may settle. One query."""
    found = with_about(access.cases(viewer)).order_by("id")
    rows = list((found.filter(id__gt=after) if after else found)[: PAGE + 1])
    more = len(rows) > PAGE
    shown = tuple(_case(row) for row in rows[:PAGE])
    return Cases(shown, shown[-1].id if more else None)


def _case(row: Wait) -> Case:
    known, of = read(row.data) or {}, about(row)
    can_land_until = known.get("not_before")
    return Case(
        id=row.pk,
        why=row.name,
        sentence=sentence(row.name, known, of),
        ways=tuple(label.rstrip(".") for _, label, _ in choices(row.name, known)),
        run_id=row.run_id,
        workflow=of.workflow,
        version=of.version,
        effect=f"{of.effect} ({of.kind})" if of.effect else "",
        since=row.opened_at,
        not_before=datetime.fromisoformat(can_land_until) if can_land_until else None,
    )
