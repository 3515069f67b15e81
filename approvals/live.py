"""The websocket of an open page, `/ws/live/`: it says WHAT changed, and never carries data to trust.

The page sends `{"topics": ["lists", "run:UUID", …]}` and hears `{"joined": […]}`: those of them that its reader may
follow, no difference being made between a run that is not there and one that is not theirs. From then on it hears
`{"changed": [topic, …]}` and fetches what it shows itself. A lost message costs a moment: pages also look by
themselves.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any
from uuid import UUID

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from approvals import outbox
from approvals.queries import access

log = logging.getLogger(__name__)

MOST_TOPICS = 20
MOST_CHARACTERS = 4000
LOOK_AGAIN_SECONDS = 60.0
"""So long at most does a page whose reader lost a right still hear that something changed."""
NOT_UNDERSTOOD, SIGNED_OUT = 4400, 4401


class Live(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels brings no types
    """One open page."""

    def __init__(self) -> None:
        super().__init__()
        self._topics: frozenset[str] = frozenset()
        self._changing = asyncio.Lock()
        self._guard: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves until the page is gone. Without the channel layer or the database there is nothing to serve."""
        try:
            await super().__call__(scope, receive, send)
        except (RedisError, DatabaseError, OSError) as error:
            log.warning("a page's websocket ends, it looks by itself: %s: %s", type(error).__name__, error)
            with suppress(Exception):  # it may be gone already
                await send({"type": "websocket.close", "code": 1011})
        finally:
            if self._guard is not None:
                self._guard.cancel()

    async def connect(self) -> None:
        """Only for people who are signed in and active."""
        outbox.serve_pages(asyncio.get_running_loop())
        if await self._allowed(()) is None:
            await self.close(SIGNED_OUT)
            return
        await self.accept()
        self._guard = asyncio.create_task(self._look_again())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """The topics of the page; those of an earlier message are left."""
        asked = read_topics(text_data)
        if asked is None:
            await self.close(NOT_UNDERSTOOD)
        elif await self._follow(asked):
            await self.send(json.dumps({"joined": sorted(self._topics)}))

    async def changed(self, event: dict[str, Any]) -> None:
        """From the channel layer, of these and perhaps of others; a topic that is not followed is not told of."""
        if told := [topic for topic in event["changed"] if topic in self._topics]:
            await self.send(json.dumps({"changed": told}))

    async def disconnect(self, code: int) -> None:
        """The page is gone."""
        async with self._changing:
            await self._leave(self._topics)

    async def _follow(self, asked: Sequence[str] | None = None) -> bool:
        """Follows what is allowed of this (else of what it follows) and nothing else; False if that ended the socket.

        What it follows is read after the lock: a message that joins topics may be under way.
        """
        async with self._changing:
            allowed = await self._allowed(sorted(self._topics) if asked is None else asked)
            if allowed is None:
                await self._leave(self._topics)
                await self.close(SIGNED_OUT)
                return False
            await self._leave(self._topics - allowed)
            for name in _groups(
                allowed
            ):  # those it has too: an in-memory group forgets its members after a day
                await self.channel_layer.group_add(name, self.channel_name)
            self._topics = allowed
            return True

    async def _leave(self, topics: frozenset[str]) -> None:
        left = _groups(self._topics) - _groups(self._topics - topics)
        self._topics -= topics
        for name in left:
            await self.channel_layer.group_discard(name, self.channel_name)

    async def _look_again(self) -> None:
        """Rights end while a page is open."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            try:
                if not await self._follow():
                    return
            except (RedisError, DatabaseError, OSError) as error:
                told = f"{type(error).__name__}: {error}"
                log.warning("what a page may hear could not be looked up, tried again later: %s", told)

    async def _allowed(self, topics: Sequence[str]) -> frozenset[str] | None:
        """Which of these the reader may follow, asked anew; None if nobody active is signed in."""
        key = self.scope["session"].session_key
        session = import_module(settings.SESSION_ENGINE).SessionStore(key)
        account = await get_user({"session": session})
        if not account.is_authenticated:
            return None
        visible: frozenset[str] = await _visible(account, topics)
        return visible


@database_sync_to_async  # type: ignore[untyped-decorator]
def _visible(account: Any, topics: Sequence[str]) -> frozenset[str]:
    runs = {topic: UUID(topic.removeprefix("run:")) for topic in topics if topic.startswith("run:")}
    seen = frozenset(topic for topic in topics if topic == outbox.LISTS)
    if not runs:
        return seen
    there = set(access.runs(access.viewer(account)).filter(pk__in=runs.values()).values_list("pk", flat=True))
    return seen | {topic for topic, run in runs.items() if run in there}


def _groups(topics: frozenset[str]) -> set[str]:
    """Where they are told of."""
    groups = {outbox.group(topic) for topic in topics}
    return groups | {outbox.RUNS} if topics - {outbox.LISTS} else groups


def read_topics(text: str | None) -> list[str] | None:
    """The topics that a page asks for, those of no known form left out; None if it is no such message."""
    if text is None or len(text) > MOST_CHARACTERS:
        return None
    try:
        topics = json.loads(text)["topics"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(topics, list) or len(topics) > MOST_TOPICS:
        return None
    return [topic for topic in topics if isinstance(topic, str) and _is_known(topic)]


def _is_known(topic: str) -> bool:
    if topic == outbox.LISTS:
        return True
    try:
        return topic == outbox.run_topic(UUID(topic.removeprefix("run:")))
    except ValueError:
        return False
