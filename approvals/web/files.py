"""Files that an approval or a run names, to be saved: never shown by the browser as a page of this site."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse
from django.utils.http import content_disposition_header

from approvals.errors import ContentChanged, LimitExceeded, ServiceError
from approvals.queries import MISSING, files
from approvals.web.pages import Request, page, render

DOCUMENT_TITLES = {"approval": "the approval", "run": "the run"}


def below(view: str, object_id: UUID) -> str:
    """The address below which the files of this approval or run are; see `Sight`."""
    return f"{reverse(view, args=[object_id])}files/"


@page("GET")
def of_approval(request: Request, wait_id: UUID, file_id: str) -> HttpResponse:
    """A file of an approval, for those who see it."""
    return _attached(request, files.in_approval(request.viewer, wait_id, file_id), "approval", wait_id)


@page("GET")
def of_run(request: Request, run_id: UUID, file_id: str) -> HttpResponse:
    """A file of a run, for those who see it."""
    return _attached(request, files.in_run(request.viewer, run_id, file_id), "run", run_id)


def _attached(request: Request, file: files.StoredFile, view: str, object_id: UUID) -> HttpResponse:
    """The bytes that were recorded, as an attachment without a type; or a page that says why not."""
    try:
        data = files.content(file)
    except ContentChanged as error:
        is_gone = error.values["found"] == MISSING
        status = HTTPStatus.GONE if is_gone else HTTPStatus.CONFLICT
        told = {"is_gone": is_gone, "found": error.values["found"]}
    except LimitExceeded as error:
        status, told = HTTPStatus.CONFLICT, {"refused": str(error)}
    except ServiceError as error:
        status, told = HTTPStatus.SERVICE_UNAVAILABLE, {"refused": str(error)}
    else:
        headers = {
            "Content-Disposition": content_disposition_header(True, files.safe_name(file.name))
            or "attachment",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return HttpResponse(data, content_type="application/octet-stream", headers=headers)
    context = {**told, "file": file, "back": reverse(view, args=[object_id]), "what": DOCUMENT_TITLES[view]}
    return render(request, "approvals/web/file.html", context, status=status)
