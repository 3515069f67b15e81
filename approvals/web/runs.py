"""The list of runs, and the page of one: its journal as it grows, and what those who may can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpResponse, QueryDict

from approvals import clock
from approvals.errors import ApprovalsError, IllegalTransition, InvalidInput, NotFound, PermissionRefused
from approvals.queries import access, runs_pages, timeline, trees
from approvals.queries.runs_pages import Filters, Stored
from approvals.services import runs as service
from approvals.web import show
from approvals.web.files import below
from approvals.web.pages import Request, identifier, page, render, see_other

SEARCH_CHARS = 200
REASON_CHARS = 1_000
TITLE_CHARS = 80
POSITION_MAX = 1_000_000
PARTS = ("head", "timeline", "aside", "result", "buttons")
WITH_JOURNAL = ("", "timeline", "aside")
DOES: Mapping[str, str] = {"cancel": "Cancel", "pause": "Pause", "resume": "Resume"}


# --- the list --------------------------------------------------------------------------------------


@page("GET")
def runs(request: Request) -> HttpResponse:
    """The runs that this person sees, by `status`, `workflow`, `mine` and `q`, from `?after=` on."""
    if request.GET.get("part") == "rail":
        return render(request, "approvals/web/runs.html", {}, tab="runs")
    asked, after = _filters(request.GET), request.GET.get("after", "")
    found = runs_pages.listed(request.viewer, asked, cursor=identifier(after) if after else None)
    names = {w.name for w in access.workflows(request.viewer)} | ({asked.workflow} - {""})
    context = {
        "now": found.now,
        "rows": found.rows,
        "next": f"?{_query(asked, found.next)}" if found.next else "",
        "newest": f"?{_query(asked)}",
        "is_first": not after,
        "asked": asked,
        "searched": runs_pages.SEARCHED,
        "statuses": runs_pages.STATUSES.items(),
        "workflows": sorted(names),
        "parts": ("list",),
    }
    return render(request, "approvals/web/runs.html", context, tab="runs")


def _filters(given: QueryDict) -> Filters:
    """What is no filter asks for nothing; a text that no database keeps finds nothing."""
    status = given.get("status", "")
    return Filters(
        status=status if status in runs_pages.STATUSES else "",
        workflow=_searchable(given.get("workflow", "")),
        mine="mine" in given,
        search=_searchable(given.get("q", "").strip()),
    )


def _searchable(text: str) -> str:
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()[:SEARCH_CHARS]


def _query(asked: Filters, after: UUID | None = None) -> str:
    given = {"q": asked.search, "status": asked.status, "workflow": asked.workflow}
    given |= {"mine": "1" if asked.mine else "", "after": str(after or "")}
    return urlencode({name: value for name, value in given.items() if value})


# --- one run ---------------------------------------------------------------------------------------


@page("GET", "POST")
def run(request: Request, run_id: UUID) -> HttpResponse:
    """GET shows; POST cancels, pauses or resumes (`do`, `reason`), then shows."""
    if request.method != "POST":
        return _page(request, run_id)
    runs_pages.find(request.viewer, run_id)
    do, reason = request.POST.get("do", ""), request.POST.get("reason", "")
    try:
        _operate(request, run_id, do, reason.replace("\r\n", "\n").strip())
    except NotFound:
        raise
    except ApprovalsError as refused:
        return _page(request, run_id, refused=refused, reason=reason)
    return see_other("run", run_id)


def _operate(request: Request, run_id: UUID, do: str, reason: str) -> None:
    """Asks the service. Raises InvalidInput, PermissionRefused, IllegalTransition."""
    if do not in DOES:
        raise InvalidInput("This page can cancel, pause or resume a run, and nothing else")
    if do == "resume":
        service.resume(run_id, actor=request.user)
        return
    if not reason:
        raise InvalidInput("Say why: the reason stays in the run's journal")
    if len(reason) > REASON_CHARS:
        raise InvalidInput(f"The reason has {len(reason):,} characters; {REASON_CHARS:,} are kept at most")
    if "\x00" in reason:
        raise InvalidInput("The reason holds a character that cannot be kept (NUL)")
    if do == "cancel":
        undo = request.POST.get("undo") == "1"
        service.cancel(run_id, actor=request.user, reason=reason, compensate=undo)
        return
    service.pause(run_id, actor=request.user, reason=reason)


def _status(refused: ApprovalsError | None) -> int:
    match refused:
        case None:
            return HTTPStatus.OK
        case PermissionRefused():
            return HTTPStatus.FORBIDDEN
        case IllegalTransition():
            return HTTPStatus.CONFLICT
    return HTTPStatus.UNPROCESSABLE_ENTITY


def _page(
    request: Request, run_id: UUID, *, refused: ApprovalsError | None = None, reason: str = ""
) -> HttpResponse:
    viewer, part, whole = request.viewer, request.GET.get("part", ""), "whole" in request.GET
    now = clock.now()
    row = runs_pages.find(viewer, run_id, whole=whole)
    context: dict[str, Any] = {"now": now, "parts": PARTS, "run_id": run_id}
    if part != "rail":
        waits = timeline.open_waits(row)
        found = runs_pages.page_of(viewer, row, waits)
        context |= {
            "run": found,
            "title": show.spelled(_title(found)),
            "does": [(do, DOES[do]) for do in found.may],
            "problem": _told(refused),
            "reason": reason,
            "undo": request.POST.get("undo") == "1",
            "whole": whole,
            "input": _shown(run_id, found.input, whole=whole),
            "output": _shown(run_id, found.output, whole=whole),
            "case_page": "admin:approvals_reconciliation_change" if viewer.account.is_staff else "",
        }
        if part in WITH_JOURNAL:
            before = _before(request.GET.get("before", ""))
            context["journal"] = timeline.read(viewer, row, waits, before=before)
    return render(request, "approvals/web/run.html", context, tab="runs", status=_status(refused))


def _title(found: runs_pages.RunPage) -> str:
    name = found.row.key or f"{found.row.workflow} …{str(found.row.id)[-8:]}"
    return name if len(name) <= TITLE_CHARS else f"{name[:TITLE_CHARS]}…"


def _told(refused: ApprovalsError | None) -> str:
    if isinstance(refused, PermissionRefused):
        return f"{refused}. Nothing was changed."
    return f"{refused}" if refused is not None else ""


def _before(text: str) -> int | None:
    """A position out of a query string; what is none asks for the latest."""
    with suppress(ValueError):
        return min(max(int(text[:9]), 2), POSITION_MAX) if text.isascii() else None
    return None


def _shown(run_id: UUID, stored: Stored | None, *, whole: bool) -> dict[str, Any] | None:
    """A value for its template; None if there is none."""
    if stored is None:
        return None
    if not stored.is_whole:
        return {"chars": stored.chars}
    sight = show.Sight(whole=whole, files=below("run", run_id))
    return {"value": sight.value(trees.read(stored.text)), "chars": stored.chars}
