#!/usr/bin/env python
"""Django's command line."""

from __future__ import annotations

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

from durable_app.environment import ensure_secret_key


def main() -> None:
    """Runs the command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durable_app.settings")
    if sys.argv[1:2] in (["up"], ["demo"], ["bench"]):  # the commands that must work with nothing configured
        ensure_secret_key()
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"manage.py: {error}")  # the sentence is for an operator; the stack would hide it


if __name__ == "__main__":
    main()
