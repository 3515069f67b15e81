"""What open pages are told: which runs changed. After the commit, losable, and nobody waits for it.

The engine only adds an id to a set. One daemon thread per process hands the set to the channel layer, at most
ten times a second; a layer that is away is left alone for a while, and what would have been said is dropped:
pages also look by themselves. No thread is started where nobody could hear it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import transaction

log = logging.getLogger(__name__)

LISTS = "lists"
"""The topic of whoever looks at many runs at once."""
RUNS = "runs"
"""The group of every page that follows a run: of many runs it is told in one message."""
SEND_SECONDS = 0.1
SELDOM_SECONDS = 0.5
_FEW_RUNS = 10  # each message waits for the channel layer, and for its turn beside busy threads
_MOST_RUNS = 1000  # at once; what goes beyond it is seen by pages a little later
_PATIENCE_SECONDS = 2.0
_AWAY_SECONDS = 5.0
_FAREWELL_SECONDS = 0.6
_IN_MEMORY = "channels.layers.InMemoryChannelLayer"


def run_topic(run_id: UUID | str) -> str:
    """The topic of whoever looks at this run."""
    return f"run:{run_id}"


def group(topic: str) -> str:
    """A topic's group in the channel layer, whose names may hold no colon."""
    return topic.replace(":", ".")


type Message = tuple[str, list[str]]
"""A group, and the topics that it is told of."""


class Teller:
    """A set of changed runs, and the thread that tells of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[UUID] = set()
        self._lists = False
        self._told_seldom: dict[str, float] = {}
        self._due, self._idle, self._ending = (threading.Event() for _ in range(3))
        self._thread: threading.Thread | None = None
        self._server: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._away_until = 0.0
        self.is_away = False

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Pages are open in this process, on this loop: the only one on which an in-memory layer works."""
        self._server = loop

    def is_heard(self) -> bool:
        """Whether anybody could hear what is told here."""
        layers = getattr(settings, "CHANNEL_LAYERS", None)
        if not layers:
            return False
        return layers["default"]["BACKEND"] != _IN_MEMORY or self._is_serving()

    @property
    def is_running(self) -> bool:
        """Whether there is a thread that tells."""
        return self._thread is not None and self._thread.is_alive()

    def _is_serving(self) -> bool:
        return self._server is not None and self._server.is_running()

    def add(self, run_id: UUID, lists: bool) -> None:
        """Adds a change; raises nothing."""
        with self._lock:
            if len(self._runs) < _MOST_RUNS:
                self._runs.add(run_id)
            self._lists = self._lists or lists
            if not self._due.is_set():
                self._idle.clear()
                self._due.set()
            if not self.is_running:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="pages", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process is ending, or may have no more threads
            log.warning("open pages are not told of changes: %s", error)
            return
        self._thread = thread

    def _run(self) -> None:
        while self._due.wait() and not self._ending.is_set():
            messages = self._take()
            if messages and time.monotonic() >= self._away_until:
                self._tell(messages)
            with self._lock:
                if not self._due.is_set():
                    self._idle.set()
            self._ending.wait(SEND_SECONDS)
        if self._own is not None:
            self._own.close()

    def _take(self) -> list[Message]:
        """What is to be told now; what was told of a moment ago, and need not be so soon again, stays due."""
        with self._lock:
            messages: list[Message] = []
            if self._lists and self._may_tell(LISTS):
                messages.append((LISTS, [LISTS]))
                self._lists = False
            topics = [run_topic(run) for run in self._runs]
            if len(topics) <= _FEW_RUNS:
                messages += [(group(topic), [topic]) for topic in topics]
                self._runs = set()
            elif self._may_tell(RUNS):
                messages.append((RUNS, topics))
                self._runs = set()
            if not self._lists and not self._runs:
                self._due.clear()
        return messages

    def _may_tell(self, name: str) -> bool:
        now = time.monotonic()
        if now - self._told_seldom.get(name, float("-inf")) < SELDOM_SECONDS:
            return False
        self._told_seldom[name] = now
        return True

    def _tell(self, messages: list[Message]) -> None:
        try:
            self._send(messages)
        except Exception as error:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            if not self.is_away:
                told = f"{type(error).__name__}: {error}"
                log.warning("open pages are not told of changes for now, they look by themselves: %s", told)
            self.is_away = True
        else:
            self.is_away = False

    def _send(self, messages: list[Message]) -> None:
        if settings.CHANNEL_LAYERS["default"]["BACKEND"] != _IN_MEMORY:
            if self._own is None:
                self._own = asyncio.new_event_loop()
            self._own.run_until_complete(_send(messages))
        elif self._server is not None and self._is_serving():
            asyncio.run_coroutine_threadsafe(_send(messages), self._server).result(2 * _PATIENCE_SECONDS)

    def wait_until_told(self, seconds: float = _FAREWELL_SECONDS) -> bool:
        """Whether all that was added has gone out, or was dropped, within this time."""
        return self._thread is None or self._idle.wait(seconds)

    def end(self) -> None:
        """Lets what was just added go out, for a moment; then ends the thread."""
        self.wait_until_told()
        self._ending.set()
        self._due.set()
        if self._thread is not None:
            self._thread.join(_FAREWELL_SECONDS)


async def _send(messages: list[Message]) -> None:
    from channels.layers import get_channel_layer

    if (layer := get_channel_layer()) is None:
        return
    async with asyncio.timeout(_PATIENCE_SECONDS):
        for name, topics in messages:
            await layer.group_send(name, {"type": "changed", "changed": topics})


_teller = Teller()


def _start_afresh() -> None:
    """A forked child inherits no thread; what its parent had to tell is its parent's business."""
    global _teller  # noqa: PLW0603
    _teller = Teller()


def _tell_the_last() -> None:
    _teller.end()


os.register_at_fork(after_in_child=_start_afresh)
atexit.register(_tell_the_last)


def changed(run_id: UUID, *, lists: bool = True) -> None:
    """Tells open pages, once this is committed, that a run changed; `lists`: in a way that lists show.

    Costs the caller microseconds.
    """
    if _teller.is_heard():
        transaction.on_commit(partial(_add, run_id, lists))


def _add(run_id: UUID, lists: bool) -> None:
    _teller.add(run_id, lists)


def serve_pages(loop: asyncio.AbstractEventLoop) -> None:
    """Called by whoever holds open pages, from its loop."""
    _teller.serve(loop)
