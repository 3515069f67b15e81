"""Static files."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # WhiteNoise brings no types
    """WhiteNoise, answering in one piece: it streams, and under ASGI Django warns of every stream that is not async."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        """The file as WhiteNoise would send it."""
        found = static_file.get_response(request.method, request.META)
        response = HttpResponse(status=int(found.status))
        del response["Content-Type"]  # Django's guess; a 304 has none
        for name, value in found.headers:
            response[name] = value
        if found.file:
            with found.file:
                response.content = found.file.read()
        return response
