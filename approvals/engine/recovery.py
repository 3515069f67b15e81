"""Before a run advances: settle what is in doubt, do again what an operator asked for, verify receipts.

Never guess (ARCHITECTURE 7 and 8): look it up; not there → wait out deadline and grace, look again;
cannot tell, or a blind peer → a person. Perform again at once only where the peer deduplicates.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from django.db.models import Max

from approvals import canonical, clock
from approvals.engine import effects, undoing
from approvals.engine.calls import Call, author_of, call_of, stored
from approvals.engine.cases import open_case
from approvals.errors import RAISED_BY_AUTHORS, DomainError, words_of
from approvals.limits import limits
from approvals.models import Effect, Entry, Run, Wait
from approvals.states import EFFECT_DONE, EffectStatus, WaitKind, WaitStatus
from approvals.transitions import effects as events
from approvals.transitions import runs
from approvals.types import Receipt, Verification
from approvals.workflows import effects as authoring

if TYPE_CHECKING:
    from approvals.engine.turn import Turn

_VERIFY_AGAIN_SECONDS = (10, 60, 300)
NOT_REDONE, TOO_OLD = "not done again", "too old"
_DISPROOFS = 3
"""So often a call is made again because nothing was there; then a person is asked: never silently for ever."""


def prepare(turn: Turn) -> None:
    """What must be settled before the first line of the workflow runs.

    What only looks comes first, then a request to stop, then verification, then what sends again.
    """
    if turn.run.turns_lost >= limits().turns_lost:
        _stop_without_progress(turn)
    _stop_if_too_old(turn)
    if not turn.history.effects:
        _stop_if_asked(turn)
        return
    rows = list(Effect.objects.filter(run=turn.run_id).order_by("position"))
    for row in rows:
        if row.status == EffectStatus.IN_DOUBT and not _may_send_again(turn, row):
            settle(turn, row)
    if turn.run.unwinding:
        undoing.unwind(turn)
    _stop_if_asked(turn)
    if turn.run.verify_due:
        _verify(turn, rows)
    for row in rows:
        if row.status == EffectStatus.IN_DOUBT:
            settle(turn, row)
        if row.generation > 1 and row.compensates_id is None and _answered(turn, row):
            _redo(turn, row)


def _stop_without_progress(turn: Turn) -> NoReturn:
    lost = Entry.objects.filter(run=turn.run_id, kind="run.lose_lease").order_by("-seq")
    told = [json.loads(data)["why"] for data in lost.values_list("data", flat=True)[: turn.run.turns_lost]]
    turn.stop(
        "no progress", turns_lost=turn.run.turns_lost, after_position=turn.run.position, lost=told[::-1]
    )


def _stop_if_too_old(turn: Turn) -> None:
    """A run that would go on after so long asks an operator first, whose word holds for as long again."""
    run, most = turn.run, timedelta(days=limits().run_days)
    if run.ready_at - run.created_at <= most or run.cancel_requested_at is not None:
        return
    cases = Wait.objects.filter(run=run, kind=WaitKind.RECONCILIATION, name=TOO_OLD)
    since = cases.aggregate(last=Max("closed_at"))["last"] or run.created_at
    if run.ready_at - since > most:
        days = (run.ready_at - run.created_at).days
        turn.stop(TOO_OLD, position=run.position, days=days, limit=limits().run_days)


def _answered(turn: Turn, row: Effect) -> bool:
    """Whether replay answers this position already, so that nothing else would perform it again."""
    return any(e.kind in ("effect.commit", "effect.confirm") for e in turn.history.at(row.position))


def _redo(turn: Turn, row: Effect) -> None:
    """Does again what was gone. If it cannot be had, an operator hears of it: replay answers the first receipt."""
    reason = row.reason
    if row.status == EffectStatus.INTENDED:
        try:
            while row.status == EffectStatus.INTENDED:  # again, if nothing was there in the end
                effects.advance(call_of(turn, row), row)
            return
        except DomainError as error:
            reason = words_of(error)
    elif row.status not in (EffectStatus.WITHDRAWN, EffectStatus.REFUSED) or _told(turn, row):
        return
    case = {"effect": str(row.pk), "generation": row.generation, "reason": reason}
    turn.stop(NOT_REDONE, position=row.position, **case)


def _told(turn: Turn, row: Effect) -> bool:
    cases = Wait.objects.filter(run=turn.run_id, position=row.position, kind=WaitKind.RECONCILIATION)
    return cases.filter(name=NOT_REDONE, data__contains=f'"generation": {row.generation}').exists()


def _stop_if_asked(turn: Turn) -> None:
    if turn.run.cancel_requested_at is not None or turn.run.pause_requested_at is not None:
        turn.stop_asked = True
        with turn.boundary():  # leaves, unless something is still in doubt
            pass


# --- doubt -----------------------------------------------------------------------------------------


def _may_send_again(turn: Turn, row: Effect) -> bool:
    """Whether the peer deduplicates, and has not left us without an answer too often."""
    author = author_of(row)
    if author is None or not author.deduplicates or _gives_up(turn.run, row):
        return False
    return _unanswered(turn, row) <= author.retry.attempts


def _gives_up(run: Run, row: Effect) -> bool:
    """Whether the run ends, and so sends nothing any more but what undoes it."""
    return runs.ending(run) and row.compensates_id is None


def _unanswered(turn: Turn, row: Effect) -> int:
    """Calls since the last fresh start of this effect whose answer left it in doubt; lost turns do not count."""
    count = 0
    for entry in turn.history.at(row.position):
        if entry.kind in ("effect.redo", "effect.disprove"):
            count = 0
        elif entry.kind == "effect.doubt" and not entry.read().get("lost"):
            count += 1
    return count


def settle(turn: Turn, row: Effect, *, called: bool = False) -> None:
    """Leaves the effect committed, refused, intended or withdrawn; or leaves the turn.

    `called`: this turn has just called the peer; a second unclear answer in a row is not met with a third
    call at once.
    """
    call = call_of(turn, row)
    if _may_send_again(turn, row):
        tries = _unanswered(turn, row)
        if _timer_is_open(row) or (called and tries > 1):
            _pause(call, row, f"send {row.name} again", call.author.retry.delay(tries - 1).total_seconds())
        _redispatch(call, row)
    elif call.author.offers("lookup"):
        _look_up(call, row)
    else:
        _ask_a_person(turn, row, "this peer cannot be looked up, and to send again might do it twice")


def _timer_is_open(row: Effect) -> bool:
    open_ = Wait.objects.filter(run=row.run_id, position=row.position, status=WaitStatus.OPEN)
    return open_.filter(kind=WaitKind.TIMER).exists()


def _pause(call: Call, row: Effect, name: str, seconds: float) -> NoReturn:
    with call.turn.boundary(honour=False) as tx:
        suspended = effects.park_on_timer(tx, call.turn, row, name, seconds)
    call.turn.left(suspended)


def _redispatch(call: Call, row: Effect) -> None:
    """The same call under the same key; the whole guard of dispatch holds again, or a person is asked."""
    turn, started = call.turn, time.monotonic()
    request = call.request(row)
    if canonical.action_digest(row.kind, call.author.target(request), request) != row.digest:
        _ask_a_person(turn, row, "today's code reads the request as something else than was sent")
    with turn.boundary(honour=False) as tx:
        ending = _gives_up(tx.run, row)
        checked = (
            None
            if ending
            else events.redispatch(
                tx, row, deadline=call.author.deadline, workflow_version=turn.workflow.version
            )
        )
    if checked is None:  # asked to cancel since this turn began: nothing is sent any more
        settle(turn, row)
        return
    if not checked.ok:
        _ask_a_person(turn, row, f"it may not be sent again: {checked.reason}")
    effects.perform_again(call, row, started)


def _look_up(call: Call, row: Effect) -> None:
    turn = call.turn
    asked_at = clock.now()
    found, problem = look_up(call, row)
    if problem:
        _ask_a_person(turn, row, f"the look-up could not tell: {problem}")
    settled_at = events.settled_after(row)
    if found is None and asked_at < settled_at:
        _pause(call, row, f"look up {row.name} again", max((settled_at - asked_at).total_seconds(), 0.001))
    if found is None and row.compensates_id is not None:
        _ask_a_person(turn, row, "what was to be undone is still there, as it may be either way")
    ending = _gives_up(turn.run, row)
    if found is None and not ending and _disproofs(turn, row) >= _DISPROOFS:
        _ask_a_person(turn, row, f"it was sent {_DISPROOFS + 1} times, and nothing was there after each")
    with turn.boundary(honour=False) as tx:
        if found is not None:
            tx.position = max(tx.position, row.position)
            events.confirm(tx, row, stored(found), by="look-up")
        else:
            events.disprove(tx, row, by="look-up")


def _disproofs(turn: Turn, row: Effect) -> int:
    entries = turn.history.at(row.position)
    last = max((e.seq for e in entries if e.kind == "effect.redo"), default=0)
    return sum(e.kind == "effect.disprove" and e.seq > last for e in entries)


def look_up(call: Call, row: Effect) -> tuple[Receipt[Any] | None, str]:
    """(what the peer has, why it cannot be told)."""
    token = authoring.call_ends.set(time.monotonic() + call.author.deadline.total_seconds())
    try:
        request = call.request(row)
        with call.turn.inside(f"the look-up of {row.name!r}"):
            found: Any = call.author.lookup(request, row.key)
        if isinstance(found, Receipt):
            stored(found)
    except RAISED_BY_AUTHORS as error:
        return None, f"{type(error).__name__}: {words_of(error)}"
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
    """Reads back every receipt that can be; those that agree are noted in one boundary.

    A contradiction stops the run, one case at a time; what cannot be told is tried again later.
    """
    agree, unknown = [], []
    for row in _standing(rows):
        if row.status == EffectStatus.CONTRADICTED:
            _contradicted(turn, row, row.reason)
        if row.status not in EFFECT_DONE or row.superseded:
            continue
        author = authoring.of_kind(row.kind)
        if author is None or not author.offers("verify") or _fresh(turn, author, row):
            continue
        call = call_of(turn, row)
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


def _standing(rows: list[Effect]) -> list[Effect]:
    """Neither compensations nor what is being undone: that may be gone already, and nobody heard of it yet."""
    undoing = {row.compensates_id for row in rows}
    return [row for row in rows if row.compensates_id is None and row.pk not in undoing]


def _fresh(turn: Turn, author: authoring.Effect[Any], row: Effect) -> bool:
    """Young enough; or an operator's word, which this very resume goes by."""
    if row.verified_at is None:
        return False
    return row.verified_at >= turn.run.ready_at or clock.now() - row.verified_at < author.verify_max_age


def _read_back(call: Call, row: Effect) -> Verification:
    data = events.ReceiptData(row.external_id or "", row.checksum, row.evidence)
    receipt = call.receipt(row, data, row.key)
    token = authoring.call_ends.set(time.monotonic() + call.author.deadline.total_seconds())
    try:
        with call.turn.inside(f"the verification of {row.name!r}"):
            answer: Any = call.author.verify(receipt)
    except RAISED_BY_AUTHORS:
        return Verification.UNKNOWN
    finally:
        authoring.call_ends.reset(token)
    return answer if isinstance(answer, Verification) else Verification.UNKNOWN


def _contradicted(turn: Turn, row: Effect, found: str) -> None:
    """The world disagrees with the receipt: both values, side by side, for an operator."""
    seen: dict[str, Any] = {"external_id": None, "checksum": None}
    call = call_of(turn, row)
    if call.author.offers("lookup"):
        receipt, problem = look_up(call, row)
        seen = {"problem": problem} if problem else seen
        if receipt is not None:
            seen = {
                "external_id": receipt.external_id,
                "checksum": receipt.checksum,
                "evidence": dict(receipt.evidence),
            }
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
    cases = Wait.objects.filter(run=turn.run_id, position=row.position, kind=WaitKind.RECONCILIATION)
    for seq in cases.filter(name="cannot tell", closed_seq__isnull=False).values_list(
        "closed_seq", flat=True
    ):
        last = max(last, seq or 0)  # an operator let it be tried anew
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
        if (
            not suspended
        ):  # somebody asked the run to stop, and may think better of it: nothing is verified yet
            tx.set(verify_due=True)
    turn.left(suspended)
