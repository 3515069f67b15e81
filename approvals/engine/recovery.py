"""Before a run advances: settle what is in doubt, do again what an operator asked for, verify receipts.

Never guess (ARCHITECTURE 7 and 8): look it up; not there → wait out deadline and grace, look again;
cannot tell, or a blind peer → a person. Perform again at once only where the peer deduplicates.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from approvals import clock
from approvals.engine import asking, effects
from approvals.limits import limits
from approvals.models import Effect
from approvals.states import EFFECT_DONE, EffectStatus
from approvals.transitions import effects as events
from approvals.types import Receipt, Verification
from approvals.workflows import effects as authoring

if TYPE_CHECKING:
    from approvals.engine.turn import Turn

_VERIFY_AGAIN_SECONDS = (10, 60, 300)


def prepare(turn: Turn) -> None:
    """What must be settled before the first line of the workflow runs."""
    if turn.run.turns_lost >= limits().turns_lost:
        turn.stop("no progress", turns_lost=turn.run.turns_lost, after_position=turn.run.position)
    if turn.history.effects:
        rows = list(Effect.objects.filter(run=turn.run_id).order_by("position"))
        for row in rows:
            if row.status == EffectStatus.IN_DOUBT:
                settle(turn, row)
        _stop_if_asked(turn)
        for row in rows:
            if row.status == EffectStatus.INTENDED and row.generation > 1 and _answered(turn, row):
                effects.advance(_call(turn, row), row)
        if turn.run.verify_due:
            _verify(turn, rows)
    else:
        _stop_if_asked(turn)


def _answered(turn: Turn, row: Effect) -> bool:
    """Whether replay answers this position already, so that nothing else would perform it again."""
    return any(e.kind in ("effect.commit", "effect.confirm") for e in turn.history.at(row.position))


def _stop_if_asked(turn: Turn) -> None:
    if turn.run.cancel_requested_at is not None or turn.run.pause_requested_at is not None:
        turn.stop_asked = True
        turn.enter("resume")


def _call(turn: Turn, row: Effect) -> effects.Call:
    author = authoring.of_kind(row.kind)
    if author is None:
        turn.stop(
            "in doubt",
            position=row.position,
            effect=str(row.pk),
            reason=f"no code for effects of kind {row.kind!r}",
        )
    request_type = asking.action_codec(author, None)
    return effects.Call(turn, row.name, author, request_type, {"title": row.name})


# --- doubt -----------------------------------------------------------------------------------------


def settle(turn: Turn, row: Effect) -> None:
    """Leaves the effect committed, refused, intended or withdrawn; or leaves the turn."""
    call = _call(turn, row)
    ending = turn.run.cancel_requested_at is not None
    if call.author.deduplicates and not ending:
        _redispatch(call, row)
    elif call.author.offers("lookup"):
        _look_up(call, row)
    else:
        _ask_a_person(turn, row, "this peer can neither deduplicate nor be looked up")


def _redispatch(call: effects.Call, row: Effect) -> None:
    """The same call under the same key; the whole guard of dispatch holds again, or a person is asked."""
    turn, started = call.turn, time.monotonic()
    with turn.boundary(honour=False) as tx:
        checked = events.redispatch(tx, row, deadline=call.author.deadline)
    if not checked.ok:
        _ask_a_person(turn, row, f"it may not be sent again: {checked.reason}")
    effects.perform_again(call, row, started)


def _look_up(call: effects.Call, row: Effect) -> None:
    turn = call.turn
    asked_at = clock.now()
    found, problem = look_up(call, row)
    if problem:
        _ask_a_person(turn, row, f"the look-up could not tell: {problem}")
    settled_at = events.settled_after(row)
    suspended = None
    with turn.boundary(honour=False) as tx:
        if found is not None:
            tx.position = max(tx.position, row.position)
            events.confirm(tx, row, effects.stored(found), by="look-up")
        elif asked_at >= settled_at:
            events.disprove(tx, row, by="look-up")
        else:
            seconds = (settled_at - tx.now).total_seconds()
            suspended = effects.park_on_timer(tx, turn, row, f"look up {row.name} again", max(seconds, 0))
    if suspended is not None:
        turn.left(suspended)


def look_up(call: effects.Call, row: Effect) -> tuple[Receipt[Any] | None, str]:
    """(what the peer has, why it cannot be told)."""
    request = call.codec.decode(row.request, what=f"the request of {row.name!r}")
    token = authoring.call_ends.set(time.monotonic() + call.author.deadline.total_seconds())
    try:
        with call.turn.inside(f"the look-up of {row.name!r}"):
            found: Any = call.author.lookup(request, row.key)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    finally:
        authoring.call_ends.reset(token)
    if found is not None and not isinstance(found, Receipt):
        return None, f"lookup() returned {type(found).__name__}, needed a Receipt or None"
    return found, ""


def _ask_a_person(turn: Turn, row: Effect, reason: str) -> None:
    not_before = events.settled_after(row).isoformat()
    turn.stop(
        "in doubt",
        position=row.position,
        effect=str(row.pk),
        doubt=row.reason,
        reason=reason,
        not_before=not_before,
    )


# --- verification ----------------------------------------------------------------------------------


def _verify(turn: Turn, rows: list[Effect]) -> None:
    """Reads back every receipt that can be, in one boundary; a contradiction stops the run."""
    agree, unknown = [], []
    for row in rows:
        if row.status == EffectStatus.CONTRADICTED:
            _contradicted(turn, row, row.reason)
        if row.status not in EFFECT_DONE or row.superseded:
            continue
        author = authoring.of_kind(row.kind)
        if author is None or not author.offers("verify") or _fresh(author, row):
            continue
        call = _call(turn, row)
        answer = _read_back(call, row)
        if answer is Verification.MATCH:
            agree.append(row)
        elif answer is Verification.UNKNOWN:
            unknown.append(row)
        else:
            _contradicted(turn, row, answer.value)
    if agree:
        with turn.boundary() as tx:
            for row in agree:
                events.verify(tx, row)
    for row in unknown:
        _verify_later(turn, row)


def _fresh(author: authoring.Effect[Any], row: Effect) -> bool:
    return row.verified_at is not None and clock.now() - row.verified_at < author.verify_max_age


def _read_back(call: effects.Call, row: Effect) -> Verification:
    data = events.ReceiptData(row.external_id or "", row.checksum, row.evidence)
    receipt = call.receipt(row, data)
    token = authoring.call_ends.set(time.monotonic() + call.author.deadline.total_seconds())
    try:
        with call.turn.inside(f"the verification of {row.name!r}"):
            answer: Any = call.author.verify(receipt)
    except Exception:
        return Verification.UNKNOWN
    finally:
        authoring.call_ends.reset(token)
    return answer if isinstance(answer, Verification) else Verification.UNKNOWN


def _contradicted(turn: Turn, row: Effect, found: str) -> None:
    """The world disagrees with the receipt: both values, side by side, for an operator."""
    seen: dict[str, Any] = {"external_id": None, "checksum": None}
    call = _call(turn, row)
    if call.author.offers("lookup"):
        receipt, problem = look_up(call, row)
        seen = {"problem": problem} if problem else seen
        if receipt is not None:
            seen = {
                "external_id": receipt.external_id,
                "checksum": receipt.checksum,
                "evidence": dict(receipt.evidence),
            }
    from approvals.engine.turn import open_case

    with turn.boundary(honour=False) as tx:
        if row.status != EffectStatus.CONTRADICTED:
            events.contradict(tx, row, found=found)
        case = {
            "effect": str(row.pk),
            "found": found,
            "receipt": {
                "external_id": row.external_id,
                "checksum": row.checksum,
                "evidence": json.loads(row.evidence),
            },
            "seen": seen,
        }
        open_case(tx, "contradicted", row.position, case)
    turn.stopped("contradicted")


def _verify_later(turn: Turn, row: Effect) -> None:
    """It could not be told: tried again on a timer a few times, then a person is asked."""
    name = f"verify {row.name} again"
    entries = turn.history.at(row.position)
    last = max(
        (e.seq for e in entries if e.kind in ("effect.verify", "effect.commit", "effect.confirm")), default=0
    )
    tries = sum(1 for e in entries if e.seq > last and e.kind == "wait.open" and e.name == name)
    if tries >= len(_VERIFY_AGAIN_SECONDS):
        turn.stop(
            "cannot tell",
            position=row.position,
            effect=str(row.pk),
            reason="the receipt could not be verified",
        )
    with turn.boundary() as tx:
        suspended = effects.park_on_timer(tx, turn, row, name, _VERIFY_AGAIN_SECONDS[tries])
    turn.left(suspended)
