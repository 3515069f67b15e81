"""Posing a question to people: what an approval says, and by which policy."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from approvals import facts, policy
from approvals.errors import UnknownPolicy
from approvals.models import Approval, PolicyVersion, Wait
from approvals.transitions import Transaction
from approvals.transitions import waits as events
from approvals.types import evidence_to_json
from approvals.workflows import values
from approvals.workflows.asked import shown_text
from approvals.workflows.effects import Effect


def action_codec(effect: Effect[Any] | None, action: Any) -> values.Codec[Any]:
    """How an action is stored: by the effect's request type, else by its own.

    An effect that names no type (`Effect` without brackets) takes plain JSON only: a worker that settles
    doubt must be able to read the request back without the workflow's help.
    """
    if effect is not None:
        return values.codec_for(values.effect_request_type(type(effect)))
    if isinstance(action, BaseModel) or dataclasses.is_dataclass(action):
        return values.codec_for(type(action))
    return values.codec_for(Any)


def said(author: Effect[Any], name: str, action: Any) -> tuple[str, str]:
    """What the author's code says of an action: its target, and the sentence for reviewers.

    Raises NotSerializable or PayloadTooLarge for what is no text that can be kept.
    """
    target = shown_text(f"the target of {name!r}", author.target(action))
    return target, shown_text(f"the description of {name!r}", author.describe(action))


def approval_of(
    effect: Effect[Any] | None,
    name: str,
    kind: str,
    target: str,
    text: str,
    digest: str,
    sentence: str,
    ask: Mapping[str, Any],
) -> Approval:
    """The row that says what people are asked; its policy and its wait come with `pose`.

    Raises NotSerializable or PayloadTooLarge (what) for a title, summary or evidence that cannot be kept.
    """
    form = ask.get("form")
    evidence = json.dumps(evidence_to_json(list(ask.get("evidence") or ())), ensure_ascii=True)
    return Approval(
        kind=kind,
        target=target,
        action=text,
        digest=digest,
        title=shown_text(f"the title of {name!r}", ask.get("title") or sentence or kind),
        sentence=sentence,
        summary=shown_text(f"the summary of {name!r}", ask.get("summary") or ""),
        evidence=shown_text(f"the evidence of {name!r}", evidence),
        form=json.dumps(values.codec_for(form).schema()) if form is not None else "",
        risk=effect.risk if effect is not None else "low",
        reversible=effect.reversible if effect is not None else True,
    )


def verdict_on(
    tx: Transaction, version: PolicyVersion, approval: Approval
) -> tuple[policy.Policy, policy.Verdict]:
    """What a policy says of an approval that stands by itself."""
    seen = facts.of_question(tx.run, approval.action)
    about = {
        "kind": approval.kind,
        "target": approval.target,
        "risk": approval.risk,
        "reversible": approval.reversible,
    }
    if approval.kind:
        seen = policy.Facts(seen.action, about, seen.run, seen.requester)
    rules = facts.read(version)
    return rules, policy.choose(rules, seen)


def pose(
    tx: Transaction,
    wait: Wait,
    approval: Approval,
    version: PolicyVersion,
    rules: policy.Policy,
    verdict: policy.Verdict,
    *,
    workflow_version: int,
    **data: Any,
) -> None:
    """Opens the approval; a policy that decides by itself closes it in the same breath."""
    if verdict.rule is None:
        raise UnknownPolicy(policy=version.slug)
    approval.policy = version
    approval.rule = verdict.rule
    approval.workflow_version = workflow_version
    approval.excludes_requester = not rules.exclude.isdisjoint(("requester", "starter"))
    approval.needed = sum(stage.needed for stage in verdict.stages)
    if rules.respond_within is not None:
        wait.due_at = tx.now + rules.respond_within
    events.open_(tx, wait, approval, policy=version.slug, policy_version=version.version, **data)
    if verdict.kind == "automatic":
        events.resolve(tx, wait, "approved", events.outcome_of(approval, [], "approved", verdict.reason))
