"""The workflows that somebody sees, and the form that starts a run of one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID, uuid4

from django.http import HttpResponse

from approvals.errors import ApprovalsError, InvalidInput, NotFound, PermissionRefused, RunConflict
from approvals.queries import starting
from approvals.services import files, runs
from approvals.web import forms
from approvals.web.pages import Request, page, render, see_other

PREFIX = "input"
KEY_CHARACTERS = 200


@page("GET")
def workflows(request: Request) -> HttpResponse:
    """What can be started here, and by whom."""
    found = starting.listed(request.viewer)
    return render(request, "approvals/web/workflows.html", {"workflows": found}, tab="workflows")


@page("GET", "POST")
def start(request: Request, name: str) -> HttpResponse:
    """The form of a workflow's input; by POST it starts a run, adds a row or takes one away."""
    workflow = starting.one(request.viewer, name)
    if not workflow.may_start:
        told = f"{request.viewer.name} may not start {name}; {workflow.starters} may. Nothing was started."
        raise PermissionRefused(told, workflow=name)
    try:
        asked = starting.asked(name)
    except ApprovalsError as error:
        context = {"workflow": workflow, "broken": str(error)}
        return render(
            request, "approvals/web/start.html", context, tab="workflows", status=HTTPStatus.CONFLICT
        )
    form = _Form(request, workflow, asked)
    return form.sent() if request.method == "POST" else form.show()


class _Form:
    """One request to the form of one workflow."""

    def __init__(self, request: Request, workflow: starting.Listed, asked: starting.Asked) -> None:
        self.request, self.workflow, self.asked = request, workflow, asked
        self.post = forms.posted(request.POST)
        self.key = request.POST.get("key", "").strip()

    def show(
        self,
        *,
        post: forms.Post | None = None,
        problems: Mapping[str, str] | None = None,
        focus: str = "",
        status: int = 200,
        **more: Any,
    ) -> HttpResponse:
        """The form with its defaults, or as it was posted."""
        told = dict(problems or {})
        field = forms.fields(
            self.asked.schema,
            problems=told,
            prefix=PREFIX,
            post=post,
            label=forms.worded(self.asked.label),
            focus=focus,
        )
        shown = {
            "workflow": self.workflow,
            "field": field,
            "key": self.key,
            "key_problem": told.get("key", ""),
            "form_id": self._form_id() or uuid4(),
            **more,
        }
        return render(self.request, "approvals/web/start.html", shown, tab="workflows", status=status)

    def _form_id(self) -> UUID | None:
        try:
            return UUID(self.request.POST.get("form_id", ""))
        except ValueError:
            return None

    def sent(self) -> HttpResponse:
        """Starts a run and goes to it, or says what is wrong with what was sent."""
        if changed := forms.changed(self.post, PREFIX):
            post, focus = changed
            return self.show(post=post, focus=focus)
        if problem := self._wrong_key():
            return self._refuse({"key": problem})
        filled = forms.tree(
            self.asked.schema,
            self.post,
            self.request.FILES,
            PREFIX,
            keep=partial(files.keep, self.request.viewer.account),
        )
        if not filled.problems:
            return self._start(filled)
        refusal = starting.refusal(self.workflow.name, filled.tree)
        return self._refuse({**filled.blame(refusal), **filled.problems} if refusal else filled.problems)

    def _wrong_key(self) -> str:
        if len(self.key) > KEY_CHARACTERS:
            return f"This has {len(self.key)} characters; a key may have {KEY_CHARACTERS}."
        return "" if self.key.isprintable() else "This holds characters that cannot be seen."

    def _refuse(self, problems: Mapping[str, str]) -> HttpResponse:
        return self.show(post=self.post, problems=problems, status=HTTPStatus.UNPROCESSABLE_ENTITY)

    def _start(self, filled: forms.Filled) -> HttpResponse:
        # Sent twice (a double click), a form without a key of the person's own starts one run, not two.
        form_id = self._form_id()
        key = self.key or (starting.key_of_form(form_id) if form_id else None)
        try:
            run = runs.start_as(self.request.viewer.account, self.workflow.name, filled.tree, key=key)
        except (NotFound, PermissionRefused):
            raise
        except RunConflict as error:
            # With a number of its own, what was changed since is another run if it is sent again.
            return self.show(
                post=self.post, status=HTTPStatus.CONFLICT, earlier=error.values["run"], form_id=uuid4()
            )
        except InvalidInput as error:
            return self._refuse(filled.blame(error))
        except ApprovalsError as error:
            return self._refuse({PREFIX: str(error)})
        return see_other("run", run.id)
