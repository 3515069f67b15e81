"""Demo people and policies: made once, known to nobody beforehand."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from approvals.errors import PermissionRefused
from approvals.models import Policy, PolicyVersion
from approvals.services import policies, runs
from durable_app.seed import PEOPLE, POLICIES, seed

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path) -> Iterator[Path]:
    quick = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with override_settings(DATA_DIR=tmp_path / "data", PASSWORD_HASHERS=quick):
        yield tmp_path / "data"


def test_twice_is_once(data_dir: Path) -> None:
    first = seed()
    assert first == seed()
    assert {each.name for each in first} == PEOPLE.keys()
    assert User.objects.count() == len(PEOPLE)
    assert PolicyVersion.objects.filter(slug="publication").count() == 1


def test_passwords_are_this_installations_own(data_dir: Path) -> None:
    passwords = {each.name: each.password for each in seed()}
    path = data_dir / "people.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == passwords
    assert len(set(passwords.values())) == len(passwords)
    assert all(len(password) >= 16 for password in passwords.values())
    assert User.objects.get(username="vera").check_password(passwords["vera"])


def test_what_people_changed_stays(data_dir: Path) -> None:
    seed()
    vera = User.objects.get(username="vera")
    vera.set_password("her own")
    vera.save()
    vera.groups.clear()
    again = {each.name: each.password for each in seed()}
    assert again["vera"] == ""
    assert again["sam"]
    vera.refresh_from_db()
    assert vera.check_password("her own")
    assert not vera.groups.exists()


def test_a_policy_that_was_changed_stays(data_dir: Path) -> None:
    seed()
    stricter = (POLICIES / "publication.yaml").read_text().replace("needed: 1", "needed: 2")
    policies.load(stricter, actor=None)
    seed()
    assert Policy.objects.get(slug="publication").current.version == 2


def test_policies_are_named_by_their_slug(data_dir: Path) -> None:
    seed()
    assert all(Policy.objects.filter(slug=path.stem).exists() for path in POLICIES.iterdir())


def test_an_account_that_was_there_is_not_touched(data_dir: Path) -> None:
    User.objects.create_user("admin", password="theirs")
    assert {each.name: each.password for each in seed()}["admin"] == ""
    assert not User.objects.get(username="admin").is_superuser


def test_rita_and_olaf_start_the_main_job_and_the_reviewers_do_not() -> None:
    seed()
    started = {}
    for name in PEOPLE:
        try:
            started[name] = runs.start_as(
                User.objects.get(username=name), "research-and-publish", {}
            ).requester
        except PermissionRefused as refusal:
            started[name] = refusal.values["needed"]
    nobody = "requesters or operators"
    assert started == {"rita": "rita", "vera": nobody, "sam": nobody, "olaf": "olaf", "admin": "admin"}


@pytest.mark.parametrize(
    ("name", "may", "may_not"),
    [
        ("rita", {"start"}, {"review", "operate", "change_policy", "view_run"}),
        ("vera", {"review", "view_approval", "view_run"}, {"start", "operate", "change_policy"}),
        ("olaf", {"operate", "change_policy", "view_effect"}, {"review"}),
        ("admin", {"start", "review", "operate", "change_policy"}, set()),
    ],
)
def test_what_each_may(name: str, may: set[str], may_not: set[str]) -> None:
    seed()
    user = User.objects.get(username=name)
    assert user.has_perms([f"approvals.{each}" for each in may])
    assert not any(user.has_perm(f"approvals.{each}") for each in may_not)
    assert user.is_staff == (name != "rita")
