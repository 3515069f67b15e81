"""Everything that pages, commands and the API read. Changes nothing.

`documents` has the shapes of CONTRACT section 4; `access` says who sees what; the others serve the pages.
"""

from approvals.queries.documents import (
    MISSING,
    About,
    approval,
    approvals,
    case,
    cases,
    effect_json,
    pending_migrations,
    policies,
    policy_version,
    run,
    runs,
    sentence,
    sweep_age_seconds,
    workers,
)
from approvals.queries.quorums import may_decide, quorum

__all__ = [
    "MISSING",
    "About",
    "approval",
    "approvals",
    "case",
    "cases",
    "effect_json",
    "may_decide",
    "pending_migrations",
    "policies",
    "policy_version",
    "quorum",
    "run",
    "runs",
    "sentence",
    "sweep_age_seconds",
    "workers",
]
