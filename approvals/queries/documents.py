"""What commands and the API read, in the shapes of CONTRACT section 4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import F, Max, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Abs

from approvals import clock, facts, policy
from approvals.errors import NotFound
from approvals.models import (
    Approval,
    Effect,
    Entry,
    Message,
    Policy,
    PolicyVersion,
    Run,
    Wait,
    Worker,
)
from approvals.queries.quorums import quorum, stages_json
from approvals.states import NOT_UNDONE, SYNC_STEP, WaitKind, WaitStatus, durability
from approvals.types import Verification
from approvals.workflows.values import mask, masked

Json = dict[str, Any]
MISSING: str = Verification.MISSING.value
"""What a case says was found where nothing was."""


def _when(value: Any) -> str | None:
    return value.isoformat() if value is not None else None


def read(text: str | None) -> Any:
    """Stored JSON, secrets as dots."""
    return mask(text) if text else None


def run_json(run: Run, waits: Iterable[Wait]) -> Json:
    """A run."""
    return {
        "id": str(run.pk),
        "workflow": run.workflow,
        "version": run.version,
        "status": run.status,
        "key": run.key,
        "requester": run.requester_name or None,
        "input": read(run.input),
        "output": read(run.output),
        "error": json.loads(run.error) if run.error else None,
        "waits": [approval_json(w.approval) if hasattr(w, "approval") else wait_json(w) for w in waits],
        "created_at": _when(run.created_at),
        "finished_at": _when(run.finished_at),
        "progress": json.loads(run.progress) if run.progress else None,
        "worker": str(run.worker_id) if run.worker_id else None,
        "cancel_requested_at": _when(run.cancel_requested_at),
        "pause_requested_at": _when(run.pause_requested_at),
        "unwinding": run.unwinding or None,
        "parent": str(run.parent_run) if run.parent_run else None,
    }


@dataclass(frozen=True, slots=True)
class About:
    """The run and the effect that a case is about, as the sentence names them."""

    workflow: str
    version: int
    effect: str = ""
    kind: str = ""
    undoing: bool = False
    """Whether it is about undoing that effect."""


def sentence(why: str, case: Mapping[str, Any], about: About) -> str:
    """What happened, in one plain sentence."""
    effect = f"“{about.effect}” ({about.kind})" if about.effect else "an effect"
    raised = f"{case.get('type') or 'an exception'}{f' in {call}' if (call := case.get('call')) else ''}"
    last = f"; the last one, because {lost[-1]}" if (lost := case.get("lost")) else ""
    told = {
        "in doubt": f"It is not known whether {effect} {'was undone' if about.undoing else 'happened'}.",
        "contradicted": (
            f"What {effect} made is gone."
            if case.get("found") == MISSING
            else f"What {effect} made is no longer what its receipt says."
        ),
        "cannot tell": f"The receipt of {effect} could not be checked: the peer gives no answer.",
        NOT_UNDONE: f"{effect[0].upper()}{effect[1:]} could not be undone: {case.get('reason')}.",
        "crashed": f"The workflow's code raised {raised} at {case.get('where') or '?'}.",
        "replay diverged": f"Today's code does not do what the journal recorded at position {case.get('position')}.",
        "no progress": f"{case.get('turns_lost')} turns in a row were lost before any progress was made{last}.",
        "too old": f"It began {case.get('days')} days ago and would go on now; the limit is {case.get('limit')} days.",
        "version unknown": f"No live worker knows {about.workflow} version {about.version}.",
    }
    return told.get(why, f"The run stopped: {why}.")


def with_about(rows: QuerySet[Any]) -> QuerySet[Any]:
    """What the sentence of a case needs beside the case: of a compensation, what it undoes."""
    effect = Effect.objects.filter(run=OuterRef("run"), position=Abs(OuterRef("position")))
    found: QuerySet[Any] = rows.annotate(
        run_workflow=F("run__workflow"),
        run_version=F("run__version"),
        effect_name=Subquery(effect.values("name")[:1]),
        effect_kind=Subquery(effect.values("kind")[:1]),
    )
    return found


def about(case: Any) -> About:
    """Of a wait that was selected `with_about`."""
    name, kind = case.effect_name or "", case.effect_kind or ""
    return About(case.run_workflow, case.run_version, name, kind, undoing=case.position < 0)


def wait_json(wait: Any) -> Json:
    """A wait; a case's are to be selected `with_about`."""
    shown = {
        "id": str(wait.pk),
        "run_id": str(wait.run_id),
        "kind": wait.kind,
        "name": wait.name,
        "status": wait.status,
        "position": wait.position,
        "opened_at": _when(wait.opened_at),
        "expires_at": _when(wait.due_at),
        "outcome": wait.outcome or None,
    }
    if wait.kind == WaitKind.RECONCILIATION:
        shown["case"] = read(wait.data)
        shown["sentence"] = sentence(wait.name, shown["case"] or {}, about(wait))
    return shown


def approval_json(approval: Approval) -> Json:
    """An approval: its wait, and what people are asked. Prefetch wait, policy and decisions."""
    decisions = sorted(approval.decisions.all(), key=lambda d: (d.at, d.pk))
    result = quorum(approval)
    return wait_json(approval.wait) | {
        "title": approval.title,
        "sentence": approval.sentence,
        "summary": approval.summary,
        "kind_of_effect": approval.kind or None,
        "target": approval.target or None,
        "risk": approval.risk,
        "action": read(approval.action),
        "digest": approval.digest,
        "revision": approval.revision,
        "evidence": json.loads(approval.evidence),
        "policy": {"slug": approval.policy.slug, "version": approval.policy.version},
        "quorum": {"needed": result.needed, "got": result.got},
        **stages_json(approval, result),
        "invalidated": approval.invalidated or None,
        "decisions": [
            {
                "reviewer": d.reviewer_name,
                "outcome": d.outcome,
                "comment": d.comment,
                "at": _when(d.at),
                "channel": d.channel,
                "counted": facts.counts(d, approval),
            }
            for d in decisions
        ],
    }


def entry_json(entry: Entry) -> Json:
    """A line of a journal; values that hold secrets are masked."""
    data = json.loads(entry.data)
    # Only what closes a wait holds JSON as a text; what a step returned is its author's, whatever it looks like.
    if entry.kind.startswith("wait.") and isinstance(data.get("value"), str):
        data["value"] = json.loads(data["value"])
        if isinstance(data["value"], dict):
            for part in ("payload", "action", "output", "form"):
                if isinstance(data["value"].get(part), str) and data["value"][part]:
                    data["value"][part] = json.loads(data["value"][part])
    stored = durability(entry.kind)
    return {
        "position": entry.position,
        "seq": entry.seq,
        "kind": entry.kind.replace(SYNC_STEP, "step", 1) if stored else entry.kind,
        "name": entry.name,
        "digest": entry.digest or None,
        "at": _when(entry.at),
        "data": masked(data),
        **({"durability": stored} if stored else {}),
    }


def effect_json(effect: Effect) -> Json:
    """An effect and its receipt."""
    receipt = None
    if effect.external_id is not None:
        receipt = {
            "external_id": effect.external_id,
            "checksum": effect.checksum,
            "evidence": read(effect.evidence),
        }
    return {
        "position": effect.position,
        "name": effect.name,
        "kind": effect.kind,
        "status": effect.status,
        "compensates": -effect.position if effect.compensates_id else None,
        "key": effect.key,
        "request": read(effect.request),
        "receipt": receipt,
        "attempts": effect.calls,
        "sent_at": _when(effect.sent_at),
        "verified_at": _when(effect.verified_at),
        "reason": effect.reason or None,
    }


# --- looking things up -----------------------------------------------------------------------------


def _waits() -> QuerySet[Wait]:
    return (
        with_about(Wait.objects.select_related("approval__policy"))
        .prefetch_related("approval__decisions")
        .order_by("position", "ordinal")
    )


def run(run_id: UUID) -> Json:
    """A run with its entries and effects, in five queries. Raises NotFound."""
    row = Run.objects.filter(pk=run_id).first()
    if row is None:
        raise NotFound(run=run_id)
    shown = run_json(row, _waits().filter(run=row))
    shown["entries"] = [entry_json(e) for e in Entry.objects.filter(run=row).order_by("seq")]
    shown["effects"] = [effect_json(e) for e in effects_of(row)]
    shown["late_messages"] = [
        {"name": m.name, "id": m.message_id, "received_at": _when(m.received_at)}
        for m in Message.objects.filter(run=row, status=Message.Status.LATE)
    ]
    return shown


def effects_of(run: Run) -> list[Effect]:
    """Those of its code by position, then the compensations in the order in which they were made."""
    return sorted(Effect.objects.filter(run=run), key=lambda effect: (effect.position < 0, effect.position))


def runs(*, limit: int = 50, cursor: str | None = None, **filters: str) -> Json:
    """The newest runs first, with their open waits. `filters`: workflow, status, requester, key."""
    rows = Run.objects.order_by("-id")
    names = {"workflow": "workflow", "status": "status", "requester": "requester_name", "key": "key"}
    rows = rows.filter(**{names[k]: v for k, v in filters.items() if v})
    if cursor:
        rows = rows.filter(id__lt=UUID(cursor))
    open_waits = Prefetch("waits", _waits().filter(status=WaitStatus.OPEN), to_attr="open_waits")
    return _page(
        list(rows.prefetch_related(open_waits)[: limit + 1]), limit, lambda r: run_json(r, r.open_waits)
    )


def approvals(*, limit: int = 50, cursor: str | None = None, everything: bool = False) -> Json:
    """The open approvals (or all), the oldest first."""
    rows = Approval.objects.select_related("wait", "policy").prefetch_related("decisions").order_by("wait_id")
    if not everything:
        rows = rows.filter(wait__kind=WaitKind.APPROVAL, wait__status=WaitStatus.OPEN)
    if cursor:
        rows = rows.filter(wait_id__gt=UUID(cursor))
    return _page(list(rows[: limit + 1]), limit, approval_json)


def approval(wait_id: UUID) -> Json:
    """One approval. Raises NotFound."""
    row = (
        Approval.objects.select_related("wait", "policy")
        .prefetch_related("decisions")
        .filter(pk=wait_id)
        .first()
    )
    if row is None:
        raise NotFound(approval=wait_id)
    return approval_json(row)


def cases(*, limit: int = 50, cursor: str | None = None, everything: bool = False) -> Json:
    """The open reconciliations (or all), the oldest first."""
    rows = with_about(Wait.objects.filter(kind=WaitKind.RECONCILIATION)).order_by("id")
    if not everything:
        rows = rows.filter(status=WaitStatus.OPEN)
    if cursor:
        rows = rows.filter(id__gt=UUID(cursor))
    return _page(list(rows[: limit + 1]), limit, wait_json)


def case(wait_id: UUID) -> Json:
    """One reconciliation, with the effect that it is about. Raises NotFound."""
    row = with_about(Wait.objects.filter(pk=wait_id, kind=WaitKind.RECONCILIATION)).first()
    if row is None:
        raise NotFound(case=wait_id)
    shown = wait_json(row)
    told: Mapping[str, Any] = shown["case"] or {}
    effect = Effect.objects.filter(Q(pk=told["effect"])).first() if told.get("effect") else None
    shown["effect"] = effect_json(effect) if effect is not None else None
    return shown


def policy_json(version: PolicyVersion) -> Json:
    """A version of a policy, its body in the canonical form."""
    return {
        "slug": version.slug,
        "version": version.version,
        "digest": version.digest,
        "author": version.author_name or None,
        "created_at": _when(version.created_at),
        "body": policy.body(facts.read(version)),
    }


def policies() -> Json:
    """The policies that hold now; `one-reviewer` even before its first use."""
    rows = list(PolicyVersion.objects.filter(pk__in=Policy.objects.values("current")))
    if all(row.slug != policy.ONE_REVIEWER["slug"] for row in rows):
        rows += filter(None, [facts.version_of(policy.ONE_REVIEWER["slug"])])
    return {"items": [policy_json(row) for row in sorted(rows, key=lambda r: r.slug)], "next": None}


def policy_version(slug: str, version: int | None = None) -> Json:
    """One version of a policy, or the one that holds now. Raises NotFound."""
    row = facts.version_of(slug, version)
    if row is None:
        raise NotFound("There is no such policy", policy=slug, **({"version": version} if version else {}))
    return policy_json(row)


def pending_migrations() -> list[str]:
    """What `migrate` would apply."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def workers() -> list[Json]:
    """The live workers; `silent_seconds` since the last renewal of their lease."""
    now, lease = clock.now(), float(getattr(settings, "APPROVALS_LEASE_SECONDS", 15))
    rows = Worker.objects.filter(stopped_at=None, lease_until__gt=now).order_by("started_at")
    return [
        {
            "id": str(row.pk),
            "name": row.name,
            "queue": row.queue,
            "started_at": _when(row.started_at),
            "silent_seconds": max(0.0, lease - (row.lease_until - now).total_seconds()),
        }
        for row in rows
    ]


def sweep_age_seconds() -> float | None:
    """How long ago any worker's last sweep was, to a few seconds; None if there never was one."""
    last = Worker.objects.aggregate(last=Max("swept_at"))["last"]
    return None if last is None else max(0.0, (clock.now() - last).total_seconds())


def _page(rows: list[Any], limit: int, show: Any) -> Json:
    more = len(rows) > limit
    rows = rows[:limit]
    return {"items": [show(r) for r in rows], "next": str(rows[-1].pk) if more else None}
