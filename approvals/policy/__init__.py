"""Who may say yes: policies as data, their evaluation as pure functions.

No clock, no database, no Django. The callers read the facts under their lock and hand them in.
Whatever cannot be decided is denied: a condition that fails, a value of the wrong kind, no match.
"""

from collections.abc import Mapping
from typing import Any, Final

from approvals.policy.choosing import choose, stages_text
from approvals.policy.conditions import ConditionError, condition_holds, condition_problems
from approvals.policy.counting import eligibility, quorum, says_something, tally
from approvals.policy.durations import duration_text
from approvals.policy.lint import check, understaffed
from approvals.policy.reading import KEYS, parse
from approvals.policy.revalidation import revalidate
from approvals.policy.values import (
    EXCLUDABLE,
    ROOTS,
    Eligibility,
    Facts,
    Match,
    Need,
    OnExpiry,
    Outcome,
    Parties,
    Person,
    Policy,
    Revalidation,
    Rule,
    Rung,
    Stage,
    Tally,
    Verdict,
    Vote,
)
from approvals.policy.writing import body

ONE_REVIEWER: Final[Mapping[str, Any]] = {
    "slug": "one-reviewer",
    "rules": [{"stages": [{"name": "review", "needed": 1, "from": ["permission:approvals.review"]}]}],
    "exclude": ["requester", "starter"],
}

__all__ = [
    "EXCLUDABLE",
    "KEYS",
    "ONE_REVIEWER",
    "ROOTS",
    "ConditionError",
    "Eligibility",
    "Facts",
    "Match",
    "Need",
    "OnExpiry",
    "Outcome",
    "Parties",
    "Person",
    "Policy",
    "Revalidation",
    "Rule",
    "Rung",
    "Stage",
    "Tally",
    "Verdict",
    "Vote",
    "body",
    "check",
    "choose",
    "condition_holds",
    "condition_problems",
    "duration_text",
    "eligibility",
    "parse",
    "quorum",
    "revalidate",
    "says_something",
    "stages_text",
    "tally",
    "understaffed",
]
