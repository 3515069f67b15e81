"""The crash matrix on the database at hand: `python -m tests.crash --help`."""

from __future__ import annotations

import importlib
import os

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.crash.settings"
django.setup()
raise SystemExit(importlib.import_module("tests.crash.program").main())
