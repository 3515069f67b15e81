"""Look-ups that an operator asked for: run by a worker, shown on the case, changing nothing by themselves."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import UUID

from approvals import clock
from approvals.engine import asking
from approvals.models import Effect, Wait
from approvals.states import WaitStatus
from approvals.workflows import effects as authoring


def probe(wait_id: UUID) -> None:
    """Asks the peer what it has for the effect of a case and notes the answer beside it."""
    wait = Wait.objects.filter(pk=wait_id, status=WaitStatus.OPEN).first()
    if wait is None:
        return
    case = json.loads(wait.data or "{}")
    row = Effect.objects.filter(pk=case.get("effect")).first()
    answer = {"problem": "this case has no effect to look up"} if row is None else _ask(row)
    case["probe"] = {**answer, "at": clock.now().isoformat()}
    Wait.objects.filter(pk=wait_id, status=WaitStatus.OPEN).update(data=json.dumps(case, default=str))


def _ask(row: Effect) -> dict[str, Any]:
    author = authoring.of_kind(row.kind)
    if author is None:
        return {"problem": f"no code for effects of kind {row.kind!r}"}
    if not author.offers("lookup"):
        return {"problem": f"effects of kind {row.kind!r} cannot be looked up"}
    token = authoring.call_ends.set(time.monotonic() + author.deadline.total_seconds())
    try:
        request = asking.action_codec(author, None).decode(row.request, what="the recorded request")
        found = author.lookup(request, row.key)
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"}
    finally:
        authoring.call_ends.reset(token)
    if found is None:
        return {"found": None}
    return {
        "found": {
            "external_id": found.external_id,
            "checksum": found.checksum,
            "evidence": dict(found.evidence),
        }
    }
