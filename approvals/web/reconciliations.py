"""What waits for an operator. It is settled at the desk in the admin; this page says what there is."""

from __future__ import annotations

from django.http import HttpResponse

from approvals import clock
from approvals.errors import NotFound
from approvals.queries import desk
from approvals.web.pages import Request, identifier, page, render


@page("GET")
def reconciliations(request: Request) -> HttpResponse:
    """The open cases, the longest waiting first. For operators; to others there is no such page."""
    if not request.viewer.is_operator:
        raise NotFound("This page is for operators")
    after = request.GET.get("after", "")
    now = clock.now()
    context = {
        "now": now,
        "cases": desk.waiting(request.viewer, after=identifier(after) if after else None),
        "is_first": not after,
        "may_settle": request.viewer.sees_in_admin("reconciliation"),
        "parts": ("list",),
    }
    return render(request, "approvals/web/reconciliations.html", context, tab="reconciliations")
