"""Look-ups that an operator asked for: run by a worker, shown on the case, changing nothing by themselves.

They run author code, so never under the sweeper's lock: a peer that hangs keeps only other look-ups waiting.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

from approvals import outbox
from approvals.engine import asking
from approvals.engine.calls import stored
from approvals.errors import RAISED_BY_AUTHORS, words_of
from approvals.models import Effect, Outbox, Wait
from approvals.states import WaitStatus
from approvals.transitions import locked
from approvals.workflows import effects as authoring

_HOLD = timedelta(minutes=2)


def work_off() -> int:
    """Every look-up that is due, one after another; how many."""
    count = 0
    while rows := outbox.take([Outbox.Kind.PROBE], 1, _HOLD):
        outbox.work_off(rows, {Outbox.Kind.PROBE: probe})
        count += 1
    return count


def probe(asked: Outbox) -> None:
    """Asks the peer what it has for the effect of a case and notes the answer beside it."""
    wait = Wait.objects.filter(pk=asked.subject, status=WaitStatus.OPEN).first()
    if wait is None:
        outbox.done(asked)
        return
    row = Effect.objects.filter(pk=json.loads(wait.data).get("effect")).first()
    answer = {"problem": "this case has no effect to look up"} if row is None else _ask(row)
    with locked(wait.run_id) as tx:
        wait.refresh_from_db()
        data = {**json.loads(wait.data), "probe": {**answer, "at": tx.now.isoformat()}}
        Wait.objects.filter(pk=wait.pk, status=WaitStatus.OPEN).update(data=json.dumps(data, default=str))
        outbox.done(asked)


def _ask(row: Effect) -> dict[str, Any]:
    """What the peer has for an effect; for a compensation, what it has of that which is to be undone."""
    row = row.compensates or row
    author = authoring.of_kind(row.kind)
    if author is None:
        return {"problem": f"no code for effects of kind {row.kind!r}"}
    if not author.offers("lookup"):
        return {"problem": f"effects of kind {row.kind!r} cannot be looked up"}
    token = authoring.call_ends.set(time.monotonic() + author.deadline.total_seconds())
    try:
        request = asking.action_codec(author, None).decode(row.request, what="the recorded request")
        found = author.lookup(request, row.key)
        if found is None:
            return {"found": None}
        seen = stored(found)
        told = {"external_id": seen.external_id, "checksum": seen.checksum}
        return {"found": {**told, "evidence": json.loads(seen.evidence)}}
    except RAISED_BY_AUTHORS as error:
        return {"problem": f"{type(error).__name__}: {words_of(error)}"}
    finally:
        authoring.call_ends.reset(token)
