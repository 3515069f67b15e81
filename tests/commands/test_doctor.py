"""`manage.py doctor`, and what machines ask: /healthz and /readyz."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from approvals import queries
from approvals.clock import now
from approvals.engine.leases import Lease
from approvals.engine.loop import Worker
from approvals.models import Worker as Row
from approvals.testing import clock, wait_for
from durable_app import health
from tests.commands.conftest import Manage


def levels(manage: Manage) -> dict[str, str]:
    return {c["name"]: c["level"] for c in manage("doctor", "--json").document["checks"]}


def test_an_installation_in_order(manage: Manage) -> None:
    lease = Lease()
    try:
        found = manage("doctor", "--json")
        assert found.code == 0 and found.document["ok"] is True
        assert set(levels(manage).values()) == {"ok"}
        text = manage("doctor")
        assert text.code == 0 and "0 broken, 0 unsafe." in text.out and "commands-double v1" in text.out
    finally:
        lease.release()


def test_what_is_unsafe(manage: Manage, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DEBUG, settings.SECRET_KEY = True, "insecure-development-key"
    monkeypatch.setenv("APPROVALS_ALLOW_FAULTS", "1")
    clock.shift(timedelta(hours=1))
    unsafe = {name for name, level in levels(manage).items() if level == "unsafe"}
    assert unsafe == {"DEBUG", "SECRET_KEY", "faults", "clock", "workers"}
    assert manage("doctor").code == 0


def test_what_is_broken(
    manage: Manage, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    settings.DATA_DIR = tmp_path / "file"
    settings.DATA_DIR.touch()
    monkeypatch.setattr(queries, "pending_migrations", lambda: ["approvals.0009_x"])
    found = manage("doctor", "--json")
    assert found.code == 1 and found.document["ok"] is False
    broken = {c["name"]: c for c in found.document["checks"] if c["level"] == "broken"}
    assert broken.keys() == {"migrations", "data directory"}
    assert broken["migrations"]["next"].endswith("manage.py migrate")


def test_a_folder_that_is_not_there_yet(manage: Manage, settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path / "not" / "yet"
    checks = {c["name"]: c for c in manage("doctor", "--json").document["checks"]}
    assert (
        checks["data directory"]["level"] == "ok"
        and "does not exist yet" in checks["data directory"]["found"]
    )
    assert not settings.DATA_DIR.exists()


@pytest.mark.parametrize("key", ["k3" * 24, "abcd" * 20])
def test_a_weak_key(manage: Manage, settings: Any, key: str) -> None:
    settings.SECRET_KEY = key
    assert levels(manage)["SECRET_KEY"] == "unsafe"


def test_no_password_is_shown(manage: Manage, settings: Any) -> None:
    settings.REDIS_URL = "redis://user:hush@redis.example.org:6379/0"
    shown = manage("doctor", "--json")
    assert "hush" not in shown.out and "redis.example.org" in shown.out


def test_redis_that_is_away(manage: Manage, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import django_rq
    from redis import Redis

    settings.RQ_QUEUES = {"default": {}}
    monkeypatch.setattr(django_rq, "get_connection", lambda name: Redis(port=1))
    found = manage("doctor", "--json")
    assert found.code == 1 and levels(manage)["redis"] == "broken"


@pytest.fixture
def _unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_is_migrated", False)


@pytest.mark.usefixtures("engine", "_unasked")
def test_ready_with_a_worker_and_not_without(client: Client) -> None:
    without = client.get("/readyz")
    assert without.status_code == 503
    assert without.json() == {
        "ready": False,
        "checks": {"database": True, "migrations": True, "worker": False, "sweeper": False},
        "worker_silent_seconds": None,
        "sweeper_silent_seconds": None,
    }
    worker = Worker(threads=1)
    worker.start()
    try:
        wait_for(lambda: Row.objects.get().swept_at)
        ready = client.get("/readyz")
    finally:
        worker.stop()
    assert ready.status_code == 200 and ready.json()["ready"] is True
    assert 0 <= ready.json()["worker_silent_seconds"] < 15
    assert 0 <= ready.json()["sweeper_silent_seconds"] < 15
    assert "no-store" in ready["Cache-Control"]
    assert client.post("/readyz").status_code == 405


@pytest.mark.usefixtures("engine", "_unasked")
def test_not_ready_when_the_sweeper_hangs(client: Client) -> None:
    """A worker lives and renews its lease, and nobody sweeps."""
    lease = Lease()
    Row.objects.update(swept_at=now() - timedelta(seconds=31))
    try:
        found = client.get("/readyz")
    finally:
        lease.release()
    assert found.status_code == 503
    assert found.json()["checks"] == {"database": True, "migrations": True, "worker": True, "sweeper": False}
    assert 31 <= found.json()["sweeper_silent_seconds"] < 60


@pytest.mark.usefixtures("engine", "_unasked")
def test_not_ready_and_not_a_word_too_many(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "pending_migrations", lambda: ["approvals.0009_secret"])
    unmigrated = client.get("/readyz")
    assert unmigrated.status_code == 503 and b"secret" not in unmigrated.content

    def away() -> list[Any]:
        raise OperationalError("password authentication failed for user secret")

    monkeypatch.setattr(queries, "pending_migrations", away)
    broken = client.get("/readyz")
    assert broken.status_code == 503 and b"secret" not in broken.content
