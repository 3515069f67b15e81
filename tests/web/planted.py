"""Markup in every text that an agent, an author or a person can put somewhere, each with a number of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from django.contrib.auth.models import Group, Permission, User
from pydantic import BaseModel, Field

from approvals import (
    Check,
    Context,
    Diff,
    Effect,
    Evidence,
    Failed,
    Json,
    Link,
    Object,
    Receipt,
    StoredFile,
    Text,
    workflow,
)
from approvals.errors import StepFailed
from approvals.models import Approval, Run
from approvals.services import decisions, policies, runs
from approvals.testing import drive, pending

PLANTED: dict[str, int] = {}
"""Where there is a marker, and its number."""


def plant(what: str) -> str:
    """Markup that does something wherever it comes unescaped, in a text or in a value in quotes; one for each place."""
    return f"<img src=x onerror=x{PLANTED.setdefault(what, len(PLANTED))}x>\"'"


class Answer(BaseModel):
    reason: Annotated[
        str, Field(title=plant("title of a field"), description=plant("description of a field"))
    ]
    choice: Annotated[str, Field(json_schema_extra={"enum": ["a", plant("choice of a field")]})] = "a"


class Ask(Effect[dict[str, Any]]):
    kind = plant("kind of an effect")
    policy = "planted"
    risk = "high"

    def describe(self, request: dict[str, Any]) -> str:
        return plant("description of an effect")

    def target(self, request: dict[str, Any]) -> str:
        return TARGET

    def perform(self, request: dict[str, Any], key: str) -> Receipt[dict[str, Any]]:
        return Receipt(
            plant("id of a receipt"), checksum=plant("checksum"), evidence={plant("evidence of a receipt"): 1}
        )


TARGET, RETRIED = plant("target"), plant("error of an attempt")


class Doubtful(Effect[str]):
    kind = "planted.doubt"

    def perform(self, request: str, key: str) -> Receipt[str]:
        raise OSError(plant("error of a call"))


def evidence() -> Iterator[Evidence]:
    yield Check(plant("label of a check"), False, plant("detail of a check"))
    yield Text(plant("title of a text"), plant("body of a text"))
    yield Link(
        plant("title of a link"), "https://example.org/?" + plant("address of a link").replace(" ", "_")
    )
    yield Json(plant("title of a JSON"), {plant("key in a JSON"): plant("value in a JSON")})
    yield Diff(plant("title of a diff"), {plant("key of a diff"): plant("before")}, {"b": plant("after")})
    yield Object(plant("title of a file"), StoredFile.put(b"x", plant("name of a file")))


def fails() -> None:
    raise ValueError(RETRIED)


@workflow(name="planted", version=1, startable_by=[plant("group of starters")])
def planted(ctx: Context, given: dict[str, Any]) -> Any:
    try:
        ctx.step(plant("name of a step"), fails)
    except StepFailed:
        ctx.progress(1, 2, plant("progress"))
    ctx.step("a result", lambda: plant("result of a step"))
    ctx.effect(plant("name of an effect"), Ask, given, title=plant("title"), summary=plant("summary"),
               evidence=list(evidence()))  # fmt: skip
    ctx.approval("ask", policy="planted", action=plant("action"), title="A form", form=Answer)
    ctx.signal(plant("name of a signal"), schema=str)
    return {plant("key of an output"): plant("value of an output")}


planted.__doc__ = plant("summary of a workflow")


@workflow(name="planted-end", version=1)
def ends(ctx: Context, how: str) -> None:
    if how == "failed":
        raise Failed(plant("verdict"))
    if how == "doubt":
        ctx.effect("send", Doubtful, plant("request"))
    raise KeyError(plant("error of a bug"))


def world() -> tuple[User, Approval]:
    """All of it; who looks, and an approval that is open."""
    viewer = User.objects.create(username=plant("name of a reviewer"), is_staff=True, is_superuser=True)
    viewer.groups.add(Group.objects.create(name=plant("group of reviewers").replace(" ", "_")))
    viewer.user_permissions.set(Permission.objects.filter(content_type__app_label="approvals"))
    rita = User.objects.create(username=plant("name of a requester"))
    group = viewer.groups.get().name
    policies.load({"slug": "planted", "rules": [{"stages": [{"needed": 1, "from": [f"group:{group}"]}]}]})
    given = {plant("key of an input"): [plant("value of an input")]}
    for key in (plant("key of a run"), "another"):  # one is decided, the other waits
        runs.start(planted, given, requester=rita, key=key, tags=[plant("tag")])
    for how in ("failed", "doubt", "bug"):
        runs.start(ends, how)
    drive()
    run = Run.objects.filter(workflow="planted").earliest("id")
    for comment, form in (
        (plant("comment"), None),
        (plant("comment on a question"), {"reason": plant("answer")}),
    ):
        (asked,) = pending(run)
        said: Any = {"outcome": "approved", "digest": asked.digest, "comment": comment, "form": form}
        decisions.decide(asked.id, actor=viewer, **said)
        drive()
    return viewer, Approval.objects.filter(wait__status="open").earliest("wait__opened_at")
