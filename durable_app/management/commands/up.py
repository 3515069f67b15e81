"""Everything in one: database, demo people, policies, web and worker."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from durable_app.up import up


class Command(BaseCommand):
    """Brings everything up on this machine and serves until Ctrl-C."""

    help = "Migrates, seeds demo people and policies, and serves web and worker until Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8000")))

    def handle(self, *args: Any, **options: Any) -> None:
        with suppress(KeyboardInterrupt):
            up(options["host"], options["port"], self.stdout)
