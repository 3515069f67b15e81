"""The inbox: what waits for the person who looks, what waits at all, and what was decided."""

from __future__ import annotations

from django.http import HttpResponse

from approvals.queries import inbox as inboxes
from approvals.web.pages import Request, page, render


@page("GET")
def inbox(request: Request) -> HttpResponse:
    """The rows of `?show=mine|all|decided`, from `?after=` on; what is neither shows what waits for them."""
    if request.GET.get("part") == "rail":
        return render(request, "approvals/web/inbox.html", {}, tab="inbox")
    asked = request.GET.get("show", "")
    which: inboxes.Which = asked if asked in inboxes.WHICH else "mine"
    found = inboxes.inbox(request.viewer, which, request.GET.get("after", ""))
    context = {
        "inbox": found,
        "show": which,
        "mine": found.mine,
        "now": found.now,
        "is_first": "after" not in request.GET,
        "parts": ("list", "tabs"),
    }
    return render(request, "approvals/web/inbox.html", context, tab="inbox")
