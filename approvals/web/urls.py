"""The addresses of the pages (CONTRACT section 6)."""

from __future__ import annotations

from django.urls import URLPattern, path

from approvals.web import approval, files, inbox, keys, reconciliations, runs, signing, workflows

urlpatterns: list[URLPattern] = [
    path("", inbox.inbox, name="inbox"),
    path("keys/", keys.keys, name="keys"),
    path("approvals/<uuid:wait_id>/", approval.approval, name="approval"),
    path("approvals/<uuid:wait_id>/files/<str:file_id>/", files.of_approval, name="approval-file"),
    path("runs/", runs.runs, name="runs"),
    path("runs/<uuid:run_id>/", runs.run, name="run"),
    path("runs/<uuid:run_id>/files/<str:file_id>/", files.of_run, name="run-file"),
    path("workflows/", workflows.workflows, name="workflows"),
    path("workflows/<str:name>/start/", workflows.start, name="start"),
    path("reconciliations/", reconciliations.reconciliations, name="reconciliations"),
    path("sign-in/", signing.SignIn.as_view(), name="sign-in"),
    path("sign-out/", signing.SignOut.as_view(), name="sign-out"),
]
