"""Reviewers and their browsers, and a workflow that asks them whatever a test wants asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from approvals.testing import People, people


@pytest.fixture
def who(engine: Any) -> People:
    """The small organisation."""
    return people()


@pytest.fixture
def browser(who: People) -> Callable[..., Client]:
    """A browser in which somebody is signed in."""

    def open_for(user: Any, **options: Any) -> Client:
        client = Client(**options)
        client.force_login(user)
        return client

    return open_for


@pytest.fixture
def vera(browser: Callable[..., Client], who: People) -> Client:
    """A reviewer's browser."""
    return browser(who.reviewers[0])


@pytest.fixture
def sam(browser: Callable[..., Client], who: People) -> Client:
    """Another reviewer's."""
    return browser(who.reviewers[1])


@pytest.fixture
def rita(browser: Callable[..., Client], who: People) -> Client:
    """The requester's."""
    return browser(who.requester)
