"""Starting runs, sending them signals, and stopping them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db import transaction

from approvals import canonical, clock, facts, models, outbox, payloads
from approvals.engine import replay as engine_replay
from approvals.errors import (
    IllegalTransition,
    InvalidInput,
    NotFound,
    NotSerializable,
    PermissionRefused,
    RunConflict,
    WaitClosed,
    fit,
)
from approvals.services.actors import fresh, name_of, require
from approvals.states import RUN_FINAL, RunStatus
from approvals.transitions import create, locked, runs, waits
from approvals.workflows import registry, values
from approvals.workflows.asked import is_text

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741


@dataclass(frozen=True, slots=True)
class Run(Generic[O]):
    """A run as applications see it; `output` is decoded by its workflow's annotation."""

    id: UUID
    workflow: str
    version: int
    status: str
    key: str | None
    requester: str
    input: Any
    output: O
    error: dict[str, str] | None
    tags: tuple[str, ...]
    created_at: datetime
    finished_at: datetime | None


def _view(row: models.Run) -> Run[Any]:
    try:
        code = registry.resolve(row.workflow, row.version)
        codecs: tuple[Any, Any] = (code.input, code.output)
    except Exception:  # its code is gone; what is stored can still be shown
        codecs = (values.codec_for(Any), values.codec_for(Any))
    return Run(
        id=row.pk,
        workflow=row.workflow,
        version=row.version,
        status=row.status,
        key=row.key,
        requester=row.requester_name,
        input=_shown(codecs[0], row.input),
        output=None if row.output is None else _shown(codecs[1], row.output),
        error=json.loads(row.error) if row.error else None,
        tags=tuple(json.loads(row.tags)),
        created_at=row.created_at,
        finished_at=row.finished_at,
    )


def _shown(codec: values.Codec[Any], text: str) -> Any:
    """What is stored, by today's type where it still fits it."""
    try:
        return codec.decode(text, what="the stored value")
    except NotSerializable:
        return json.loads(text)


def start(
    workflow: registry.Workflow[I, O] | str,
    input: I,
    *,
    key: str | None = None,
    requester: Any = None,
    tags: Sequence[str] = (),
) -> Run[O]:
    """Starts a run: of a name at its newest version, of a given workflow at that one.

    The same key and input again give the earlier run.

    Raises UnknownWorkflow, NotSerializable or PayloadTooLarge for the input, RunConflict if the key was
    used with another input (CASES 50), PermissionRefused if the requester has no account or a disabled one.
    """
    if requester is not None:
        requester = fresh(requester)
    code = registry.get(workflow) if isinstance(workflow, str) else workflow
    text, _ = code.input.roundtrip(input, what=f"the input of {code.name}")
    with transaction.atomic():
        now = clock.now()
        row = models.Run(
            workflow=code.name,
            version=code.version,
            key=_checked_key(key),
            requester=requester,
            requester_name=requester.get_username() if requester is not None else "",
            input=text,
            tags=json.dumps([str(t) for t in tags]),
            ready_at=now,
            created_at=now,
        )
        row.seed = row.pk
        if create(row, requester=row.requester_name):
            outbox.hint()
            return _view(row)
    earlier = models.Run.objects.get(workflow=code.name, key=key)
    if not _same_input(code, earlier.input, text):
        raise RunConflict(workflow=code.name, key=key, run=earlier.pk)
    return _view(earlier)


def start_as(actor: Any, name: str, input: Any, *, key: str | None = None) -> Run[Any]:
    """The door for people: starts a run in somebody's name, from JSON, if they may (`facts.may_start`).

    Raises NotFound for a workflow that they do not even see, PermissionRefused, and as `start_json`.
    """
    account = fresh(actor)
    person = facts.present(account)
    code = registry.find(name)
    if code is None or not (facts.is_operator(account, person) or code.is_visible_to(person.groups)):
        raise NotFound("There is no such workflow, or it is not yours to see", workflow=name)
    if not facts.may_start(account, person, code.startable_by):
        needed = " or ".join(code.startable_by) or "staff, or the permission approvals.start"
        raise PermissionRefused(
            f"{person.username} may not start {name}. Nothing was started.", workflow=name, needed=needed
        )
    return start_json(name, input, key=key, requester=account)


def start_json(
    name: str, input: Any, *, key: str | None = None, requester: Any = None, tags: Sequence[str] = ()
) -> Run[Any]:
    """Like `start`, from JSON that came from outside. Raises InvalidInput with the fields that do not fit."""
    code = registry.get(name)
    return start(
        code, code.input.accept(input, what=f"the input of {name}"), key=key, requester=requester, tags=tags
    )


def _checked_key(key: str | None) -> str | None:
    if key is not None and not (0 < len(key) <= 200 and is_text(key)):
        raise InvalidInput("A start key is a text of 1 to 200 characters", found=repr(key)[:80])
    return key


def _same_input(code: registry.Workflow[Any, Any], one: str, other: str) -> bool:
    """Secrets are sealed anew each time, so texts may differ where values do not; True and 1 are two values."""
    if one == other:
        return True
    both = _shown(code.input, one), _shown(code.input, other)
    try:
        return len({canonical.digest(value) for value in both}) == 1
    except NotSerializable:  # it has no canonical form
        return bool(both[0] == both[1])


def get(run_id: UUID) -> Run[Any]:
    """The run as it is now. Raises NotFound."""
    row = models.Run.objects.filter(pk=run_id).first()
    if row is None:
        raise NotFound(run=run_id)
    return _view(row)


def signal(run_id: UUID | tuple[str, str], name: str, payload: Any, *, message_id: str | None = None) -> None:
    """Sends a message to a run, by id or by (workflow, key). Early ones are kept, repeated ones ignored.

    One that came early and does not fit the wait that is opened later is kept as late and closes nothing.
    Raises NotFound, WaitClosed if the run is over, InvalidInput if the open wait's schema refuses it or
    if the same id came with another payload, LimitExceeded if the run can take no more.
    """
    for word in (name, *([message_id] if message_id is not None else [])):
        if not payloads.is_word(word):
            raise InvalidInput("A signal's name and id are printable texts of 1 to 200 characters")
    tree = payloads.tree_of(payload, what=f"signal {name!r}")
    problem: Exception | None = None
    with locked(_find(run_id)) as tx:
        waits.apply_due(tx)
        message = models.Message(name=name, message_id=message_id or str(clock.new_id()))
        same_id = models.Message.objects.filter(run=tx.run, name=name, message_id=message_id)
        earlier = same_id.first() if message_id is not None else None
        if earlier is not None:
            if not _same_payload(earlier, tree):
                told = "This message id came before, with another payload"
                problem = InvalidInput(told, message_id=message_id)
        elif tx.run.status in RUN_FINAL:
            told = "The run is over; nothing was changed"
            problem = WaitClosed(told, run=tx.run.pk, outcome=tx.run.status)
        else:
            try:
                waits.receive(tx, message, tree, waits.waiting_for(tx, name))
            except InvalidInput as error:
                problem = error
    if problem is not None:
        raise problem


def _same_payload(earlier: models.Message, tree: Any) -> bool:
    """Secrets are sealed anew each time, so what is compared is what was sent."""
    consumed = earlier.status == models.Message.Status.CONSUMED
    stored = (
        payloads.read(earlier.payload) if consumed else payloads.opened(payloads.read_whole(earlier.payload))
    )
    one, other = (json.dumps(value, sort_keys=True) for value in (stored, payloads.opened(tree)))
    return one == other


def _find(run_id: UUID | tuple[str, str]) -> UUID:
    if isinstance(run_id, UUID):
        return run_id
    workflow, key = run_id
    row = models.Run.objects.filter(workflow=workflow, key=key).values_list("pk", flat=True).first()
    if row is None:
        raise NotFound(workflow=workflow, key=key)
    return row


def _require_operator(run_id: UUID, actor: Any) -> None:
    row = models.Run.objects.filter(pk=run_id).only("requester_id").first()
    if row is None:
        raise NotFound(run=run_id)
    require(actor, "approvals.operate", or_is=row.requester_id)


def cancel(run_id: UUID, *, actor: Any, reason: str, compensate: bool = False) -> None:
    """Asks a run to end as cancelled: at once if no worker holds it, else at its next boundary.

    What is in doubt is settled first; with `compensate`, what it has done is undone then, newest first. Raises
    NotFound, PermissionRefused (operators and the requester may), IllegalTransition if it is over (cancelled
    already: nothing happens), or if it has failed and is undoing what it did.
    """
    _require_operator(run_id, actor)
    with locked(run_id) as tx:
        waits.apply_due(tx)
        over, is_failing = tx.run.status in RUN_FINAL, bool(tx.run.error)
        if not over and not is_failing:
            runs.flag_cancel(tx, actor=name_of(actor), reason=fit(reason), undo=compensate)
            runs.cancel_unheld(tx)
    if is_failing and not over:
        told = "The run has failed, and undoes what it did before it ends; it cannot be cancelled any more"
        raise IllegalTransition(told, run=run_id)
    if over and tx.run.status != RunStatus.CANCELLED:
        raise IllegalTransition("A run that is over cannot be cancelled", run=run_id, status=tx.run.status)


def pause(run_id: UUID, *, actor: Any, reason: str) -> None:
    """Holds a run: at once if no worker has it, else at its next boundary. Raises as `cancel`."""
    require(actor, "approvals.operate")
    with locked(run_id) as tx:
        waits.apply_due(tx)
        if tx.run.status in (*RUN_FINAL, RunStatus.PAUSED):
            raise IllegalTransition(
                "Only a run that is not over and not paused can be paused", run=run_id, status=tx.run.status
            )
        if tx.run.status == RunStatus.RUNNING:
            runs.flag_pause(tx, actor=name_of(actor), reason=fit(reason))
        elif runs.in_reconciliation(tx):
            raise IllegalTransition("The run already waits for an operator; resolve its case", run=run_id)
        else:
            runs.pause(tx, actor=name_of(actor), reason=fit(reason))


def resume(run_id: UUID, *, actor: Any) -> None:
    """Lets a paused run go on, or takes back a pause that was asked for and is not honoured yet. Raises as `pause`."""
    require(actor, "approvals.operate")
    with locked(run_id) as tx:
        waits.apply_due(tx)
        # Wherever it stands: its worker may be gone, or may have stopped it at a case, since the pause was asked for.
        if tx.run.status not in (*RUN_FINAL, RunStatus.PAUSED) and tx.run.pause_requested_at is not None:
            tx.set(pause_requested_at=None)
            return
        if tx.run.status != RunStatus.PAUSED:
            raise IllegalTransition(
                f"Only a paused run can be resumed, and this one is {tx.run.status}; nothing was changed",
                run=run_id,
                status=tx.run.status,
                needed=RunStatus.PAUSED.value,
            )
        runs.resume(tx, actor=name_of(actor))


def replay(run_id: UUID) -> engine_replay.Report:
    """Runs today's code against the journal, performing nothing. Raises NotFound, UnknownVersion."""
    return engine_replay.replay(run_id)
