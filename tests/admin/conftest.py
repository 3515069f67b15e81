"""Staff and their browsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from approvals.testing import People, people


def staff(user: Any) -> Any:
    user.is_staff = True
    user.save()
    user.user_permissions.add(
        *Permission.objects.filter(content_type__app_label="approvals", codename__startswith="view_")
    )
    return user


@pytest.fixture
def who(engine: Any) -> People:
    """The small organisation; all but the outsider see the admin."""
    found = people()
    for user in (found.requester, *found.reviewers, found.operator):
        staff(user)
    return found


@pytest.fixture
def browser(who: People) -> Callable[[Any], Client]:
    """A browser in which somebody is logged in."""

    def open_for(user: Any) -> Client:
        client = Client(enforce_csrf_checks=False)
        client.force_login(user)
        return client

    return open_for


@pytest.fixture
def operator(browser: Callable[[Any], Client], who: People) -> Client:
    return browser(who.operator)
