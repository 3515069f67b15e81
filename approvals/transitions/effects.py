"""Events of an effect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from approvals import clock
from approvals.errors import IllegalTransition
from approvals.journal import Held, Transaction
from approvals.limits import limits
from approvals.models import Approval, Effect, PolicyVersion, Run
from approvals.states import EFFECT_DONE, RUN_FINAL, EffectStatus, RunStatus
from approvals.transitions import guard


@dataclass(frozen=True, slots=True)
class ReceiptData:
    """A receipt as stored."""

    external_id: str
    checksum: str | None
    evidence: str

    def columns(self) -> dict[str, Any]:
        return {"external_id": self.external_id, "checksum": self.checksum, "evidence": self.evidence}


def key_of(effect: Effect) -> str:
    """The stable key: run + position + generation, the same for all attempts."""
    return f"{effect.run_id}-{effect.position}-{effect.generation}"


def intend(tx: Transaction, effect: Effect, versions: Sequence[PolicyVersion]) -> None:
    """Freezes the request and its digest; nothing is sent yet."""
    effect.run = tx.run
    effect.key = key_of(effect)
    effect.policies = guard.pin(effect, versions)
    tx.move(effect, "intend", key=effect.key, effect=effect.kind, target=effect.target)


def revise(tx: Transaction, effect: Effect, *, target: str, request: str, digest: str) -> None:
    """What would be sent is no longer what was frozen; whatever was approved of the old bytes does not count."""
    changes = {"target": target, "request": request, "digest": digest}
    tx.move(effect, "revise", changes, was=effect.digest)


def may_still_be_sent(effect: Effect, held: Held) -> bool:
    """Whether this worker holds the run and the call's deadline has not passed, by the database."""
    return Effect.objects.filter(
        pk=effect.pk,
        status=EffectStatus.DISPATCHED,
        deadline_at__gt=clock.Now(),
        run__status=RunStatus.RUNNING,
        run__worker=held.worker_id,
        run__fence=held.fence,
    ).exists()


def dispatch(tx: Transaction, effect: Effect, *, deadline: timedelta, workflow_version: int) -> guard.Guarded:
    """Allows one call, if the whole guard holds now; the approval is consumed by this effect here."""
    return _send(tx, effect, "dispatch", deadline, workflow_version)


def redispatch(
    tx: Transaction, effect: Effect, *, deadline: timedelta, workflow_version: int
) -> guard.Guarded:
    """Allows the same call again under the same key; the caller has made sure that the peer deduplicates."""
    return _send(tx, effect, "redispatch", deadline, workflow_version)


def _send(
    tx: Transaction, effect: Effect, event: str, deadline: timedelta, workflow_version: int
) -> guard.Guarded:
    checked = guard.check(tx, effect, workflow_version)
    if not checked.ok:
        return checked
    ids = [a.pk for a in checked.approvals]
    if ids:
        Approval.objects.filter(pk__in=ids).update(consumed_by=effect)
    tx.move(
        effect,
        event,
        {
            "sent_at": tx.now,
            "deadline_at": tx.now + deadline,
            "sends": effect.sends + 1,
            "calls": effect.calls + 1,
        },
        approved_by=[str(i) for i in ids],
    )
    return checked


def commit(tx: Transaction, effect: Effect, receipt: ReceiptData) -> None:
    """The receipt is here."""
    tx.move(effect, "commit", receipt.columns(), **_told(receipt))
    _undone_by(tx, effect)


def not_sent(tx: Transaction, effect: Effect, reason: str) -> None:
    """Certainly nothing went out; unless an earlier send is unresolved, then it is in doubt."""
    if effect.sends > 1:
        doubt(tx, effect, f"an earlier send is unresolved; this time: {reason}")
        return
    changes = {"reason": reason, "attempts": effect.attempts + 1, "sends": effect.sends - 1}
    tx.move(effect, "not_sent", changes, reason=reason, attempts=effect.attempts + 1)


def refuse(tx: Transaction, effect: Effect, reason: str) -> None:
    """The peer said a definite no; unless an earlier send is unresolved, then it is in doubt."""
    if effect.sends > 1:
        doubt(tx, effect, f"an earlier send is unresolved; this time the peer refused: {reason}")
        return
    tx.move(effect, "refuse", {"reason": reason}, reason=reason)


def decline(tx: Transaction, compensation: Effect, reason: str) -> None:
    """The peer refused to undo something: nothing went out, and an operator may have it tried again.

    Under a new key: a peer that deduplicates would repeat its no. After an unresolved send it is in doubt.
    """
    if compensation.sends > 1:
        refuse(tx, compensation, reason)
        return
    compensation.generation += 1
    told: dict[str, Any] = {
        "reason": reason,
        "attempts": compensation.attempts + 1,
        "key": key_of(compensation),
    }
    changes = {**told, "sends": 0, "generation": compensation.generation}
    tx.move(compensation, "not_sent", changes, **told)


def doubt(tx: Transaction, effect: Effect, reason: str, *, lost: bool = False) -> None:
    """The outcome of the call is unknown; `lost`: because its turn is gone, not by what the call said."""
    tx.move(effect, "doubt", {"reason": reason}, reason=reason, lost=lost)


def withdraw(tx: Transaction, effect: Effect, reason: str) -> None:
    """Never sent in this generation."""
    tx.move(effect, "withdraw", {"reason": reason}, reason=reason)


LET_BE = "let be: "


def let_be(tx: Transaction, effect: Effect, *, by: str, note: str) -> None:
    """An operator: what was to be undone stays as it is, or was undone by hand.

    Its compensation is not tried again, and it is not verified any more.
    """
    Effect.objects.filter(pk=effect.pk).update(superseded=True)
    intended = Effect.objects.select_for_update().filter(compensates=effect, status=EffectStatus.INTENDED)
    for compensation in intended:
        withdraw(tx, compensation, f"{LET_BE}{by}: {note}")


def confirm(tx: Transaction, effect: Effect, receipt: ReceiptData, *, by: str) -> None:
    """In doubt: it is there. Contradicted: the read-back was wrong, or the world was mended."""
    changes = {"reason": ""}
    if effect.status == EffectStatus.CONTRADICTED:
        tx.move(effect, "confirm", {**changes, "verified_at": tx.now}, by=by)
        return
    tx.move(effect, "confirm", {**changes, **receipt.columns()}, by=by, **_told(receipt))
    _undone_by(tx, effect)


def _undone_by(tx: Transaction, compensation: Effect) -> None:
    """With the receipt of a compensation, what it undoes is compensated, in one transaction."""
    if compensation.compensates_id is None:
        return
    compensate(tx, Effect.objects.select_for_update().get(pk=compensation.compensates_id), by=compensation)
    tx.set(turns_lost=0)  # a compensation completes no new position, and is progress all the same


def compensate(tx: Transaction, effect: Effect, *, by: Effect) -> None:
    """It is undone: by an effect of its own, whose receipt is committed. Raises IllegalTransition else."""
    if by.compensates_id != effect.pk or by.status not in EFFECT_DONE:
        raise IllegalTransition("Only the receipt of its own compensation undoes an effect", effect=effect.pk)
    tx.move(effect, "compensate", {"reason": ""}, by=str(by.pk), key=by.key)


def settled_after(effect: Effect) -> datetime:
    """From here on a look-up that finds nothing is believed."""
    if effect.deadline_at is None:
        raise IllegalTransition("This effect was never sent", effect=effect.pk)
    return effect.deadline_at + timedelta(seconds=limits().effect_grace_seconds)


def disprove(tx: Transaction, effect: Effect, *, by: str) -> None:
    """It certainly did not happen. Raises IllegalTransition before call deadline + grace (CASES 23)."""
    if tx.now < settled_after(effect):
        raise IllegalTransition(
            "Too early to say that it did not happen: the call may still land",
            effect=effect.pk,
            not_before=settled_after(effect).isoformat(),
        )
    event = "abandon" if _is_ending(tx.run) and effect.compensates_id is None else "disprove"
    tx.move(effect, event, {"reason": "", "sends": 0}, by=by)


def _is_ending(run: Run) -> bool:
    return run.cancel_requested_at is not None or bool(run.unwinding) or run.status in RUN_FINAL


def verify(tx: Transaction, effect: Effect, *, by: str = "read-back") -> None:
    """The independent read-back agrees, or an operator who looked says so."""
    tx.move(effect, "verify", {"verified_at": tx.now}, by=by)


def contradict(tx: Transaction, effect: Effect, *, found: str) -> None:
    """The read-back disagrees, or the object is gone."""
    tx.move(
        effect,
        "contradict",
        {"reason": found},
        found=found,
        external_id=effect.external_id,
        checksum=effect.checksum,
    )


def accept(tx: Transaction, effect: Effect, *, by: str, note: str, seen: Mapping[str, Any]) -> None:
    """An operator: what is there now is right. Kept beside the receipt, which replay goes on answering."""
    evidence = {**json.loads(effect.evidence), "accepted": {"by": by, "note": note, **seen}}
    changes = {"verified_at": tx.now, "reason": "", "superseded": True, "evidence": json.dumps(evidence)}
    tx.move(effect, "accept", changes, by=by, note=note)


def redo(tx: Transaction, effect: Effect, *, by: str) -> None:
    """An operator: what is gone is done again, under a new key; a guarded effect asks again."""
    if _is_ending(tx.run):
        raise IllegalTransition("The run is ending; nothing is done again", run=tx.run.pk)
    if Effect.objects.filter(compensates=effect).exists():
        raise IllegalTransition("Undoing it has begun; it is not done again", effect=effect.pk)
    if effect.reason != "missing":
        raise IllegalTransition(
            "Only what is gone is done again; what was changed: accept it", found=effect.reason
        )
    effect.generation += 1
    changes = {
        "generation": effect.generation,
        "key": key_of(effect),
        "sends": 0,
        "attempts": 0,
        "reason": "",
        "verified_at": None,
    }
    tx.move(effect, "redo", changes, by=by, key=changes["key"])


def supersede(tx: Transaction, position: int) -> None:
    """A later effect is sent that stands for the one at this position: it is not verified any more."""
    Effect.objects.filter(run=tx.run, position=position).update(superseded=True)


def _told(receipt: ReceiptData) -> dict[str, Any]:
    return {"external_id": receipt.external_id, "checksum": receipt.checksum, "evidence": receipt.evidence}
