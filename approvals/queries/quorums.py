"""How far an approval has come, and who may decide it."""

from __future__ import annotations

from typing import Any

from approvals import facts, policy
from approvals.models import Approval
from approvals.states import WaitStatus


def stages_json(approval: Approval, far: policy.Tally) -> dict[str, Any]:
    """Who is asked. `stage`: the one that is open; the people of a later one are asked when it is met."""
    rule = facts.rule(approval)
    is_open = approval.wait.status == WaitStatus.OPEN and far.stage is not None
    return {
        "stage": rule.stages[far.stage or 0].name if is_open else None,
        "stages": [
            {
                "name": stage.name,
                "needs": [
                    {"needed": need.needed, "got": got, "from": list(need.sources)}
                    for need, got in zip(stage.needs, counts, strict=True)
                ],
            }
            for stage, counts in zip(rule.stages, far.progress, strict=True)
        ],
        "reject_after": rule.reject_after,
        "comment_required": sorted(rule.comment_required),
    }


def quorum(approval: Approval) -> policy.Tally:
    """How far the decisions have come. Select policy."""
    return facts.quorum(approval)


def may_decide(approval: Approval, actor: Any) -> policy.Eligibility:
    """Whether a person may decide as things stand; the service asks again under its lock. Select wait__run."""
    person = facts.person(actor)
    return policy.Eligibility(False, None, "has no account") if person is None else eligible(approval, person)


def eligible(approval: Approval, person: policy.Person) -> policy.Eligibility:
    """The same for a person who is known as they are now."""
    rules, stages = facts.read(approval.policy), facts.rule(approval).stages
    parties, is_open = facts.parties(approval.wait.run), facts.quorum(approval).stage
    return policy.eligibility(rules, stages, person, parties, upto=is_open)
