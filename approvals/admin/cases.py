"""A case in words: what an operator should know of it, and may say of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from approvals.queries import MISSING
from approvals.services.reconciliation import RESOLUTIONS

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
