"""For people who test their workflows (CONTRACT section 2), and a pytest plugin with the fixture `engine`.

pytest_plugins = ["approvals.testing"]
pytestmark = pytest.mark.usefixtures("engine")
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from unittest import mock
from uuid import UUID

import pytest

from approvals.errors import Crashed

Mode = Literal["apply", "refuse", "lose", "late", "deduplicate"]


class _Clock:
    """Database time, which tests move for every process."""

    def shift(self, delta: timedelta) -> None:
        """Moves it by `delta` from where it is now."""
        from django.db.models import F

        from approvals.models import Clock

        Clock.objects.get_or_create(id=1)
        Clock.objects.filter(id=1).update(shift=F("shift") + delta)


clock = _Clock()


def drive() -> int:
    """Runs everything runnable in this process until nothing is; how many turns that took.

    With `crash_at` it ends there as SIGKILL would; the next `drive()` is a new worker.
    """
    from approvals.engine.loop import Worker

    try:
        return Worker(threads=1).run_until_idle()
    except Crashed:
        return 0


def crash_at(point: str) -> Any:
    """A context manager: `drive()` ends at this passage of a crash point ("performed", "performed:2")."""
    from approvals import faults

    return faults.crash_at(point)


# --- people ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class People:
    """A small organisation: who asks, two who may decide, who operates, and who has no business here."""

    requester: Any
    reviewers: tuple[Any, Any]
    operator: Any
    outsider: Any


def people(group: str = "reviewers") -> People:
    """The same people each time; the two reviewers are in `group` and may review."""
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Group, Permission

    def person(name: str, *permissions: str) -> Any:
        user, _ = get_user_model()._default_manager.get_or_create(
            username=name, defaults={"email": f"{name}@example.org"}
        )
        user.user_permissions.add(
            *Permission.objects.filter(content_type__app_label="approvals", codename__in=permissions)
        )
        return user

    reviewers = tuple(person(f"{name}-{group}", "review") for name in ("vera", "sam"))
    for reviewer in reviewers:
        reviewer.groups.add(Group.objects.get_or_create(name=group)[0])
    return People(
        requester=person("rita", "start"),
        reviewers=(reviewers[0], reviewers[1]),
        operator=person("olaf", "operate", "change_policy"),
        outsider=person("otto"),
    )


@dataclass(frozen=True)
class Pending:
    """An open approval, as a reviewer would see it."""

    id: UUID
    name: str
    title: str
    digest: str
    action: Any


def pending(run: Any) -> list[Pending]:
    """The open approvals of a run, in the order of their positions."""
    from approvals.models import Approval

    rows = Approval.objects.filter(wait__run=run.id, wait__status="open").select_related("wait")
    return [
        Pending(a.wait.pk, a.wait.name, a.title, a.digest, json.loads(a.action))
        for a in rows.order_by("wait__position", "wait__ordinal")
    ]


def decide(run: Any, actor: Any, outcome: str, **more: Any) -> None:
    """Decides the one open approval of a run. Raises AssertionError if there is not exactly one."""
    from approvals.services import decisions

    waiting = pending(run)
    assert len(waiting) == 1, (
        f"needed one open approval, found {[w.name for w in waiting]}; use decisions.decide(wait.id, …)"
    )
    decisions.decide(waiting[0].id, actor=actor, outcome=outcome, **{"digest": waiting[0].digest, **more})


# --- the outside world -----------------------------------------------------------------------------


@dataclass
class Peer:
    """A ledger in place of the real peer: what was applied, under which key."""

    mode: Mode
    deduplicates: bool = False
    requests: list[Any] = field(default_factory=list)
    """What was applied, in order; a repeat under the same key counts again unless the peer deduplicates."""
    keys: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """The keys of every call that arrived."""
    waiting: list[tuple[Any, str]] = field(default_factory=list)
    """Calls whose work has not landed yet (mode "late"); `land()` lets it."""

    def apply(self, request: Any, key: str) -> None:
        """The world changes."""
        if self.deduplicates and key in self.keys:
            return
        self.requests.append(request)
        self.keys.append(key)

    def land(self) -> None:
        """What was under way arrives now."""
        for request, key in self.waiting:
            self.apply(request, key)
        self.waiting.clear()


_peers: list[tuple[type, Peer]] = []


@contextmanager
def peer(effect: type, mode: Mode = "apply") -> Iterator[Peer]:
    """Replaces an effect's peer by a ledger, counted by `assert_invariants`.

    apply: works. refuse: says no. lose: acts, and the answer is lost. late: acts when `land()` is
    called, and the caller hears nothing. deduplicate: applies each key once, and the effect says so; as does
    the ledger of an effect that says so by itself.
    """
    from approvals import MATCH, MISSING, Receipt, Refused

    ledger = Peer(mode, deduplicates=mode == "deduplicate" or effect.deduplicates)  # type: ignore[attr-defined]

    def perform(self: Any, request: Any, key: str) -> Any:
        ledger.calls.append(key)
        if ledger.mode == "refuse":
            raise Refused("the peer refused")
        if ledger.mode == "late":
            ledger.waiting.append((request, key))
            raise TimeoutError("no answer")
        ledger.apply(request, key)
        if ledger.mode == "lose":
            raise ConnectionError("the answer was lost")
        return Receipt(f"peer:{key}")

    def lookup(self: Any, request: Any, key: str) -> Any:
        return Receipt(f"peer:{key}") if key in ledger.keys else None

    def verify(self: Any, receipt: Any) -> Any:
        return MATCH if receipt.key in ledger.keys else MISSING

    changes: dict[str, Any] = {"perform": perform}
    for name, method in (("lookup", lookup), ("verify", verify)):
        if effect.offers(name):  # type: ignore[attr-defined]
            changes[name] = method
    if mode == "deduplicate":
        changes["deduplicates"] = True
    with mock.patch.multiple(effect, **changes):
        _peers.append((effect, ledger))
        yield ledger


# --- invariants ------------------------------------------------------------------------------------


def assert_invariants() -> None:
    """The invariants of ARCHITECTURE.md that can be read from the database and the ledgers (I1–I13)."""
    from approvals.testing.invariants import problems

    found = problems(_peers)
    assert not found, "\n".join(found)


# --- pytest ----------------------------------------------------------------------------------------


@pytest.fixture
def engine(transactional_db: None, settings: Any, tmp_path: Any) -> Iterator[Callable[[], int]]:
    """An empty database with real commits, a data folder of its own, and the loaded workflows' policies.

    A workflow module may carry its policy as `POLICY` (YAML text or a mapping), next to the workflow.
    """
    settings.DATA_DIR = tmp_path
    settings.MEDIA_ROOT = tmp_path / "objects"
    _peers.clear()
    load_policies()
    yield drive
    _peers.clear()


def load_policies() -> None:
    """Loads every `POLICY` that a module with a registered workflow carries."""
    from approvals.services import policies
    from approvals.workflows import registry

    modules = {w.__module__ for w in registry.all_current()}
    for name in sorted(modules):
        carried = getattr(sys.modules.get(name), "POLICY", None)
        if carried is not None:
            policies.load(carried)


def wait_for(what: Callable[[], Any], *, seconds: float = 60) -> Any:
    """Asks until the answer is true, for tests with real processes. Raises TimeoutError."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with suppress(ConnectionError):
            if answer := what():
                return answer
        time.sleep(0.02)
    raise TimeoutError(f"not within {seconds} s: {getattr(what, '__name__', what)}")
