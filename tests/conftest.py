"""What every test here may use; what cannot run on the database at hand is left out, not skipped."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from django.conf import settings

# How long an example takes says more about the machine's load than about the code.
hypothesis.settings.register_profile(
    "house", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("house")

pytest_plugins = ["approvals.testing"]
collect_ignore = ["listings"]  # authors' own code; tests/test_listings.py runs it


def pytest_configure(config: pytest.Config) -> None:
    from tests import emptying  # when the settings are there

    emptying.install()


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    other = "sqlite" if "postgresql" in settings.DATABASES["default"]["ENGINE"] else "postgres"
    left_out = [item for item in items if item.get_closest_marker(other)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
