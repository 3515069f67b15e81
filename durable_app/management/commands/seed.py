"""Demo people and policies."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from durable_app.seed import seed


class Command(BaseCommand):
    """Makes the demo people and loads the policies that are missing."""

    help = "Makes the demo people and loads the deployment's policies; what is there stays as it is."

    def handle(self, *args: Any, **options: Any) -> None:
        people = ", ".join(each.name for each in seed())
        self.stdout.write(f"Seeded: {people}.")
