"""Whether this installation can do its work, for machines that ask: no names, no versions, no error texts."""

from __future__ import annotations

from django.db import Error as AnyDatabaseError
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from approvals import queries

_is_migrated = False  # a process whose database was migrated need not ask again


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Says that the process is up; asks nothing of the database."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """200 if the database answers, is migrated, and a worker (so a sweeper) lives; else 503 with what is missing."""
    checks: dict[str, bool] = {"database": False, "migrations": False, "worker": False}
    silent_seconds = None
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        checks["database"] = True
        checks["migrations"] = is_migrated()
        if workers := queries.workers():
            silent_seconds = round(min(worker["silent_seconds"] for worker in workers), 1)
            checks["worker"] = True
    except AnyDatabaseError:
        pass
    ready = all(checks.values())
    told = {"ready": ready, "checks": checks, "worker_silent_seconds": silent_seconds}
    return JsonResponse(told, status=200 if ready else 503)


def is_migrated() -> bool:
    """Whether the database has every migration of this code."""
    global _is_migrated  # noqa: PLW0603
    _is_migrated = _is_migrated or not queries.pending_migrations()
    return _is_migrated
