"""Signals, timers, children, approvals: opening waits and waiting for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from approvals import canonical, facts, outbox, payloads
from approvals.engine import asking
from approvals.engine.history import Closed, Recorded
from approvals.errors import ChildFailed, ContextMisuse, LimitExceeded, PolicyDenied
from approvals.limits import limits
from approvals.models import Approval, Entry, Run, Wait
from approvals.states import WaitKind, WaitStatus
from approvals.transitions import create, runs
from approvals.transitions import steps as step_events
from approvals.transitions import waits as events
from approvals.types import Decision, DecisionRecord, Expired, Fired, Message, StillOpen
from approvals.workflows import effects as authoring
from approvals.workflows import values
from approvals.workflows.handles import Handle
from approvals.workflows.registry import Workflow

if TYPE_CHECKING:
    from approvals.engine.turn import Turn

Read = Callable[[Closed], Any]


# --- opening ---------------------------------------------------------------------------------------


def signal(turn: Turn, name: str, schema: Any, expires_in: timedelta | None) -> Handle[Any]:
    """A wait for a message of this name."""
    codec = values.codec_for(Any if schema is None else schema)

    def read(closed: Closed) -> Any:
        if closed.outcome == "expired":
            return Expired(name, datetime.fromisoformat(closed.value["at"]))
        payload = codec.accept(payloads.read(closed.value["payload"]), what=f"signal {name!r}")
        return Message(closed.value["id"], payload, datetime.fromisoformat(closed.value["received_at"]))

    entries = turn.at("signal", name)
    if not entries and not payloads.is_word(name):
        told = "Nobody could send this signal: its name is a printable text of 1 to 200 characters"
        raise ContextMisuse.of(told, call="ctx.signal", found=repr(name)[:60])
    wait = Wait(position=turn.position, kind=WaitKind.SIGNAL, name=name)
    if schema is not None:
        wait.data = json.dumps({"schema": codec.schema()})
    if not entries and expires_in is None:  # what expires does so from this line on
        columns = {"position": wait.position, "kind": wait.kind, "name": name, "data": wait.data}
        return _handle(turn, turn.open_later(columns), name, read)
    return _opened(turn, entries, wait, read, due=expires_in)


def timer(turn: Turn, name: str, when: timedelta | datetime, *, later: bool) -> Handle[Fired]:
    """A wait for an instant; `later`: the next call waits for it, and opens it."""
    entries = turn.at("timer", name)
    wait = Wait(position=turn.position, kind=WaitKind.TIMER, name=name)
    if later and not entries and isinstance(when, timedelta):
        columns = {"position": wait.position, "kind": wait.kind, "name": name}
        return _handle(turn, turn.open_later(columns, when), name, _fired)
    return _opened(turn, entries, wait, _fired, due=when)


def _fired(closed: Closed) -> Fired:
    return Fired(datetime.fromisoformat(closed.value["at"]))


def child(turn: Turn, name: str, workflow: Any, input: Any) -> Handle[Any]:
    """Starts a child run; its row, its first entry and the wait for it are one transaction."""
    if not isinstance(workflow, Workflow):
        told = "A child is named by its workflow itself, as @workflow made it"
        raise ContextMisuse.of(told, call="ctx.child", name=name, found=repr(workflow)[:80])
    entries = turn.at("child", name)

    def read(closed: Closed) -> Any:
        if closed.outcome != "completed":
            told = closed.value or {}
            raise ChildFailed(child=name, outcome=closed.outcome, error=told.get("error", ""))
        return workflow.output.decode(closed.value["output"], what=f"the output of child {name!r}")

    wait = Wait(position=turn.position, kind=WaitKind.CHILD, name=name)
    if entries:
        return _opened(turn, entries, wait, read)
    depth = _depth(turn.run) + 1
    if depth > limits().nesting:
        told = "Children have children of their own too deep; does this workflow start itself?"
        raise LimitExceeded.of(told, run=turn.run_id, child=name, depth=depth, limit=limits().nesting)
    text, _ = workflow.input.roundtrip(input, what=f"the input of child {name!r}")
    with turn.boundary() as tx:
        run = Run(
            workflow=workflow.name,
            version=workflow.version,
            requester_id=tx.run.requester_id,
            requester_name=tx.run.requester_name,
            input=text,
            parent_wait=wait.pk,
            parent_run=tx.run.pk,
            ready_at=tx.now,
            created_at=tx.now,
        )
        run.seed = run.pk
        create(run, requester=run.requester_name, parent=str(tx.run.pk), depth=depth)
        events.open_(tx, wait, child=str(run.pk))
        outbox.hint()
    return _handle(turn, wait.pk, name, read)


def _depth(run: Run) -> int:
    """How many runs are above this one; of a child that was started before anybody counted: at least one."""
    if run.parent_run is None:
        return 0
    started = Entry.objects.values_list("data", flat=True).get(run=run.pk, seq=1)
    depth: int = json.loads(started).get("depth", 1)
    return depth


def request_approval(
    turn: Turn, name: str, *, policy: str, action: Any, effect: Any, park: bool, **ask: Any
) -> Handle[Any]:
    """Asks people; with `park`, the run suspends in the same transaction."""
    about = authoring.instance(effect) if effect is not None else None
    codec = asking.action_codec(about, action)
    # The author's own code runs before a position is taken and before any lock: it may do as it likes.
    text, action = codec.roundtrip(action, what=f"the action of {name!r}")
    kind = about.kind if about else ""
    target, sentence = asking.said(about, name, action) if about else ("", "")
    digest = canonical.action_digest(kind, target, action)
    entries = turn.at("approval", name)
    read = _decision_reader(turn, codec, ask["form"], name)
    wait = Wait(position=turn.position, kind=WaitKind.APPROVAL, name=name)
    if entries:
        _same_digest(turn, entries[0], digest, codec, kind, target)
        if entries[0].kind == "approval.deny":
            raise PolicyDenied(**entries[0].read())
        return _opened(turn, entries, wait, read)
    if park:
        turn.reach("before_suspend")
        wait.parked = Wait.TOGETHER
    suspended: bool | None = None
    with turn.boundary() as tx:
        (version,) = facts.required([policy], "")
        approval = asking.approval_of(about, name, kind, target, text, digest, sentence, ask)
        rules, verdict = asking.verdict_on(tx, version, approval)
        denied = verdict.kind == "denied"
        if denied:
            turn.note(
                tx,
                step_events.note(
                    "approval.deny",
                    turn.position,
                    name,
                    json.dumps({"policy": policy, "reason": verdict.reason}),
                ),
                digest,
            )
        else:
            code = turn.workflow.version
            asking.pose(tx, wait, approval, version, rules, verdict, workflow_version=code, digest=digest)
            if park and wait.status == WaitStatus.OPEN:
                suspended = turn.park_in(tx, [(wait.pk, Wait.CANCEL)])
    if denied:
        raise PolicyDenied(policy=policy, reason=verdict.reason)
    if suspended is not None:
        turn.left(suspended)
    return _handle(turn, wait.pk, name, read)


def _same_digest(
    turn: Turn, first: Recorded, digest: str, codec: values.Codec[Any], kind: str, target: str
) -> None:
    """The same bytes, or bytes that today's type reads as the same action (CONTRACT "Replay compares")."""
    told = first.read()
    if first.digest == digest:
        return
    row = Approval.objects.filter(pk=told["id"]).first() if "id" in told else None
    if row is not None:
        stored = codec.decode(row.action, what="the recorded action")
        if canonical.action_digest(kind, target, stored) == digest:
            return
    turn.diverged(first.digest, digest, what="the digest of the action")


def _decision_reader(turn: Turn, codec: values.Codec[Any], form: Any, name: str) -> Callable[[Closed], Any]:
    forms = values.codec_for(form) if form is not None else None

    def read(closed: Closed) -> Any:
        return decision_of(closed, codec, forms, name)

    return read


def decision_of(
    closed: Closed, codec: values.Codec[Any], forms: values.Codec[Any] | None, name: str
) -> Decision[Any, Any]:
    """A closed approval as authors see it."""
    told = closed.value
    filled = None
    if forms and told["form"]:
        filled = forms.accept(payloads.read(told["form"]), what=f"the form of {name!r}")
    return Decision(
        told["outcome"],
        codec.decode(told["action"], what=f"the action of {name!r}"),
        told["digest"],
        filled,
        [DecisionRecord(**{**d, "at": datetime.fromisoformat(d["at"])}) for d in told["decisions"]],
        told["comment"],
        wait_id=closed.wait_id,
    )


def _opened(
    turn: Turn, entries: Sequence[Recorded], wait: Wait, read: Read, due: timedelta | datetime | None = None
) -> Handle[Any]:
    """The handle of a recorded wait, or of one opened now."""
    if entries:
        return _handle(turn, UUID(entries[0].read()["id"]), wait.name, read)
    with turn.boundary() as tx:
        if due is not None:
            wait.due_at = tx.now + due if isinstance(due, timedelta) else due.astimezone(UTC)
        events.open_(tx, wait)
    return _handle(turn, wait.pk, wait.name, read)


def _handle(turn: Turn, wait_id: UUID, name: str, read: Read) -> Handle[Any]:
    def value() -> Any:
        # Only what a wait has shown to be closed: what happens to be in the journal by now differs from turn to turn.
        closed = turn.history.closed.get(wait_id) if wait_id in turn.readable else None
        if closed is None:
            raise ContextMisuse("This handle is still open; wait for it first", handle=name)
        if closed.outcome == "left":
            raise ContextMisuse(
                "This handle was closed as a loser of ctx.wait_any; it has no value", handle=name
            )
        return read(closed)

    turn.handles.add(wait_id)
    return Handle(wait_id, name, value)


def _own(turn: Turn, handles: Sequence[Handle[Any]]) -> None:
    """Nobody would ever wake a run that waits for another run's handle. Raises ContextMisuse."""
    for handle in handles:
        if handle.id not in turn.handles:
            raise ContextMisuse(
                "This handle is not of this run; ask this context for one", handle=handle.name
            )


# --- waiting ---------------------------------------------------------------------------------------


def wait(turn: Turn, handle: Handle[Any], at_most: timedelta | None) -> Any:
    """The handle's value; suspends while it is open."""
    _own(turn, [handle])
    if at_most is not None:
        turn.open_now()  # it may be closed on arrival, and then needs no timer
        return _wait_at_most(turn, handle, at_most)
    if handle.id not in turn.history.closed:
        turn.park([(handle.id, Wait.CANCEL)])
    return _value(turn, handle)


def _value(turn: Turn, handle: Handle[Any]) -> Any:
    turn.readable.add(handle.id)
    return handle.value


def _wait_at_most(turn: Turn, handle: Handle[Any], at_most: timedelta) -> Any:
    """Whichever closes first in journal order, the handle or a timer at this position."""
    closed = turn.history.closed
    entries = turn.at("wait", handle.name)
    if not entries and handle.id in closed:
        turn.keep(step_events.note("wait", turn.position, handle.name, "{}"))
        return _value(turn, handle)
    if not entries:
        limit = Wait(position=turn.position, kind=WaitKind.TIMER, name=handle.name)
        turn.reach("before_suspend")
        with turn.boundary() as tx:
            limit.due_at = tx.now + at_most
            events.open_(tx, limit, call="wait")
            suspended = turn.park_in(tx, [(handle.id, Wait.KEEP), (limit.pk, Wait.CANCEL)])
        turn.left(suspended)
    if entries[0].kind == "wait":
        return _value(turn, handle)
    limit_id = UUID(entries[0].read()["id"])
    mine, other = closed.get(handle.id), closed.get(limit_id)
    if mine is None and other is None:
        turn.park([(handle.id, Wait.KEEP), (limit_id, Wait.CANCEL)])
    if mine is None or (other is not None and other.outcome == "fired" and other.seq < mine.seq):
        return StillOpen()
    return _value(turn, handle)


def wait_any(turn: Turn, handles: tuple[Handle[Any], ...], cancel_losers: bool) -> Handle[Any]:
    """The handle that closed first in journal order."""
    if not handles:
        raise ContextMisuse("ctx.wait_any needs at least one handle")
    _own(turn, handles)
    name = ", ".join(h.name for h in handles)
    by_id, closed = {h.id: h for h in handles}, turn.history.closed
    if all(i in closed and closed[i].outcome == "left" for i in by_id):
        raise ContextMisuse("Every handle given to ctx.wait_any lost an earlier one", handles=name)
    if entries := turn.at("wait_any", name):
        told = entries[0].read()
        turn.readable.update(map(UUID, told["closed"]))
        return by_id[UUID(told["winner"])]
    met = sorted((closed[i].seq, i) for i in by_id if i in closed and closed[i].outcome != "left")
    mode = Wait.CANCEL if cancel_losers else Wait.KEEP
    if not met:
        turn.position -= 1  # nothing is recorded at this position until there is a winner
        turn.park([(i, mode) for i in by_id if i not in closed])
        return wait_any(turn, handles, cancel_losers)  # a message was there when its wait was opened
    if turn.open_now():
        turn.position -= 1
        return wait_any(
            turn, handles, cancel_losers
        )  # a loser's message may be there: it closed, and is readable
    winner = met[0][1]
    losers = [i for i in by_id if i not in closed]
    turn.readable.update(i for _, i in met)
    told = {"winner": str(winner), "closed": [str(i) for _, i in met]}
    entry = step_events.note("wait_any", turn.position, name, json.dumps(told))
    if cancel_losers and losers:
        with turn.boundary() as tx:
            turn.note(tx, entry)
            for loser in Wait.objects.filter(pk__in=losers, status=WaitStatus.OPEN):
                runs.leave_wait(tx, loser)
    else:
        turn.keep(entry)
    return by_id[winner]


def wait_all(turn: Turn, handles: tuple[Handle[Any], ...]) -> tuple[Any, ...]:
    """The values, in the order of the handles."""
    _own(turn, handles)
    by_id = dict.fromkeys(h.id for h in handles)
    if still := [i for i in by_id if i not in turn.history.closed]:
        turn.park([(i, Wait.KEEP) for i in still], all_of=True)
    return tuple(_value(turn, h) for h in handles)
