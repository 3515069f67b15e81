"""All that the page of one approval shows, in a fixed number of queries."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from approvals import clock, facts, policy
from approvals.errors import NotFound
from approvals.models import Approval, Decision, Effect, Entry, Run, Wait
from approvals.queries import access, trees
from approvals.queries.quorums import eligible
from approvals.states import RUN_FINAL, STEP_FAILURES, STEP_RESULTS, EffectStatus, WaitStatus
from approvals.types import evidence_from_json

HAPPENED = 12
"""The latest lines of the run that are shown here; its own page has all."""
_EXCLUDED = {"asked for it": "requester", "started the run": "starter", "edited it": "editor"}


@dataclass(frozen=True, slots=True)
class Said:
    """What one person decided. `counts`: about the present revision, and standing."""

    reviewer: str
    outcome: str
    comment: str
    at: datetime
    channel: str
    stage: str
    counts: bool
    is_withdrawn: bool
    is_own: bool
    form: Any


@dataclass(frozen=True, slots=True)
class Needed:
    """How many approvals are needed from whom."""

    needed: int
    got: int
    sources: tuple[str, ...]

    @property
    def open(self) -> int:
        """How many are still needed."""
        return self.needed - self.got


@dataclass(frozen=True, slots=True)
class Asked:
    """A stage: all that it needs. `is_later`: its people are asked once the earlier ones are met."""

    name: str
    needs: tuple[Needed, ...]
    is_later: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """What the policy says beside who is asked."""

    slug: str
    version: int
    on_expiry: str
    respond_within: timedelta | None
    valid_for: timedelta | None


@dataclass(frozen=True, slots=True)
class Happened:
    """One position of the run: a step, an effect, or this approval itself."""

    kind: str
    name: str
    status: str
    at: datetime | None
    external_id: str = ""
    checksum: str = ""
    verified_at: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class About:
    """The run that asks."""

    id: UUID
    workflow: str
    version: int
    requester: str
    status: str
    is_over: bool


@dataclass(frozen=True, slots=True)
class Sheet:
    """One approval. What is open may be decided; what is due and still open has expired, whoever says so."""

    id: UUID
    now: datetime
    name: str
    title: str
    sentence: str
    summary: str
    kind: str
    target: str
    action: Any
    digest: str
    revision: int
    risk: str
    reversible: bool
    evidence: tuple[dict[str, Any], ...]
    form: Any
    """JSON schema of what a reviewer fills in; None: nothing."""
    run: About
    terms: Terms
    stages: tuple[Asked, ...]
    comment_required: frozenset[str]
    """Outcomes that nobody may decide for without a comment."""
    reject_after: int
    needed: int
    got: int
    decisions: tuple[Said, ...]
    own: Said | None
    """What the viewer decided, if it counts."""
    is_open: bool
    outcome: str
    """Empty while it is open."""
    opened_at: datetime
    due_at: datetime | None
    closed_at: datetime | None
    invalidated: str
    may_decide: bool
    why_not: str
    """Why the viewer may not, after their name."""
    happened: tuple[Happened, ...]
    has_earlier: bool


def sheet(viewer: access.Viewer, wait_id: UUID) -> Sheet:
    """The approval as this person may see it. Five queries. Raises NotFound."""
    now = clock.now()
    row = (
        access.approvals(viewer)
        .filter(pk=wait_id)
        .select_related("wait__run", "policy")
        .prefetch_related("decisions")
        .first()
    )
    if row is None:
        raise NotFound(approval=wait_id)
    wait, run, rules = row.wait, row.wait.run, facts.read(row.policy)
    said = sorted(row.decisions.all(), key=lambda d: (d.at, d.pk))
    shown = tuple(_said(d, row, viewer) for d in said)
    tally, rule, may = facts.quorum(row), facts.rule(row), eligible(row, viewer.person)
    happened, has_earlier = _happened(run, wait, row)
    is_over = wait.due_at is not None and wait.due_at <= now
    return Sheet(
        id=wait.pk,
        now=now,
        name=wait.name,
        title=row.title,
        sentence=row.sentence,
        summary=row.summary,
        kind=row.kind,
        target=row.target,
        action=trees.read(row.action),
        digest=row.digest,
        revision=row.revision,
        risk=row.risk,
        reversible=row.reversible,
        evidence=_evidence(row),
        form=json.loads(row.form) if row.form else None,
        run=About(
            run.pk,
            run.workflow,
            row.workflow_version,
            run.requester_name,
            run.status,
            run.status in RUN_FINAL,
        ),
        terms=Terms(
            row.policy.slug, row.policy.version, rules.on_expiry, rules.respond_within, rules.valid_for
        ),
        stages=_stages(rule, tally),
        comment_required=rule.comment_required,
        reject_after=rule.reject_after,
        needed=tally.needed,
        got=tally.got,
        decisions=shown,
        own=next((d for d in shown if d.is_own and d.counts), None),
        is_open=wait.status == WaitStatus.OPEN and not is_over,
        outcome=wait.outcome or wait.status if wait.status != WaitStatus.OPEN else "expired" * is_over,
        opened_at=wait.opened_at,
        due_at=wait.due_at,
        closed_at=wait.closed_at or (wait.due_at if is_over else None),
        invalidated=row.invalidated,
        may_decide=may.ok,
        why_not=_told(may, row),
        happened=happened,
        has_earlier=has_earlier,
    )


def _told(may: policy.Eligibility, row: Approval) -> str:
    excluded = _EXCLUDED.get(may.reason)
    if may.ok or excluded is None:
        return may.reason
    return f"{may.reason}, and policy {row.policy.slug} excludes the {excluded}"


def _said(decision: Decision, row: Approval, viewer: access.Viewer) -> Said:
    stages = facts.rule(row).stages
    return Said(
        reviewer=decision.reviewer_name,
        outcome=decision.outcome,
        comment=decision.comment,
        at=decision.at,
        channel=decision.channel,
        stage=stages[decision.stage].name if len(stages) > 1 and decision.stage < len(stages) else "",
        counts=facts.counts(decision, row),
        is_withdrawn=decision.withdrawn_at is not None,
        is_own=decision.reviewer_id == viewer.account.pk,
        form=trees.read(decision.form),
    )


def _stages(rule: policy.Rule, tally: policy.Tally) -> tuple[Asked, ...]:
    """Each stage with how many count in it."""
    return tuple(
        Asked(
            stage.name,
            tuple(
                Needed(need.needed, count, need.sources) for need, count in zip(stage.needs, got, strict=True)
            ),
            is_later=tally.stage is not None and index > tally.stage,
        )
        for index, (stage, got) in enumerate(zip(rule.stages, tally.progress, strict=True))
    )


def _evidence(row: Approval) -> tuple[dict[str, Any], ...]:
    """Each item by its kind; what fits none is shown as JSON."""
    items = evidence_from_json(trees.read(row.evidence))
    return tuple(
        {"type": item.type, **{f.name: _plain(getattr(item, f.name)) for f in fields(item)}} for item in items
    )


def _plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else value


def _happened(run: Run, wait: Wait, row: Approval) -> tuple[tuple[Happened, ...], bool]:
    """The latest lines of the run in the order of its positions, and whether there are earlier ones."""
    steps = Entry.objects.filter(run=run, kind__in=STEP_RESULTS + STEP_FAILURES).order_by("-seq")
    effects = Effect.objects.filter(run=run).defer("request", "evidence").order_by("-position")
    lines = [(e.position or 0, _step(e)) for e in steps.defer("data")[: HAPPENED + 1]]
    lines += [(e.position, _effect(e)) for e in effects[: HAPPENED + 1]]
    asks_for_itself = all(position != wait.position for position, _ in lines)
    if asks_for_itself:
        status = "waiting" if wait.status == WaitStatus.OPEN else wait.outcome or wait.status
        lines.append((wait.position, Happened("wait", wait.name, status, wait.opened_at)))
    lines.sort(key=lambda line: line[0])
    return tuple(line for _, line in lines[-HAPPENED:]), len(lines) > HAPPENED


def _step(entry: Entry) -> Happened:
    status = "failed" if entry.kind.endswith(".fail") else "done"
    return Happened("step", entry.name, status, entry.at)


_SENT = frozenset(EffectStatus) - {EffectStatus.INTENDED, EffectStatus.WITHDRAWN}


def _effect(effect: Effect) -> Happened:
    return Happened(
        "effect",
        effect.name,
        effect.status,
        effect.sent_at if effect.status in _SENT else None,
        external_id=effect.external_id or "",
        checksum=effect.checksum or "",
        verified_at=effect.verified_at,
        reason=effect.reason,
    )
