"""Settings of the crash matrix: a deployment in which no lease runs out by itself, however slow the machine is."""

from __future__ import annotations

import os

os.environ["WORKFLOW_MODULES"] = "tests.crash.scenes"
os.environ["LOG_LEVEL"] = "WARNING"
os.environ["LEASE_SECONDS"] = "3600"

from durable_app.settings_test import *  # noqa: F403
from durable_app.settings_test import DATABASES

_options = DATABASES["default"]["OPTIONS"]
if "init_command" in _options:
    # A killed process loses nothing that it gave to the operating system: nobody need wait for the disk.
    _options["init_command"] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"
