"""Settling what only an operator can: each case is a wait, each answer one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from approvals import outbox
from approvals.errors import (
    AlreadyDecided,
    ApprovalsError,
    IllegalTransition,
    InvalidInput,
    NotFound,
    NotSerializable,
    PayloadTooLarge,
    UnknownVersion,
    WaitClosed,
    fit,
)
from approvals.models import Effect, Outbox, Wait
from approvals.services.actors import name_of, require
from approvals.states import (
    EFFECT_DONE,
    NOT_UNDONE,
    EffectStatus,
    RunStatus,
    WaitKind,
    WaitStatus,
    resolutions,
)
from approvals.transitions import Transaction, effects, locked, runs, waits
from approvals.transitions.effects import ReceiptData
from approvals.workflows import registry, values
from approvals.workflows.asked import shown_text


def resolve(
    wait_id: UUID,
    *,
    actor: Any,
    resolution: str,
    note: str,
    external_id: str | None = None,
    checksum: str | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> None:
    """Settles a case; the run goes on, or fails.

    in doubt: `confirm` (it happened: `external_id`, and `checksum` or `evidence` where there are),
    `disprove` (it did not; not before the call's deadline and grace), `fail`. contradicted: `accept` (what
    is there is right), `confirm` (the receipt is right after all), `redo` (what is gone is done again),
    `fail`. not undone: `resume` (it is tried again; not where people refused it), `accept` (it is let be, or was
    undone by hand), `fail`. Every other case: `resume` on mended code or world, or `fail`.

    A run that compensates undoes what it did before it fails; `fail` said meanwhile ends it as things are.

    Raises NotFound, PermissionRefused, InvalidInput, WaitClosed or AlreadyDecided, IllegalTransition.
    """
    require(actor, "approvals.operate")
    note = fit(note)
    if not note.strip():
        raise InvalidInput("Say in the note what you saw and why you decide so; it stays with the run")
    run_id = (
        Wait.objects.filter(pk=wait_id, kind=WaitKind.RECONCILIATION).values_list("run_id", flat=True).first()
    )
    if run_id is None:
        raise NotFound("There is no such case", wait=wait_id)
    problem: ApprovalsError | None = None
    with locked(run_id) as tx:
        waits.apply_due(tx)
        wait = Wait.objects.get(pk=wait_id)
        if wait.status != WaitStatus.OPEN:
            problem = _closed(wait)
        else:
            _check(wait, resolution)
            _settle(tx, wait, actor, resolution, note, _receipt(external_id, checksum, evidence))
    if problem is not None:
        raise problem


def _check(wait: Wait, resolution: str) -> None:
    allowed = resolutions(wait.name)
    if resolution not in allowed:
        raise InvalidInput(
            f"A case '{wait.name}' is settled by one of {', '.join(allowed)}", found=resolution
        )
    if wait.name == NOT_UNDONE and resolution == "resume" and "ended" in json.loads(wait.data):
        raise InvalidInput("Undoing it was refused for good; let it be (accept), or fail the run")


def _receipt(
    external_id: str | None, checksum: str | None, evidence: Mapping[str, Any] | None
) -> ReceiptData | None:
    if not external_id:
        return None
    try:
        for what, text in (("the external id", external_id), ("the checksum", checksum or "")):
            shown_text(what, text)
        kept = values.codec_for(Any).roundtrip(dict(evidence or {}), what="the evidence")[0]
    except (NotSerializable, PayloadTooLarge) as error:
        raise InvalidInput(f"This receipt cannot be kept: {error}") from None
    return ReceiptData(external_id, checksum or None, kept)


def _settle(
    tx: Transaction, wait: Wait, actor: Any, resolution: str, note: str, receipt: ReceiptData | None
) -> None:
    by = name_of(actor)
    told = {"resolution": resolution, "note": note, "by": by}
    if resolution == "fail":
        if tx.run.status != RunStatus.SUSPENDED:
            raise IllegalTransition(
                "The run does not stand at this case any more; cancel it instead",
                run=tx.run.pk,
                status=tx.run.status,
            )
        wait.parked = Wait.NOT_PARKED  # it ends the run, so it must not wake it
        waits.resolve(tx, wait, "fail", told)
        undo = _undoes(tx)
        runs.fail(tx, type="Failed", message=f"an operator: {note}", code="operator", actor=by, undo=undo)
        return
    if resolution != "resume":
        _settle_effect(tx, wait, resolution, note, by, receipt)
    tx.set(turns_lost=0)
    waits.resolve(tx, wait, resolution, told)


def _undoes(tx: Transaction) -> bool:
    """Whether it was asked to undo what it did, or today's code says that it does so when it fails."""
    if tx.run.unwinding:
        return True
    try:
        return registry.resolve(tx.run.workflow, tx.run.version).compensate
    except UnknownVersion:  # nobody could: the operator was told that it stays as it is
        return False


def _settle_effect(
    tx: Transaction, wait: Wait, resolution: str, note: str, by: str, receipt: ReceiptData | None
) -> None:
    case = json.loads(wait.data)
    effect = Effect.objects.select_for_update().get(pk=case["effect"])
    if wait.name == NOT_UNDONE:
        effects.let_be(tx, effect, by=by, note=note)
        return
    if resolution == "confirm" and effect.status == EffectStatus.IN_DOUBT:
        if receipt is None:
            raise InvalidInput(
                "To confirm, give the external id that the peer shows for it",
                effect=effect.pk,
                missing="external_id",
            )
        effects.confirm(tx, effect, receipt, by=f"{by}: {note}")
    elif resolution == "confirm" and effect.status in EFFECT_DONE:
        effects.verify(tx, effect, by=f"{by}: {note}")
    elif resolution == "confirm":
        effects.confirm(
            tx,
            effect,
            ReceiptData(effect.external_id or "", effect.checksum, effect.evidence),
            by=f"{by}: {note}",
        )
    elif resolution == "disprove":
        effects.disprove(tx, effect, by=f"{by}: {note}")
    elif resolution == "accept":
        effects.accept(tx, effect, by=by, note=note, seen={"seen": case.get("seen")})
    else:
        for approval_wait in Wait.objects.filter(
            run=tx.run, approval__effect=effect, approval__invalidated="", outcome="approved"
        ):
            waits.invalidate(tx, approval_wait, approval_wait.approval, "the effect is done again")
        effects.redo(tx, effect, by=by)


def _closed(wait: Wait) -> ApprovalsError:
    if wait.status == WaitStatus.RESOLVED:
        return AlreadyDecided(
            "This case was settled already", wait=wait.pk, outcome=wait.outcome, at=wait.closed_at
        )
    return WaitClosed(wait=wait.pk, outcome=wait.outcome)


def ask_to_look(wait_id: UUID, *, actor: Any) -> None:
    """Asks a worker to look the effect of a case up; the answer appears on the case. Raises as `resolve`."""
    require(actor, "approvals.operate")
    wait = Wait.objects.filter(pk=wait_id, kind=WaitKind.RECONCILIATION).first()
    if wait is None:
        raise NotFound("There is no such case", wait=wait_id)
    if wait.status != WaitStatus.OPEN:
        raise _closed(wait)
    if "effect" not in json.loads(wait.data or "{}"):
        raise IllegalTransition("This case is about no effect that could be looked up", wait=wait_id)
    with locked(wait.run_id):
        outbox.put(Outbox.Kind.PROBE, wait_id)
