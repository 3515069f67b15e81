"""Who sees what, and who may start what: the same answer by query, by service and over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from approvals.errors import ApprovalsError, PermissionRefused
from approvals.models import Approval, Audience, Run, Wait
from approvals.queries import access
from approvals.services import decisions, policies, runs
from approvals.testing import decide, drive, pending
from approvals.workflows import registry
from tests.web import doors
from tests.web.doors import EVERYBODY, account


@dataclass(frozen=True)
class May:
    """What somebody may, of runs that the requester started: one of each workflow in `doors`."""

    sees: str = "open"
    """The runs and their approvals, by workflow."""
    lists: str = "open"
    """The workflows."""
    starts: str = ""
    waits: str = ""
    """The approvals that wait for them."""
    cases: bool = False
    """Whether reconciliations are shown to them."""


ALL = "guarded closed open"
MATRIX = {
    "stranger": May(),
    "requester": May(sees=ALL, starts="open"),
    "asked": May(sees=ALL, waits="guarded closed"),
    "cfo": May(sees=ALL, waits="guarded closed"),
    "holder": May(sees=ALL, waits="guarded closed"),
    "not asked": May(waits="open"),
    "reader": May(sees=ALL, lists=ALL),
    "starter": May(sees="guarded open", lists="guarded open", starts="guarded"),
    "staff": May(starts="open"),
    "operator": May(sees=ALL, lists=ALL, cases=True),
    "superuser": May(sees=ALL, lists=ALL, starts=ALL, cases=True),
}
CODE = {"guarded": doors.guarded, "closed": doors.closed, "open": doors.open_to_all}


@pytest.fixture
def world(engine: Any) -> dict[str, Any]:
    """A suspended run of each workflow, by its last word."""
    policies.load(doors.asking(1), actor=None)
    started = {word: runs.start(code, word, requester=account("requester")) for word, code in CODE.items()}
    drive()
    return started


def those(holds: Callable[[str], Any]) -> str:
    return " ".join(word for word in CODE if holds(word))


def browser(name: str) -> Client:
    client = Client()
    client.force_login(account(name))
    return client


def test_what_queries_tell(world: dict[str, Any]) -> None:
    def may(name: str) -> May:
        viewer = access.viewer(account(name))
        runs_seen, approvals_seen = access.runs(viewer), access.approvals(viewer)
        listed, waiting, counts = access.workflows(viewer), access.waiting(viewer), access.counts(viewer)
        sees = those(lambda word: runs_seen.filter(pk=world[word].id).exists())
        assert sees == those(lambda word: approvals_seen.filter(wait__run=world[word].id).exists())
        found = May(
            sees=sees,
            lists=those(lambda word: CODE[word] in listed),
            starts=those(lambda word: access.may_start(viewer, CODE[word])),
            waits=those(lambda word: waiting.filter(wait__run=world[word].id).exists()),
            cases=counts.cases is not None,
        )
        assert counts.waiting == len(found.waits.split())
        return found

    assert {name: may(name) for name in EVERYBODY} == MATRIX


def test_whom_the_service_lets_start(world: dict[str, Any]) -> None:
    def may(name: str) -> str:
        before, told = Run.objects.count(), {}
        for word, code in CODE.items():
            try:
                told[word] = runs.start_as(account(name), code.name, "x").requester
            except ApprovalsError as refusal:
                told[word] = refusal.code
        refusals = {
            word: "permission_refused" if word in MATRIX[name].lists.split() else "not_found" for word in CODE
        }
        started = those(lambda word: told[word] == name)
        assert told == {**refusals, **dict.fromkeys(started.split(), name)}
        assert Run.objects.count() == before + len(started.split())
        return started

    assert {name: may(name) for name in EVERYBODY} == {name: row.starts for name, row in MATRIX.items()}


def test_what_pages_show(world: dict[str, Any]) -> None:
    asked = {word: pending(run)[0].id for word, run in world.items()}

    def may(name: str) -> May:
        client = browser(name)
        texts = {at: client.get(at).content.decode() for at in ("/", "/?show=all", "/runs/", "/workflows/")}

        def is_seen(word: str) -> bool:
            pages = (f"/runs/{world[word].id}/", f"/approvals/{asked[word]}/")
            codes = {ask(page).status_code for page in pages for ask in (client.get, client.head)}
            assert codes in ({200}, {404})
            assert (pages[0] in texts["/runs/"], pages[1] in texts["/?show=all"]) == (codes == {200},) * 2
            return codes == {200}

        def is_startable(word: str) -> bool:
            code = client.get(f"/workflows/doors-{word}/start/").status_code
            listed = word in MATRIX[name].lists.split()
            assert code in ((200, 403) if listed else (404,))
            return code == 200

        has_cases = client.get("/reconciliations/").status_code == 200
        assert has_cases == ('href="/reconciliations/"' in texts["/"])
        found = May(
            sees=those(is_seen),
            lists=those(lambda word: f"doors-{word}" in texts["/workflows/"]),
            starts=those(is_startable),
            waits=those(lambda word: str(asked[word]) in texts["/"]),
            cases=has_cases,
        )
        waiting = len(found.waits.split())
        assert (f'>{waiting}<span class="unseen"> waiting for you' in texts["/"]) == bool(waiting)
        return found

    assert {name: may(name) for name in EVERYBODY} == MATRIX


def test_a_form_that_was_not_given_starts_nothing(world: dict[str, Any]) -> None:
    for name, may in MATRIX.items():
        client = browser(name)
        for word in CODE.keys() - set(may.starts.split()):
            before = Run.objects.count()
            answer = client.post(f"/workflows/doors-{word}/start/", {"value": "x", "input": "x"})
            assert answer.status_code == (403 if word in may.lists.split() else 404)
            assert Run.objects.count() == before


def test_a_page_that_is_not_theirs_reads_as_one_that_is_not_there(world: dict[str, Any]) -> None:
    client = browser("stranger")
    absent = "00000000-0000-7000-8000-000000000000"
    hidden = pending(world["guarded"])[0].id
    for page, one in (("runs", world["guarded"].id), ("approvals", hidden)):
        there, not_there = client.get(f"/{page}/{one}/"), client.get(f"/{page}/{absent}/")
        assert there.content.decode().replace(str(one), absent) == not_there.content.decode()
        assert client.post(f"/{page}/{one}/", {"outcome": "approved"}).status_code == 404


def test_a_disabled_account_sees_and_starts_nothing(world: dict[str, Any]) -> None:
    for name in MATRIX:
        client, user = browser(name), account(name)
        user.is_active = False
        user.save()
        for address in ("/", "/runs/", f"/runs/{world['open'].id}/", "/workflows/doors-open/start/"):
            assert client.get(address).status_code == 302
        with pytest.raises(PermissionRefused):
            runs.start_as(user, "doors-open", "x")
        assert access.viewer(user).person.is_active is False
    user.delete()
    with pytest.raises(PermissionRefused):
        runs.start_as(user, "doors-open", "x")


def test_what_one_has_said_waits_for_one_no_more_and_stays_to_be_seen(world: dict[str, Any]) -> None:
    decide(world["guarded"], account("cfo"), "approved")
    viewer = access.viewer(account("cfo"))
    assert [a.title for a in access.waiting(viewer)] == ["doors: closed"]
    assert access.runs(viewer).filter(pk=world["guarded"].id).exists()
    assert access.approvals(viewer).filter(wait__run=world["guarded"].id).exists()


def test_a_decision_that_was_taken_back_waits_again(world: dict[str, Any]) -> None:
    policies.load(doors.asking(2), actor=None)
    run = runs.start(doors.guarded, "two", requester=account("requester"))
    drive()
    cfo, wait = account("cfo"), pending(run)[0]
    waiting = access.waiting(access.viewer(cfo)).filter(pk=wait.id)
    assert waiting.exists()
    decisions.decide(wait.id, actor=cfo, outcome="approved", digest=wait.digest)
    assert not waiting.exists()
    decisions.withdraw(wait.id, actor=cfo)
    assert waiting.exists()


def test_a_requester_is_not_asked_about_their_own_run(world: dict[str, Any]) -> None:
    run = runs.start(doors.guarded, "own", requester=account("cfo"))
    drive()
    viewer = access.viewer(account("cfo"))
    assert not access.waiting(viewer).filter(wait__run=run.id).exists()
    policies.load(doors.asking(1, exclude=[]), actor=None)
    run = runs.start(doors.guarded, "own", requester=account("cfo"))
    drive()
    assert access.waiting(viewer).filter(wait__run=run.id).exists()


def test_a_workflow_that_is_gone_is_seen_by_those_with_a_reason_of_their_own(world: dict[str, Any]) -> None:
    with mock.patch.dict(registry._workflows):
        del registry._workflows["doors-open"]
        seen = {
            name: access.runs(access.viewer(account(name))).filter(pk=world["open"].id).exists()
            for name in MATRIX
        }
    assert {name for name, does in seen.items() if does} == {
        "requester",
        "not asked",
        "operator",
        "superuser",
    }


def test_whoever_looks_is_known_in_two_queries(db: None, django_assert_num_queries: Any) -> None:
    asked = account("asked")
    with django_assert_num_queries(2):
        viewer = access.viewer(asked)
    with django_assert_num_queries(0):
        assert access.workflows(viewer) and not access.may_start(viewer, doors.open_to_all)


# --- whom an approval asks -------------------------------------------------------------------------


def asked_by(approval_id: Any) -> list[str]:
    return sorted(Audience.objects.filter(approval=approval_id).values_list("source", flat=True))


def test_an_approval_names_every_source_that_it_asks(world: dict[str, Any]) -> None:
    sources = sorted(doors.SOURCES)
    assert asked_by(pending(world["guarded"])[0].id) == sources
    assert asked_by(pending(world["open"])[0].id) == ["permission:approvals.review"]


def test_the_people_of_a_later_stage_are_asked_when_the_earlier_one_is_met(world: dict[str, Any]) -> None:
    first = {"name": "first", "needed": 1, "from": ["group:askers", "user:x"]}
    then = {"name": "then", "needed": 1, "from": ["group:late", "group:askers"]}
    policies.load(doors.asking(1, rules=[{"stages": [first, then]}]), actor=None)
    late = account("stranger")
    late.groups.add(Group.objects.create(name="late"))
    run = runs.start(doors.guarded, "stages", requester=account("requester"))
    drive()
    (approval,) = pending(run)
    assert asked_by(approval.id) == ["group:askers", "user:x"]
    assert not access.waiting(access.viewer(late)).exists()
    decide(run, account("asked"), "approved")
    assert asked_by(approval.id) == ["group:askers", "group:late", "user:x"]
    assert [a.pk for a in access.waiting(access.viewer(late))] == [approval.id]
    assert approval.id not in {a.pk for a in access.waiting(access.viewer(account("asked")))}


def test_approvals_from_before_the_inbox_reach_it(world: dict[str, Any]) -> None:
    policies.load(doors.asking(1, exclude=["editor"]), actor=None)
    lenient = runs.start(doors.guarded, "lenient", requester=account("requester"))
    drive()
    decide(world["closed"], account("asked"), "approved")
    expected = {
        pending(world["guarded"])[0].id: (doors.SOURCES, True),
        pending(world["open"])[0].id: (["permission:approvals.review"], True),
        pending(lenient)[0].id: (doors.SOURCES, False),
        Wait.objects.get(run=world["closed"].id).pk: ([], True),  # settled: it asks nobody
    }
    migrate("0002_postgresql")
    migrate(None)
    for approval_id, (sources, excludes) in expected.items():
        assert asked_by(approval_id) == sorted(sources)
        assert Approval.objects.get(pk=approval_id).excludes_requester is excludes


def migrate(to: str | None) -> None:
    """The app's tables, as of this migration; None: of the newest."""
    executor = MigrationExecutor(connection)
    newest = [leaf for leaf in executor.loader.graph.leaf_nodes() if leaf[0] == "approvals"]
    executor.migrate([("approvals", to)] if to else newest)


# --- a run's relatives ------------------------------------------------------------------------------


@registry.workflow(name="doors-kid", version=1, visible_to=["kids"])
def kid(ctx: Any, n: int) -> Any:
    return ctx.wait(ctx.signal("go")).payload


@registry.workflow(name="doors-parent", version=1, visible_to=["parents"])
def parent(ctx: Any, n: int) -> Any:
    return ctx.wait(ctx.child("the kid", kid, n))


def member(*groups: str) -> Any:
    user = User.objects.create(username=f"of-{'-'.join(groups)}")
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return user


@pytest.mark.parametrize(("group", "sees"), [("parents", "parent"), ("kids", "kid")])
def test_a_page_names_no_relative_that_its_reader_may_not_see(engine: Any, group: str, sees: str) -> None:
    run = runs.start(parent, 1)
    drive()
    child = Run.objects.get(parent_run=run.id)
    ids = {"parent": str(run.id), "kid": str(child.pk)}
    page = Client()
    page.force_login(member(group))
    shown = page.get(f"/runs/{ids.pop(sees)}/")
    (other,) = ids.values()
    assert shown.status_code == 200 and other not in shown.content.decode()
    page.force_login(member("parents", "kids"))
    assert str(child.pk) in page.get(f"/runs/{run.id}/").content.decode()
    assert str(run.id) in page.get(f"/runs/{child.pk}/").content.decode()
