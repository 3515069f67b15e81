"""Reads the invariants of ARCHITECTURE.md off the database and the ledgers of replaced peers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from approvals.models import Approval, Decision, Effect, Entry, Run, Wait
from approvals.states import RUN_FINAL, EffectStatus, RunStatus, WaitKind, WaitStatus, next_state


def problems(peers: Sequence[tuple[type, Any]]) -> list[str]:
    """Every invariant that does not hold, in words."""
    found: list[str] = []
    for _, ledger in peers:
        found += _applied_once(ledger)
    for run in Run.objects.all():
        found += _of_run(run)
    return found


def _applied_once(ledger: Any) -> Iterator[str]:
    for key, times in Counter(ledger.keys).items():
        if times > 1:
            yield f"I1: {key} was applied {times} times"
    never = {EffectStatus.WITHDRAWN, EffectStatus.REFUSED}
    for effect in Effect.objects.filter(key__in=set(ledger.keys), status__in=never):
        yield f"I6: {effect.key} is {effect.status} and was applied"
    for request, key in zip(ledger.requests, ledger.keys, strict=True):
        intent = Effect.objects.filter(key=key).first()
        if intent is None:
            yield f"I2: {key} was applied without an intent"
        elif intent.policies != "[]" and not _was_allowed(intent):
            yield f"I2: {key} was applied without an approval of exactly it: {request!r}"


def _was_allowed(effect: Effect) -> bool:
    """Each pinned policy has an approval of these bytes that this effect consumed, or decided by itself."""
    from approvals import facts, policy
    from approvals.models import PolicyVersion

    for pin in json.loads(effect.policies):
        used = Approval.objects.filter(
            effect=effect, policy__slug=pin["slug"], digest=effect.digest, consumed_by=effect
        )
        if used.filter(wait__outcome="approved").exists():
            continue
        version = PolicyVersion.objects.get(slug=pin["slug"], version=pin["version"])
        if policy.choose(facts.read(version), facts.of_effect(effect.run, effect)).kind != "automatic":
            return False
    return True


def _of_run(run: Run) -> Iterator[str]:
    entries = list(Entry.objects.filter(run=run).order_by("seq"))
    yield from _fold(run, entries)
    effects = Counter(Effect.objects.filter(run=run).values_list("status", flat=True))
    if run.status != RunStatus.RUNNING and effects[EffectStatus.DISPATCHED]:
        yield f"I4: {run} is {run.status} with a dispatched effect"
    open_waits = Wait.objects.filter(run=run, status=WaitStatus.OPEN)
    unsettled = (
        EffectStatus.INTENDED,
        EffectStatus.DISPATCHED,
        EffectStatus.IN_DOUBT,
        EffectStatus.CONTRADICTED,
    )
    if run.status == RunStatus.COMPLETED and (open_waits.exists() or any(effects[s] for s in unsettled)):
        yield f"I5: {run} is completed with something open: {dict(effects)}"
    if run.status == RunStatus.SUSPENDED and not open_waits.exclude(parked=Wait.NOT_PARKED).exists():
        yield f"I12: {run} is suspended on nothing"
    if run.status in RUN_FINAL and open_waits.exists():
        yield f"I5: {run} is {run.status} with open waits"
    yield from _decisions(run)
    yield from _replay(run)


def _fold(run: Run, entries: Sequence[Entry]) -> Iterator[str]:
    """I7 and I3: the status is the fold of the journal, and nothing leaves a final state. I8: see `fence`."""
    if [e.seq for e in entries] != list(range(1, run.seq + 1)):
        yield f"I7: {run} has gaps in its journal"
    states: dict[str, str | None] = {"run": None}
    claims = 0
    for entry in entries:
        machine, _, event = entry.kind.partition(".")
        if machine not in ("run", "effect", "wait") or event in ("cancel_asked", "pause_asked"):
            continue
        claims += entry.kind == "run.claim"
        key = "run" if machine == "run" else json.loads(entry.data)["id"]
        to = next_state(machine, states.get(key), event)  # type: ignore[arg-type]
        if to is None:
            yield f"I3: {run}: {entry.kind} from {states.get(key)} at {entry.seq}"
            return
        states[key] = to
    if states["run"] != run.status:
        yield f"I7: {run} is {run.status}, its journal says {states['run']}"
    if claims != run.fence:
        yield f"I8: {run} was claimed {claims} times and has fence {run.fence}"
    rows: list[Effect | Wait] = [*Effect.objects.filter(run=run), *Wait.objects.filter(run=run)]
    for row in rows:
        if states.get(str(row.pk)) != row.status:
            yield f"I7: {row!r} is {row.status}, its journal says {states.get(str(row.pk))}"


def _decisions(run: Run) -> Iterator[str]:
    for wait in Wait.objects.filter(run=run, kind=WaitKind.APPROVAL, status=WaitStatus.EXPIRED):
        if wait.outcome != "expired":
            yield f"I13: {wait} expired with the outcome {wait.outcome}"
    late = Decision.objects.filter(approval__wait__run=run, approval__wait__closed_at__isnull=False)
    for decision in late.select_related("approval__wait"):
        closed = decision.approval.wait.closed_at
        if closed is not None and decision.at > closed:
            yield f"I13: {decision} came after its approval closed"


def _replay(run: Run) -> Iterator[str]:
    """I10: the code gives the same entries again."""
    from approvals.engine.replay import replay
    from approvals.errors import UnknownVersion

    if run.status == RunStatus.RUNNING:
        return
    case = Wait.objects.filter(run=run, status=WaitStatus.OPEN, kind=WaitKind.RECONCILIATION)
    if case.filter(name__in=("replay diverged", "crashed", "version unknown")).exists():
        return
    try:
        report = replay(run.pk)
    except UnknownVersion:
        return
    if not report.same:
        yield f"I10: {run}: {report.difference}"
