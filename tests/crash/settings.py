"""Settings of the crash matrix: a deployment whose peers are given little time, so that a cell ends in seconds."""

from __future__ import annotations

import os

os.environ["WORKFLOW_MODULES"] = "tests.crash.scenes"
os.environ["LOG_LEVEL"] = "WARNING"

from durable_app.settings_test import *  # noqa: F403
from durable_app.settings_test import APPROVALS_LIMITS as GIVEN
from durable_app.settings_test import DATABASES

APPROVALS_LIMITS = GIVEN | {"effect_grace_seconds": 1}

_options = DATABASES["default"]["OPTIONS"]
if "init_command" in _options:
    # A killed process loses nothing that it gave to the operating system: nobody need wait for the disk.
    _options["init_command"] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"
else:
    # What is stopped in the middle of a transaction lets go of its rows while the cell waits.
    _options["options"] = _options["options"].replace("timeout=60s", "timeout=1500ms")
