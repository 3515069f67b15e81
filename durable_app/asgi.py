"""The web process: pages over HTTP, and the websocket that tells them what changed."""

from __future__ import annotations

import os
from typing import Any

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from channels.sessions import SessionMiddlewareStack
from django.urls import path, re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durable_app.settings")
# Only here: a forked worker would share the pool's sockets.
os.environ.setdefault("DATABASE_POOL", "8")

django.setup(set_prefix=False)

from approvals.live import Live  # noqa: E402  # its models are there only now
from durable_app.reading import Handler  # noqa: E402


async def nowhere(scope: Any, receive: Any, send: Any) -> None:
    """A websocket at any other address is refused."""
    await send({"type": "websocket.close"})


websocket = URLRouter([path("ws/live/", Live.as_asgi()), re_path("", nowhere)])  # type: ignore[arg-type]
application = ProtocolTypeRouter(
    {"http": Handler(), "websocket": AllowedHostsOriginValidator(SessionMiddlewareStack(websocket))}
)
