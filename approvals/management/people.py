"""Whoever a command acts for. Services authorise them; here they are only found."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model

from approvals.errors import NotFound
from approvals.management.output import MANAGE


def find(name: str | None) -> Any:
    """The account of `--as`; None without it: the installation itself. Raises NotFound."""
    if name is None:
        return None
    model = get_user_model()
    account = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    if account is None:
        raise NotFound(
            "There is no account of this name", user=name, next=f"{MANAGE} createsuperuser, or the admin"
        )
    return account
