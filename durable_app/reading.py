"""Requests that nobody can read are refused with a page, like every other."""

from __future__ import annotations

import asyncio
import codecs
import logging
from typing import Any

from django.core.exceptions import BadRequest
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin


class Readable(MiddlewareMixin):
    """Refuses with 400 what says that it is written in anything but UTF-8, and what has no meaning at all.

    Django looks up any codec of Python's, and raises where one of them is not for text.
    """

    def process_request(self, request: HttpRequest) -> None:
        """Raises BadRequest."""
        if getattr(request, "is_unreadable", False):
            raise BadRequest("The address or the content type of this request cannot be read")
        charset = (request.content_params or {}).get("charset", "utf-8")
        try:
            is_text = codecs.lookup(charset).name == "utf-8"
        except (LookupError, ValueError):
            is_text = False
        if not is_text:
            raise BadRequest(f"Only UTF-8 is read here, not {charset[:40]!a}")


class Unread(logging.Filter):
    """Keeps to one line what uvicorn tells of a websocket's text that is no UTF-8: it has refused it already (1007)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets everything pass."""
        if record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError):
            record.exc_info, record.levelno, record.levelname = None, logging.WARNING, "WARNING"
        return True


class Handler(ASGIHandler):
    """Django's, but for requests that it cannot make, and for browsers that leave in the middle."""

    async def listen_for_disconnect(self, receive: Any) -> None:
        """Hears nothing: what was begun is finished, whoever waits for it, and its answer is dropped.

        Django would cancel it. A view in a thread cannot be cancelled; only what comes after it would be, and with it
        the way back of its database connection into the pool: a browser that left often enough took all of them.
        """
        await asyncio.get_running_loop().create_future()

    def create_request(self, scope: Any, body_file: Any) -> Any:
        """The request; one that cannot be read comes without what is wrong with it, and marked."""
        try:
            request, refused = super().create_request(scope, body_file)
        except (BadRequest, ValueError):
            request, refused = None, None
        if request is not None or (refused is not None and refused.status_code != _BAD):
            return request, refused
        headers = [(name, value) for name, value in scope.get("headers", []) if name != b"content-type"]
        plain = ASGIRequest({**scope, "query_string": b"", "headers": headers}, body_file)
        setattr(plain, "is_unreadable", True)  # noqa: B010  # of this site alone
        return plain, None


_BAD = 400
