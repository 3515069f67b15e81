"""The workflows of this deployment. Each module registers its own."""

from durable_app.workflows import research

__all__ = ["research"]
