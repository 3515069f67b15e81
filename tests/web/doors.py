"""Workflows with doors of their own, and everybody who may stand before them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, Permission, User

from approvals import Context, workflow

SOURCES = ["group:askers", "user:cfo", "permission:approvals.change_policy"]


def asking(needed: int, **keys: Any) -> dict[str, Any]:
    """The policy that asks for so many of them."""
    return {"slug": "doors", "rules": [{"stages": [{"needed": needed, "from": SOURCES}]}], **keys}


@workflow(name="doors-guarded", version=1, visible_to=["readers"], startable_by=["starters"])
def guarded(ctx: Context, text: str) -> bool:
    return bool(ctx.approval("ask", policy="doors", action={"text": text}, title="doors: guarded"))


@workflow(name="doors-closed", version=1, visible_to=["readers"])
def closed(ctx: Context, text: str) -> bool:
    return bool(ctx.approval("ask", policy="doors", action={"text": text}, title="doors: closed"))


@workflow(name="doors-open", version=1)
def open_to_all(ctx: Context, text: str) -> bool:
    return bool(ctx.approval("ask", policy="one-reviewer", action={"text": text}, title="doors: open"))


# name: (groups, permissions, other columns of the account)
EVERYBODY: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, bool]]] = {
    "stranger": ((), (), {}),
    "requester": ((), ("start",), {}),
    "asked": (("askers",), (), {}),
    "cfo": ((), (), {}),
    "holder": ((), ("change_policy",), {}),
    "not asked": (("reviewers",), ("review",), {}),
    "reader": (("readers",), (), {}),
    "starter": (("starters",), (), {}),
    "staff": ((), (), {"is_staff": True}),
    "operator": ((), ("operate",), {}),
    "superuser": ((), (), {"is_superuser": True}),
}


def account(name: str) -> Any:
    """This person, the same each time."""
    groups, permissions, columns = EVERYBODY[name]
    user, made = User.objects.get_or_create(username=name, defaults=columns)
    if made:
        user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user
