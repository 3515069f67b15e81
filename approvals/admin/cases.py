"""A case in words: what happened in one sentence, what is known, what an operator may say of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from approvals.services.reconciliation import RESOLUTIONS

MISSING = "missing"


@dataclass(frozen=True, slots=True)
class About:
    """The run and the effect that a case is about, as the sentence names them."""

    workflow: str
    version: int
    effect: str = ""
    kind: str = ""


def sentence(why: str, case: Mapping[str, Any], about: About) -> str:
    """What happened, in one plain sentence."""
    effect = f"“{about.effect}” ({about.kind})" if about.effect else "an effect"
    told = {
        "in doubt": f"It is not known whether {effect} happened.",
        "contradicted": (
            f"What {effect} made is gone."
            if case.get("found") == MISSING
            else f"What {effect} made is no longer what its receipt says."
        ),
        "cannot tell": f"The receipt of {effect} could not be checked: the peer gives no answer.",
        "crashed": f"The workflow's code raised {case.get('type') or 'an exception'} at {case.get('where') or '?'}.",
        "replay diverged": f"Today's code does not do what the journal recorded at position {case.get('position')}.",
        "no progress": f"{case.get('turns_lost')} workers in a row were lost before any progress was made.",
        "version unknown": f"No live worker knows {about.workflow} version {about.version}.",
    }
    return told.get(why, f"The run stopped: {why}.")


ADVICE: Mapping[str, str] = {
    "in doubt": "A call was sent and its answer never came. Look at the peer for an object made with the key "
    "below, then say what you found. Nothing is sent again until you do.",
    "contradicted": "The run was about to go on and read back what it had made. The world disagrees with the "
    "receipt, so it stopped before building on it.",
    "cannot tell": "The receipt was read back several times without an answer. Resume to try again once the peer "
    "answers.",
    "crashed": "The journal is intact. Mend the code, deploy it, then resume: the run replays what it has done and "
    "goes on. If it cannot be mended, fail it.",
    "replay diverged": "The journal is intact, and nothing was performed. Deploy code that does what was recorded, "
    "then resume.",
    "no progress": "Look at the workers' logs: something ends them at this place. Resume once it is mended.",
    "version unknown": "Start a worker whose code knows this version, then resume.",
}

_RESUME = ("resume", "Resume.", "The cause is mended: the run replays its journal and goes on.")
_FAIL = ("fail", "Fail the run.", "It ends as failed; what it has done in the world stays as it is.")
_WORDS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("in doubt", "confirm"): (
        "It happened.",
        "The run goes on with the id that you give below as its receipt.",
    ),
    ("in doubt", "disprove"): (
        "It did not happen.",
        "It is sent again, or withdrawn if the run is to be cancelled. Only once the call can no longer land.",
    ),
    ("contradicted", "accept"): (
        "What is there now is right.",
        "Both are kept; the run goes on with its first answer, and this is not checked again.",
    ),
    ("contradicted", "confirm"): (
        "The receipt is right.",
        "The read-back was wrong, or you have mended the world. It is checked again before later steps.",
    ),
    ("contradicted", "redo"): (
        "Do it again.",
        "What is gone is made again under a new key. If it needs approval, people are asked again.",
    ),
}


def choices(why: str, case: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(resolution, label, what it does): those that the service takes for this case."""
    found = []
    for resolution in RESOLUTIONS.get(why, ("resume", "fail")):
        if resolution == "redo" and case.get("found") != MISSING:
            continue  # only what is gone is done again
        if resolution in ("resume", "fail"):
            found.append(_RESUME if resolution == "resume" else _FAIL)
        else:
            found.append((resolution, *_WORDS[why, resolution]))
    return found
