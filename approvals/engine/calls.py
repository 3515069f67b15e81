"""One call of `ctx.effect`: what its author asked for, and what the journal answers.

Receipts and refusals are built here alone, on the first run and on every replay alike.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from approvals import canonical
from approvals.engine import asking
from approvals.engine.history import Recorded
from approvals.engine.waits import decision_of
from approvals.errors import EffectRefused, NotSerializable, PolicyDenied, StepFailed
from approvals.models import Effect
from approvals.transitions import effects as events
from approvals.types import Receipt
from approvals.workflows import effects as authoring
from approvals.workflows import values

if TYPE_CHECKING:
    from approvals.engine.turn import Turn


@dataclass
class Call:
    """One `ctx.effect`: what the author asked for."""

    turn: Turn
    name: str
    author: authoring.Effect[Any]
    codec: values.Codec[Any]
    ask: dict[str, Any]
    supersedes: int | None = None
    """The position whose receipt need not be verified any more once this one is sent."""

    def request(self, row: Effect) -> Any:
        """The stored request as the peer is given it: each time a new object."""
        return self.codec.decode(row.request, what=f"the request of {self.name!r}")

    def receipt(self, row: Effect, data: events.ReceiptData, key: str) -> Receipt[Any]:
        """A stored receipt as the author sees it, with the request as performed."""
        evidence = json.loads(data.evidence)
        made: Receipt[Any] = Receipt(data.external_id, checksum=data.checksum, evidence=evidence)
        return made.bound(self.request(row), key, row.kind)


def author_of(row: Effect) -> authoring.Effect[Any] | None:
    """Today's code of an effect, of a compensation that of what it undoes; None if it is gone."""
    return authoring.of_kind((row.compensates or row).kind)


def call_of(turn: Turn, row: Effect) -> Call:
    """The call of an effect that was recorded. Without code for it the run stops for an operator."""
    of, author = row.compensates or row, author_of(row)
    if author is None:
        reason = f"no code for effects of kind {of.kind!r}"
        turn.stop("in doubt", position=row.position, effect=str(row.pk), reason=reason)
    call = Call(turn, of.name, author, asking.action_codec(author, None), {"title": of.name})
    return call if row.compensates is None else undoing(call, of)


def undoing(call: Call, of: Effect) -> Call:
    """The call that undoes what another one did."""
    data = events.ReceiptData(of.external_id or "", of.checksum, of.evidence)
    made = authoring.Compensation(call.author, call.receipt(of, data, of.key))
    ask = {"title": f"Undo “{of.name}”", "summary": f"Its receipt: {data.external_id}"}
    return Call(call.turn, f"undo {of.name}", made, call.codec, ask)


def stored(receipt: Receipt[Any]) -> events.ReceiptData:
    """A receipt as it is stored. Raises NotSerializable for what no database keeps (a NUL in an identifier)."""
    for text in (receipt.external_id, receipt.checksum):
        values.codec_for(str | None).encode(text, what="the identifier or checksum of a receipt")
        if "\x00" in (text or ""):
            raise NotSerializable(
                "The identifier or checksum of a receipt holds a NUL", found=repr(text)[:60]
            )
    evidence = values.codec_for(Any).encode(dict(receipt.evidence), what="the evidence of a receipt")
    return events.ReceiptData(receipt.external_id, receipt.checksum, evidence)


def same_request(call: Call, first: Recorded, row: Effect, digest: str) -> None:
    """The same bytes, or bytes that today's type reads as the same request."""
    if first.digest == digest:
        return
    stored = call.codec.decode(row.request, what="the recorded request")
    again = canonical.action_digest(row.kind, call.author.target(stored), stored)
    if again != digest:
        call.turn.diverged(first.digest, digest, what="the digest of the request")


def settled(call: Call, row: Effect, entries: list[Recorded]) -> Receipt[Any] | None:
    """The recorded end of this effect: a receipt, or what it raised; None while it has none."""
    key = row.key
    for entry in entries:
        if entry.kind in ("effect.intend", "effect.redo"):
            key = entry.read()["key"]
        elif entry.kind in ("effect.commit", "effect.confirm"):
            told = entry.read()
            if "external_id" in told:
                data = events.ReceiptData(told["external_id"], told["checksum"], told["evidence"])
                return call.receipt(row, data, key)
        elif entry.kind == "effect.refuse":
            reason = entry.read()["reason"]
            raise EffectRefused(f"{call.name!r} was refused: {reason}", reason=reason)
        elif entry.kind in ("effect.withdraw", "effect.abandon"):
            _withdrawn(call, entries, entry.read().get("reason", ""))
    return None


def _withdrawn(call: Call, entries: list[Recorded], reason: str) -> NoReturn:
    if reason.startswith("denied: "):
        raise PolicyDenied(reason.removeprefix("denied: "), effect=call.author.kind, name=call.name)
    if reason.startswith("not sent: "):
        told = reason.removeprefix("not sent: ")
        raise StepFailed(
            f"{call.name!r} could not be sent: {told}", step=call.name, type="NotSent", message=told
        )
    closed = [call.turn.history.closed.get(UUID(e.read()["id"])) for e in entries if e.kind == "wait.open"]
    for one in closed:
        if one is not None and one.outcome == reason:
            decision_of(one, call.codec, None, call.name).require()
    raise StepFailed(
        f"{call.name!r} was withdrawn: {reason}", step=call.name, type="Withdrawn", message=reason
    )
