"""The site's addresses."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path
from django.views.decorators.http import require_safe
from django.views.generic import RedirectView

from durable_app.health import healthz, readyz

admin.site.site_header = admin.site.site_title = "Durable"
admin.site.index_title = "Everything that runs, waits and was decided"
admin.site.site_url = None  # there is nothing else to see yet

urlpatterns: list[URLPattern | URLResolver] = [
    path("", require_safe(RedirectView.as_view(pattern_name="admin:index"))),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("admin/", admin.site.urls),
]
