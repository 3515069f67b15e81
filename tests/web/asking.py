"""Workflows that ask people whatever a test wants asked, and what their page says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from typing import Any, Literal

from django.test import Client
from pydantic import BaseModel, Field, SecretStr

from approvals import Context, Effect, Evidence, Receipt, StoredFile, clock, workflow
from approvals import Decision as Answered
from approvals.models import Approval, Audience, Decision, Run, Wait
from approvals.services import decisions, policies, runs
from approvals.testing import drive, pending, people

TWO = {
    "slug": "two-reviewers",
    "rules": [{"stages": [{"name": "review", "needed": 2, "from": ["group:reviewers"]}]}],
    "exclude": ["requester", "starter"],
}


class Letter(BaseModel):
    to: str
    text: str = "Hello"
    copies: int = 1
    urgent: bool = False
    tags: list[str] = []
    token: SecretStr = SecretStr("hunter2-hunter2")


class Send(Effect[Letter]):
    kind = "web.send"
    policy = "one-reviewer"
    risk = "high"
    reversible = False

    def describe(self, request: Letter) -> str:
        return f"Send a letter to {request.to}."

    def target(self, request: Letter) -> str:
        return f"mail/{request.to}"

    def perform(self, request: Letter, key: str) -> Receipt[Letter]:
        return Receipt(f"letter:{key}")


class Answer(BaseModel):
    reason: Literal["goodwill", "fraud"]
    amount: int = Field(ge=1, le=10)
    notes: list[str] = []


class Proof(BaseModel):
    scan: StoredFile


class Unreadable(BaseModel):
    word: str = Field(pattern=r"\A\w+\z")


FORMS: dict[Any, Any] = {True: Answer, "proof": Proof, "unreadable": Unreadable}
_evidence: list[Evidence] = []


@workflow(name="web-letter", version=1, visible_to=["nobody"])
def letter(ctx: Context, request: Letter) -> str:
    sent = ctx.effect(
        "send",
        Send,
        request,
        title=f"Letter to {request.to}",
        summary="It is due.",
        evidence=tuple(_evidence),
    )
    return sent.external_id


@workflow(name="web-question", version=1, visible_to=["nobody"])
def question(ctx: Context, action: Any) -> dict[str, Any]:
    asked: dict[str, Any] = action if isinstance(action, dict) else {}
    decision: Answered[Any, Any] = ctx.approval(
        "ask",
        policy=asked.get("policy", "one-reviewer"),
        action=action,
        title=asked.get("title", "May I?"),
        evidence=tuple(_evidence),
        form=FORMS.get(asked.get("form")),
    )
    return {"outcome": decision.outcome, "comment": decision.comment}


def ask(to: str = "Ada", evidence: Sequence[Evidence] = (), **more: Any) -> Approval:
    """A letter that waits for one reviewer."""
    return _asked(letter, Letter(to=to, **more), evidence)


def ask_about(action: Any, evidence: Sequence[Evidence] = ()) -> Approval:
    """A question about any JSON."""
    return _asked(question, action, evidence)


def ask_two(**action: Any) -> Approval:
    """A question that two reviewers must answer."""
    policies.load(TWO)
    return ask_about({"policy": "two-reviewers", **action})


def _asked(what: Any, value: Any, evidence: Sequence[Evidence]) -> Approval:
    _evidence[:] = evidence
    run = runs.start(what, value, requester=people().requester)
    drive()
    return Approval.objects.select_related("wait").get(pk=pending(run)[0].id)


def copy(approval: Approval, times: int) -> None:
    """As many more of it, decisions and all, written without running anything."""
    for _ in range(times):
        run = Run.objects.get(pk=approval.wait.run_id)
        run.pk = clock.new_id()
        run.save(force_insert=True)
        wait = Wait.objects.get(pk=approval.pk)
        wait.pk, wait.run = clock.new_id(), run
        wait.save(force_insert=True)
        again = Approval.objects.get(pk=approval.pk)
        again.wait, again.effect = wait, None
        again.save(force_insert=True)
        for source in Audience.objects.filter(approval=approval).values_list("source", flat=True):
            Audience.objects.create(approval=again, source=source)
        for decision in Decision.objects.filter(approval=approval):
            decision.pk, decision.approval = clock.new_id(), again
            decision.save(force_insert=True)


def decide(approval: Approval, actor: Any, outcome: str = "approved", **more: Any) -> None:
    """Somebody decides by another door."""
    decisions.decide(
        approval.pk, actor=actor, outcome=outcome, digest=approval.digest, revision=1, channel="api", **more
    )


def url(approval: Approval, query: str = "") -> str:
    """The page's address."""
    return f"/approvals/{approval.pk}/{query}"


def post(client: Client, approval: Approval, outcome: str = "approved", query: str = "", **more: Any) -> Any:
    """Presses a button of the page, as it was when `approval` was read."""
    sent = {"outcome": outcome, "digest": approval.digest, "revision": approval.revision, **more}
    return client.post(
        url(approval, query), {name: value for name, value in sent.items() if value is not None}
    )


def state(approval: Approval) -> tuple[str, str, int]:
    """What became of it: status, outcome, decisions."""
    row = Approval.objects.select_related("wait").get(pk=approval.pk)
    return row.wait.status, row.wait.outcome, row.decisions.count()


def words(answer: Any) -> str:
    """What a page says, without its markup."""
    text = re.sub(r"<[^>]*>", " ", answer.content.decode())
    return re.sub(r" ([.,;])", r"\1", " ".join(unescape(text).split()))


def buttons(answer: Any) -> list[str]:
    """The outcomes that a page offers."""
    return re.findall(r'name="outcome" value="(\w+)"', answer.content.decode())
