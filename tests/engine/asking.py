"""Policies, and workflows that ask people under them; the tests of approvals and of their one door use these."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from approvals import Context
from approvals.errors import ApprovalExpired, ApprovalRejected, ChangesRequested, PolicyDenied
from approvals.services import policies
from tests.engine.make import flow

TWO = {
    "slug": "two",
    "rules": [{"stages": [{"needed": 2, "from": ["group:reviewers"]}]}],
    "exclude": ["requester"],
}
DUE = {
    "slug": "due",
    "rules": [{"stages": [{"needed": 1, "from": ["group:reviewers"]}]}],
    "respond_within": "1h",
}


def load() -> None:
    """The policies `two`, `due`, and `or-cancel`, whose expiry cancels the run."""
    policies.load(TWO)
    policies.load(DUE)
    policies.load({**DUE, "slug": "or-cancel", "on_expiry": "cancel"})


class Order(BaseModel):
    sku: str
    quantity: int = 1


@flow
def ask(ctx: Context, policy: str) -> list[Any]:
    told = ctx.approval("ask", policy=policy, action=Order(sku="A"), title="Order A", summary="Because")
    ctx.step("after", len, "")
    return [
        told.outcome,
        told.approved,
        bool(told),
        told.action.sku,
        told.comment,
        [d.reviewer for d in told.decisions],
    ]


@flow
def require(ctx: Context, policy: str) -> str:
    try:
        ctx.approval("ask", policy=policy, action=Order(sku="B"), title="t").require()
    except (ApprovalRejected, ApprovalExpired, ChangesRequested, PolicyDenied) as error:
        ctx.sleep("a while", timedelta(seconds=5))
        return f"{type(error).__name__} {getattr(error, 'comment', '')}".strip()
    return "approved"
