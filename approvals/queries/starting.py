"""Which workflows somebody may start, and what each asks for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.errors import InvalidInput, NotFound
from approvals.queries import access
from approvals.workflows import registry

_FORM = "form-"


def key_of_form(form_id: UUID) -> str:
    """The start key of a form that was filled in without a key: sent twice, it starts one run."""
    return f"{_FORM}{form_id}"


def own_key(key: str | None) -> str:
    """The key that somebody chose for a run; empty if there is none, or only that of a form."""
    return "" if not key or key.startswith(_FORM) else key


@dataclass(frozen=True, slots=True)
class Listed:
    """A workflow at the version that new runs start at."""

    name: str
    version: int
    summary: str
    """The first paragraph of its docstring, on one line."""
    may_start: bool
    starters: str
    """Who may start it, in words."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a workflow must be given."""

    schema: Mapping[str, Any]
    label: str
    """The name that its author gave the input."""


def listed(viewer: access.Viewer) -> list[Listed]:
    """The workflows they see, by name. No query."""
    return [_listed(viewer, workflow) for workflow in access.workflows(viewer)]


def one(viewer: access.Viewer, name: str) -> Listed:
    """One of these. No query. Raises NotFound for what they do not see."""
    for workflow in access.workflows(viewer):
        if workflow.name == name:
            return _listed(viewer, workflow)
    raise NotFound("There is no such workflow, or it is not yours to see", workflow=name)


def asked(name: str) -> Asked:
    """Raises UnknownWorkflow; NotSerializable or InvalidWorkflow where its code names no type that can be kept."""
    workflow = registry.get(name)
    parameters = list(inspect.signature(workflow.fn).parameters)
    return Asked(workflow.input.schema(), parameters[1] if len(parameters) > 1 else "input")


def refusal(name: str, tree: Any) -> InvalidInput | None:
    """What the workflow's own type has against this input; nothing is started. Raises UnknownWorkflow."""
    try:
        registry.get(name).input.accept(tree, what=f"the input of {name}")
    except InvalidInput as error:
        return error
    return None


def _listed(viewer: access.Viewer, workflow: registry.Workflow[Any, Any]) -> Listed:
    paragraph = inspect.cleandoc(workflow.__doc__ or "").partition("\n\n")[0]
    return Listed(
        workflow.name,
        workflow.version,
        " ".join(paragraph.split()),
        access.may_start(viewer, workflow),
        _starters(workflow.startable_by),
    )


def _starters(groups: tuple[str, ...]) -> str:
    if not groups:
        return "staff, and whoever has the right to start runs"
    return f"members of {' or '.join(groups)}"
