"""Tables. No transitions, no `save()` logic, no signals: only `journal` writes a status or an entry."""

from approvals.models.people import Approval, Audience, Decision, Policy, PolicyClaim, PolicyVersion
from approvals.models.runs import Clock, Entry, Run, Worker
from approvals.models.work import Effect, Message, Outbox, Reconciliation, Wait

__all__ = [
    "Approval",
    "Audience",
    "Clock",
    "Decision",
    "Effect",
    "Entry",
    "Message",
    "Outbox",
    "Policy",
    "PolicyClaim",
    "PolicyVersion",
    "Reconciliation",
    "Run",
    "Wait",
    "Worker",
]
