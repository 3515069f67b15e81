"""Who may say yes: policies as data, their evaluation as pure functions.

No clock, no database, no Django. The callers read the facts under their lock and hand them in.
Whatever cannot be decided is denied: a condition that fails, a value of the wrong kind, no match.
"""

from collections.abc import Mapping
from typing import Any, Final

from approvals.policy.conditions import ConditionError, condition_holds, condition_problems
from approvals.policy.evaluation import choose, eligibility, revalidate, tally
from approvals.policy.reading import body, duration_text, parse
from approvals.policy.values import (
    EXCLUDABLE,
    ROOTS,
    Eligibility,
    Facts,
    OnExpiry,
    Outcome,
    Person,
    Policy,
    Revalidation,
    Rule,
    Stage,
    Tally,
    Verdict,
    Vote,
)

ONE_REVIEWER: Final[Mapping[str, Any]] = {
    "slug": "one-reviewer",
    "rules": [{"stages": [{"name": "review", "needed": 1, "from": ["permission:approvals.review"]}]}],
    "exclude": ["requester", "starter"],
}

__all__ = [
    "EXCLUDABLE",
    "ONE_REVIEWER",
    "ROOTS",
    "ConditionError",
    "Eligibility",
    "Facts",
    "OnExpiry",
    "Outcome",
    "Person",
    "Policy",
    "Revalidation",
    "Rule",
    "Stage",
    "Tally",
    "Verdict",
    "Vote",
    "body",
    "choose",
    "condition_holds",
    "condition_problems",
    "duration_text",
    "eligibility",
    "parse",
    "revalidate",
    "tally",
]
