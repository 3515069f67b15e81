"""`up` ends when it is told to, whenever that is."""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Iterator

import pytest

from durable_app.up import Ending


class Thing:
    """What can be weakly referred to."""


@pytest.fixture
def ending() -> Iterator[Ending]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Ending()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts(ending, number):
    ending.check()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def test_a_signal_that_the_interpreter_swallowed_is_not_lost(ending, monkeypatch):
    swallowed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: swallowed.append(what.exc_type))
    thing = Thing()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    del thing
    assert (kept(), swallowed) == (None, [KeyboardInterrupt])
    with pytest.raises(KeyboardInterrupt):
        ending.check()
