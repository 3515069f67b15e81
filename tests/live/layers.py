"""Channel layers for tests: one that notes what is told, one that fails, one that never answers."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any


class Noting:
    """Keeps every message with the moment at which it came."""

    told: list[tuple[float, str, Any]] = []

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.told.append((time.monotonic(), group, message))


class Failing:
    """Is away until it is mended."""

    is_mended = False
    calls = 0

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        Failing.calls += 1
        if not self.is_mended:
            raise ConnectionError("the layer is away")


class Hanging:
    """Takes a message, and says nothing more."""

    reached = threading.Event()

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.reached.set()
        await asyncio.Event().wait()


def configured(layer: type) -> dict[str, Any]:
    """CHANNEL_LAYERS with this one."""
    return {"default": {"BACKEND": f"{layer.__module__}.{layer.__qualname__}"}}
