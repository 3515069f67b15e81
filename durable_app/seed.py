"""Demo people and the deployment's policies. Safe to repeat: what is there stays as it is.

So a policy that was made stricter since is not loosened by a restart; `manage.py policies load` changes one.

Nobody gets a password that is known beforehand: each installation makes its own, and keeps them in
DATA_DIR/people.json, readable by its owner alone, so that `up` can print the log-ins again.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q

from approvals.models import Policy
from approvals.services import policies

POLICIES = Path(__file__).with_name("policies")


@dataclass(frozen=True)
class Role:
    """A group: its permissions in `approvals`, and whether its members see the admin."""

    may: tuple[str, ...]
    sees_admin: bool


@dataclass(frozen=True)
class LogIn:
    """A demo person, for `up` to print. The password is empty where it is not ours to know (any more)."""

    name: str
    group: str
    password: str
    sees_admin: bool = True


ROLES = {
    "requesters": Role(may=("start",), sees_admin=False),
    "reviewers": Role(may=("review",), sees_admin=True),
    "operators": Role(may=("start", "operate", "change_policy"), sees_admin=True),
}
PEOPLE = {
    "rita": "requesters",
    "vera": "reviewers",
    "sam": "reviewers",
    "olaf": "operators",
    "admin": "superuser",
}


def seed() -> list[LogIn]:
    """Makes groups, people and policies that are missing; returns everybody's log-in."""
    passwords = _passwords()
    with transaction.atomic():
        groups = {name: _group(name, role) for name, role in ROLES.items()}
        log_ins = [_person(name, group, groups, passwords[name]) for name, group in PEOPLE.items()]
    for path in sorted(POLICIES.glob("*.yaml")):  # each is named by its slug
        if not Policy.objects.filter(slug=path.stem).exists():
            policies.load(path, actor=None)
    return log_ins


def _group(name: str, role: Role) -> Group:
    group, made = Group.objects.get_or_create(name=name)
    if made:
        wanted = Q(codename__in=role.may)
        if role.sees_admin:
            wanted |= Q(codename__startswith="view_")
        group.permissions.set(Permission.objects.filter(wanted, content_type__app_label="approvals"))
    return group


def _person(name: str, group: str, groups: Mapping[str, Group], password: str) -> LogIn:
    user, made = User.objects.get_or_create(username=name, defaults={"email": f"{name}@example.org"})
    if made:
        user.set_password(password)
        user.is_superuser = group not in groups
        user.is_staff = user.is_superuser or ROLES[group].sees_admin
        user.save()
        if group in groups:
            user.groups.add(groups[group])
    return LogIn(name, group, password if made or user.check_password(password) else "", user.is_staff)


def _passwords() -> dict[str, str]:
    """This installation's passwords; those still missing are made and kept."""
    path = settings.DATA_DIR / "people.json"
    kept: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    if missing := PEOPLE.keys() - kept.keys():
        kept |= {name: secrets.token_urlsafe(12) for name in missing}
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(kept, file, indent=1)
        draft.replace(path)
    return kept
