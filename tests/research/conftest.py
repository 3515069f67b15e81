"""An object store of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.files.storage import InMemoryStorage
from django.test import override_settings


class Pathless(InMemoryStorage):
    """As storages in a network are: no object is a file of this machine."""

    def path(self, name: str) -> str:
        raise NotImplementedError

    def _relative_path(self, name: str) -> str:
        return name or "."


@pytest.fixture(params=["disk", "pathless"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The default storage, on a disk and where nothing has a path."""
    disk = {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": tmp_path / "objects"},
    }
    pathless = {"BACKEND": "tests.research.conftest.Pathless"}
    default = disk if request.param == "disk" else pathless
    with override_settings(STORAGES={**settings.STORAGES, "default": default}):
        yield request.param
