"""The site's addresses."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path, reverse
from django.views.decorators.http import require_safe

from approvals.web.signing import SignOut
from durable_app import away
from durable_app.health import healthz, readyz

admin.site.site_header = admin.site.site_title = "Durable"
admin.site.index_title = "Everything that runs, waits and was decided"

handler500 = away.fault


@require_safe
def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """One door to sign in. Whoever is signed in and no staff would be sent to and fro, so they are told instead."""
    if request.user.is_authenticated and not admin.site.has_permission(request):
        raise PermissionDenied(f"The admin is for staff, and {request.user.get_username()} is not.")
    return redirect_to_login(request.GET.get("next") or reverse("admin:index"))


@require_safe
def icon(request: HttpRequest) -> HttpResponse:
    """Where browsers look for an icon that a page does not name."""
    return HttpResponsePermanentRedirect(static("approvals/icon.svg"))


urlpatterns: list[URLPattern | URLResolver] = [
    path("favicon.ico", icon),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("admin/login/", admin_sign_in),
    path("admin/logout/", SignOut.as_view()),
    path("admin/", admin.site.urls),
    path("", include("approvals.web.urls")),
]
