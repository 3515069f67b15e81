"""What open pages hear of the real site: `manage.py up`, and sockets as browsers open them."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from websockets.exceptions import InvalidStatus

from approvals.models import Entry
from approvals.services import runs
from approvals.testing import people
from tests.commands.conftest import Manage, process, shared, shell
from tests.live.conftest import Page, Site, suspended
from tests.live.flows import anybodys, insiders

__all__ = ["process", "shell"]  # fixtures

SOON_SECONDS = 1.0
IDLE_SECONDS = 6.5  # redis-py 8 ends what was idle for five


def seconds_until_the_end_is_heard(page: Page, run: Any) -> float:
    """How long after its commit a page heard of a run's last entry."""
    while True:
        page.hear_of(f"run:{run.id}")
        at = time.time()
        ended = Entry.objects.filter(run=run.id, kind="run.complete").first()
        if ended is not None and at >= ended.at.timestamp():
            return at - ended.at.timestamp()


def test_what_a_worker_does_is_heard_within_a_second_and_by_nobody_else(site: Site) -> None:
    """Embedded, the worker is a thread of the server; beside PostgreSQL it is another process."""
    team = people()
    team.operator.groups.add(Group.objects.get_or_create(name="insiders")[0])
    run = suspended(insiders)
    inside, stranger = site.page(team.operator), site.page(team.outsider)
    assert inside.follow(f"run:{run.id}", "lists") == ["lists", f"run:{run.id}"]
    assert stranger.follow(f"run:{run.id}") == stranger.follow(f"run:{uuid4()}") == []
    runs.signal(run.id, "go", 2)
    assert seconds_until_the_end_is_heard(inside, run) < SOON_SECONDS
    with pytest.raises(TimeoutError):
        stranger.hear(seconds=0.3)
    runs.start(anybodys, 1)
    inside.hear_of("lists")


def test_a_socket_on_which_nothing_is_said_stays_open_and_keeps_nobody_from_ending(site: Site) -> None:
    """STACK, pitfall 1."""
    run = suspended(anybodys)
    page = site.page(people().outsider)
    page.follow(f"run:{run.id}")
    with pytest.raises(TimeoutError):
        page.hear_of("nothing", seconds=IDLE_SECONDS)
    runs.signal(run.id, "go", 2)
    page.hear_of(f"run:{run.id}")
    with pytest.raises(InvalidStatus, match="403"):
        site.page(people().outsider, origin="http://elsewhere.example")
    began = time.monotonic()
    site.process.terminate()
    site.process.wait(20)
    assert time.monotonic() - began < 10


@pytest.mark.postgres
def test_what_a_command_changes_before_it_ends_is_heard(site: Site, shell: Manage, tmp_path: Any) -> None:
    """No worker has anything to do for a run that is paused: only the command itself can tell of it."""
    run = suspended(anybodys)
    page = site.page(people().operator)
    page.follow(f"run:{run.id}")
    ended = shell("runs", "pause", str(run.id), "--as", "olaf", "--reason", "a look", env=shared(tmp_path))
    assert ended.code == 0, ended.err
    page.hear_of(f"run:{run.id}")
