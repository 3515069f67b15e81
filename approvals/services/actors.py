"""Who asks. Every service authorises here; None is the installation itself (a command on its own machine)."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model

from approvals.errors import PermissionRefused

SYSTEM = "system"


def name_of(actor: Any) -> str:
    """How the journal names an actor."""
    return SYSTEM if actor is None else str(actor.get_username())


def fresh(actor: Any) -> Any:
    """The account as it is now: permissions cached on an old object decide nothing."""
    found = get_user_model()._default_manager.filter(pk=actor.pk).first() if actor.pk is not None else None
    if found is None or not found.is_active:
        raise PermissionRefused("This account does not exist or is disabled", actor=name_of(actor))
    return found


def require(actor: Any, permission: str, *, or_is: int | None = None) -> None:
    """Raises PermissionRefused unless the actor has the permission (or is the person `or_is`)."""
    if actor is None:
        return
    account = fresh(actor)
    if account.pk is not None and account.pk == or_is:
        return
    if not account.has_perm(permission):
        raise PermissionRefused(actor=name_of(actor), needed=permission)
