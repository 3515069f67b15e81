"""What the engine tells open pages: after the commit, seldom, and never so that anything waits for it."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from approvals import clock, outbox
from approvals.models import Worker
from approvals.outbox import pages
from approvals.services import runs
from approvals.testing import drive, people, wait_for
from approvals.transitions import Held, NewEntry, claim, record
from approvals.transitions import runs as transitions
from approvals.workflows import registry
from durable_app.environment import BASE_DIR
from tests.live.flows import anybodys
from tests.live.layers import Failing, Hanging, Noting, configured

pytestmark = pytest.mark.usefixtures("engine", "teller")


@pytest.fixture
def told(settings: Any) -> list[tuple[float, str, Any]]:
    settings.CHANNEL_LAYERS = configured(Noting)
    Noting.told.clear()
    return Noting.told


def groups(told: list[tuple[float, str, Any]]) -> list[str]:
    return [group for _, group, _ in told]


def advanced() -> Any:
    """A run that was started, signalled and completed."""
    run = runs.start(anybodys, 1)
    drive()
    runs.signal(run.id, "go", 2)
    drive()
    return runs.get(run.id)


def test_every_change_of_a_run_is_told_without_saying_what_it_is(told: list[Any]) -> None:
    run = advanced()
    wait_for(lambda: f"run.{run.id}" in groups(told) and "lists" in groups(told))
    for _, group, message in told:
        assert message == {"type": "changed", "changed": [group.replace(".", ":")]}


@pytest.mark.parametrize("event", ["start", "claim", "entry", "pause", "signal", "progress"])
def test_each_writer_tells(event: str, told: list[Any], teller: pages.Teller) -> None:
    """Whoever writes a run, an entry, a wait or an effect; lists do not show what a single entry says."""
    run = runs.start(anybodys, 1)
    if event in ("pause", "signal"):
        drive()
    if event in ("entry", "progress"):
        (held,) = claimed()
    if event != "start":
        settled(teller)
        told.clear()
    if event == "claim":
        claimed()
    elif event == "entry":
        record(held, [NewEntry("now", 1)], position=1)
    elif event == "pause":
        runs.pause(run.id, actor=people().operator, reason="a look")
    elif event == "signal":
        runs.signal(run.id, "go", 2)
    elif event == "progress":
        transitions.show_progress(held, '{"done": 1}')
    settled(teller)
    assert f"run.{run.id}" in groups(told)
    assert ("lists" in groups(told)) is (event not in ("entry", "progress"))


def claimed() -> list[Held]:
    """What a worker holds that claims everything."""
    now = clock.now()
    worker = Worker.objects.create(name="claims", started_at=now, lease_until=now + timedelta(hours=1))
    return [Held(run.pk, worker.pk, run.fence) for run in claim(worker, registry.known(), 10)]


def settled(teller: pages.Teller) -> None:
    """Nothing is left to tell."""
    assert teller.wait_until_told(10)


def test_what_was_rolled_back_is_not_told(told: list[Any], teller: pages.Teller) -> None:
    with transaction.atomic():
        runs.start(anybodys, 1)
        transaction.set_rollback(True)
    assert not teller.is_running
    with transaction.atomic():
        run = runs.start(anybodys, 1)
        assert not teller.is_running
    settled(teller)
    assert f"run.{run.id}" in groups(told)


def test_many_changes_become_few_messages(told: list[Any], teller: pages.Teller) -> None:
    run = clock.new_id()
    began = time.monotonic()
    changes = 0
    while time.monotonic() - began < 3 * pages.SELDOM_SECONDS:
        outbox.changed(run)
        changes += 1
    assert changes > 1000
    settled(teller)
    took = time.monotonic() - began
    assert groups(told).count(f"run.{run}") <= took / pages.SEND_SECONDS + 1
    lists = [at for at, group, _ in told if group == "lists"]
    assert 2 <= len(lists) <= took / pages.SELDOM_SECONDS + 1


def test_of_many_runs_pages_are_told_in_one_message(told: list[Any], teller: pages.Teller) -> None:
    """A busy engine's runs: a message for each would take the processor from them."""
    ids = [clock.new_id() for _ in range(300)]
    with transaction.atomic():
        for run in ids:
            outbox.changed(run)
    settled(teller)
    assert len(told) <= 20
    heard = {topic for _, _, message in told for topic in message["changed"]}
    assert heard == {*(f"run:{run}" for run in ids), "lists"}


def test_a_change_costs_its_caller_microseconds(told: list[Any]) -> None:
    ids = [clock.new_id() for _ in range(20_000)]
    began = time.process_time()
    for run in ids:
        outbox.changed(run)
    assert (time.process_time() - began) / len(ids) < 50e-6


def test_nothing_is_started_where_nobody_can_hear(settings: Any, teller: pages.Teller) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    assert advanced().status == "completed"
    assert not teller.is_running
    del settings.CHANNEL_LAYERS
    outbox.changed(clock.new_id())
    assert not teller.is_running


def test_a_layer_that_is_away_harms_nothing_and_is_complained_of_once(
    settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, teller: pages.Teller
) -> None:
    monkeypatch.setattr(pages, "_AWAY_SECONDS", 0.0)
    monkeypatch.setattr(Failing, "is_mended", False)
    monkeypatch.setattr(Failing, "calls", 0)
    settings.CHANNEL_LAYERS = configured(Failing)
    with caplog.at_level(logging.WARNING, "approvals.outbox.pages"):
        assert advanced().status == "completed"
        settled(teller)
        outbox.changed(clock.new_id())
        settled(teller)
    assert Failing.calls >= 2
    assert [r.message for r in caplog.records if "open pages" in r.message] == [
        "open pages are not told of changes for now, they look by themselves: ConnectionError: the layer is away"
    ]
    monkeypatch.setattr(Failing, "is_mended", True)
    outbox.changed(clock.new_id())
    settled(teller)
    assert not teller.is_away


def test_a_layer_that_is_away_is_left_alone_for_a_while(
    settings: Any, teller: pages.Teller, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Failing, "is_mended", False)
    monkeypatch.setattr(Failing, "calls", 0)
    settings.CHANNEL_LAYERS = configured(Failing)
    for _ in range(3):
        outbox.changed(clock.new_id())
        settled(teller)
    assert Failing.calls == 1


def test_a_layer_that_hangs_holds_nobody_up(settings: Any, monkeypatch: Any, teller: pages.Teller) -> None:
    monkeypatch.setattr(pages, "_PATIENCE_SECONDS", 0.2)
    settings.CHANNEL_LAYERS = configured(Hanging)
    Hanging.reached.clear()
    assert advanced().status == "completed"
    assert Hanging.reached.wait(10)
    wait_for(lambda: teller.is_away)


def test_a_redis_that_is_not_there(settings: Any, monkeypatch: Any, teller: pages.Teller) -> None:
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [{"address": "unix:///nowhere.sock", "socket_timeout": None}]},
        }
    }
    assert advanced().status == "completed"
    wait_for(lambda: teller.is_away)


FORK = """
import os, signal, sys, django
django.setup()
from approvals import clock, outbox
from approvals.outbox import pages
outbox.changed(clock.new_id())
assert pages._teller.is_running
with pages._teller._lock:
    child = os.fork()
    if not child:  # as if another thread had held it
        signal.alarm(30)
        outbox.changed(clock.new_id())
        os._exit(0 if pages._teller.is_running and pages._teller.wait_until_told() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_tells_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's thread does not exist in it, and a lock that it held would be held for ever."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.live.settings_noting")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    ended = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
