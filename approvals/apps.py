"""The approvals application."""

from __future__ import annotations

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Finds the workflows of this deployment once every model is loaded."""

    name = "approvals"

    def ready(self) -> None:
        from approvals.workflows import registry

        registry.autodiscover()
