"""Whether single letters are commands in this browser. Who dictates, or shakes, may switch them off (WCAG 2.1.4)."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from approvals.web.pages import KEYS_COOKIE, OFF, page, see_other

KEPT = timedelta(days=400)
"""No browser keeps a cookie for longer."""


@page("POST")
def keys(request: HttpRequest) -> HttpResponse:
    """Switches them off (`keys` is `off`) or on again, and shows the inbox."""
    answer = see_other("inbox")
    is_off = request.POST.get("keys") == OFF
    answer.set_cookie(
        KEYS_COOKIE,
        OFF if is_off else "on",
        max_age=KEPT,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return answer
