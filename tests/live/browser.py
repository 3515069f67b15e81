"""A browser's websocket without a server: it speaks ASGI to the site's own application."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

from asgiref.testing import ApplicationCommunicator

with mock.patch.dict(os.environ):  # what a web process needs is nothing for the tests' own processes
    from durable_app.asgi import application

HOST = "127.0.0.1"
SECONDS = 10


class Socket:
    """One connection."""

    def __init__(
        self, cookies: str, *, origin: str | None = f"http://{HOST}", path: str = "/ws/live/"
    ) -> None:
        headers = [(b"host", HOST.encode()), (b"cookie", cookies.encode())]
        headers += [(b"origin", origin.encode())] if origin is not None else []
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": headers,
            "subprotocols": [],
        }
        self._asgi: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]

    async def opens(self) -> bool:
        """Whether the handshake succeeds."""
        await self._asgi.send_input({"type": "websocket.connect"})
        answer = await self._asgi.receive_output(SECONDS)
        assert answer["type"] in ("websocket.accept", "websocket.close")
        return bool(answer["type"] == "websocket.accept")

    async def send(self, frame: str | bytes) -> None:
        """Sends a frame."""
        await self._asgi.send_input(
            {"type": "websocket.receive", "bytes" if isinstance(frame, bytes) else "text": frame}
        )

    async def follow(self, *topics: Any) -> Any:
        """Asks for topics; the answer."""
        await self.send(json.dumps({"topics": topics}))
        return await self.hear()

    async def hear(self) -> Any:
        """The next message."""
        told = await self._asgi.receive_output(SECONDS)
        assert told["type"] == "websocket.send", told
        return json.loads(told["text"])

    async def hears_nothing(self, seconds: float = 0.3) -> bool:
        """Whether nothing is said for so long."""
        return bool(await self._asgi.receive_nothing(seconds))

    async def closes(self) -> int:
        """The code with which the server closes it."""
        told = await self._asgi.receive_output(SECONDS)
        assert told["type"] == "websocket.close", told
        return int(told["code"])

    async def leave(self) -> None:
        """The browser closes it; returns when the server is done with it."""
        await self._asgi.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._asgi.wait(SECONDS)


@asynccontextmanager
async def page(cookies: str) -> AsyncIterator[Socket]:
    """An open page."""
    socket = Socket(cookies)
    assert await socket.opens()
    try:
        yield socket
    finally:
        await socket.leave()


async def ask(
    content_type: bytes = b"",
    query: bytes = b"",
    *,
    path: str = "/nope/",
    leaves: Callable[[], Any] | None = None,
) -> tuple[int, dict[bytes, bytes], bytes]:
    """What the site's application says to a request: status, headers, body. With `leaves`, to a browser that is
    gone before this is called, in a thread."""
    headers = [(b"host", HOST.encode()), (b"content-type", content_type)]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": headers}
    site: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
    await site.send_input({"type": "http.request", "body": b""})
    if leaves is not None:
        await site.send_input({"type": "http.disconnect"})
        await asyncio.to_thread(leaves)
    start, body = await site.receive_output(SECONDS), await site.receive_output(SECONDS)
    await site.wait(SECONDS)
    return start["status"], dict(start["headers"]), body["body"]
