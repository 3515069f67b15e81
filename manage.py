#!/usr/bin/env python
"""Django's command line."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the command. What an operator must mend is told in one sentence; a stack would hide it."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durable_app.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import OperationalError

        from durable_app.environment import ensure_secret_key
    except ModuleNotFoundError as error:
        if error.name != "django":
            raise
        sys.exit("manage.py: this Python has no Django. Use .venv/bin/python manage.py, or make up.")
    try:
        if sys.argv[1:2] in (["up"], ["demo"], ["bench"]):  # these must work with nothing configured
            ensure_secret_key()
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"manage.py: {error}")
    except OperationalError as error:
        found = (str(error).splitlines() or ["no reason given"])[0]
        sys.exit(
            f"manage.py: the database cannot be used: {found}. Start it or mend DATABASE_URL; after an update, "
            "migrate. `manage.py doctor` says what is configured and what is reachable."
        )


if __name__ == "__main__":
    main()
