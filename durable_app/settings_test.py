"""The same settings for tests, linters and type checkers: a key, and a data directory of their own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from durable_app.environment import BASE_DIR

if "PYTEST_VERSION" not in os.environ:
    os.environ["DATA_DIR"] = str(BASE_DIR / ".mypy_cache" / "data")  # a type checker skips its exit handlers
elif "DURABLE_TEST_DIR" not in os.environ:  # a test's subprocess inherits it, and so sees the test's objects
    os.environ["DATA_DIR"] = os.environ["DURABLE_TEST_DIR"] = tempfile.mkdtemp(prefix="durable-test-")
    atexit.register(shutil.rmtree, os.environ["DATA_DIR"], ignore_errors=True)
os.environ["SECRET_KEY"] = "a-key-for-tests-alone-that-is-long-enough-for-the-deployment-check"  # noqa: S105

# Test processes that run beside each other share a Redis server, but no database in it.
if (beside := os.environ.get("PYTEST_XDIST_WORKER", "")) and "REDIS_URL" in os.environ:
    server, _, _ = os.environ["REDIS_URL"].partition("?db=")
    os.environ["REDIS_URL"] = f"{server}?db={int(beside.removeprefix('gw')) + 1}"

from durable_app.settings import *  # noqa: F403
