"""A deployment that asks an operator soon, so that a test can wait for it."""

from durable_app.settings import *  # noqa: F403

APPROVALS_LIMITS = {"body_bytes": 1_000_000, "turns_lost": 3}
