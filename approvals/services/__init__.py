"""What a person or a system may ask for: authorise the actor, one transaction, call transitions."""

from . import decisions, policies, reconciliation, runs

__all__ = ["decisions", "policies", "reconciliation", "runs"]
