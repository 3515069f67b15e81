"""Fixtures of this folder, beside `engine`."""

from tests.engine.processes import worker  # noqa: F401  # a fixture
