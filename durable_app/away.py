"""What is told when a request could not be answered: the database's trouble passes, any other fault is ours."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.defaults import server_error

from approvals.models.trouble import is_trouble

RETRY_SECONDS = 5


def fault(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`, wherever the error came from, a middleware too. Asks the database for nothing.

    503 with Retry-After while the database is away: the request may come again. Whether what it sent was taken
    nobody knows, when the connection was lost on its commit; sent again, it is told the truth.
    """
    if not is_trouble(sys.exception()):
        return server_error(request)
    headers = {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
    return HttpResponse(render_to_string("503.html"), status=503, headers=headers)
