"""The main job from start to end, headless, with a worker killed on the way."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durable_app.demo import DemoFailed, run_elsewhere, run_here


class Command(BaseCommand):
    """Runs research-and-publish, kills its worker, approves, and counts what was done twice."""

    help = (
        "Runs the main job headless; kills its worker at the worst instant; exit 0 if nothing was repeated."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        where = "use this installation's data instead of a temporary directory (so with DATABASE_URL, always)"
        parser.add_argument("--here", action="store_true", help=where)

    def handle(self, *args: Any, **options: Any) -> None:
        if not (options["here"] or os.environ.get("DATABASE_URL")):
            sys.exit(run_elsewhere(self.stdout.write))
        try:
            run_here(self.stdout)
        except DemoFailed as failure:
            raise CommandError(str(failure)) from failure
        except KeyboardInterrupt:
            raise CommandError("Interrupted; the workers were ended.", returncode=130) from None
