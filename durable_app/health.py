"""Whether this installation can do its work, for machines that ask: no names, no versions, no error texts."""

from __future__ import annotations

from django.db import Error as AnyDatabaseError
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from approvals import queries

SWEEP_LATE_SECONDS = 30
_is_migrated = False  # a process whose database was migrated need not ask again


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Says that the process is up; asks nothing of the database."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """200 if the database answers, is migrated, and a worker lives and sweeps; else 503 with what is missing."""
    checks: dict[str, bool] = {"database": False, "migrations": False, "worker": False, "sweeper": False}
    silent_seconds = sweep_seconds = None
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        checks["database"] = True
        checks["migrations"] = is_migrated()
        if workers := queries.workers():
            silent_seconds = round(min(worker["silent_seconds"] for worker in workers), 1)
            checks["worker"] = True
        if (age := queries.sweep_age_seconds()) is not None:
            sweep_seconds = round(age, 1)
            checks["sweeper"] = age <= SWEEP_LATE_SECONDS
    except AnyDatabaseError:
        pass
    ready = all(checks.values())
    silent = {"worker_silent_seconds": silent_seconds, "sweeper_silent_seconds": sweep_seconds}
    return JsonResponse({"ready": ready, "checks": checks, **silent}, status=200 if ready else 503)


def is_migrated() -> bool:
    """Whether the database has every migration of this code."""
    global _is_migrated  # noqa: PLW0603
    _is_migrated = _is_migrated or not queries.pending_migrations()
    return _is_migrated
