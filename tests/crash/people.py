"""What people do in a cell: reviewers approve what is asked, an operator looks for himself and says what is so."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User

from approvals.errors import AlreadyDecided, IllegalTransition, WaitClosed
from approvals.models import Approval, Decision, Effect, Wait
from approvals.services import decisions, reconciliation
from tests.crash.databases import OPERATOR, REVIEWERS
from tests.crash.peers import world


def _user(name: str) -> Any:
    return User.objects.get(username=name)


def undecided() -> tuple[Approval, str] | None:
    """The first open question, and the next person who has not answered it."""
    for asked in Approval.objects.filter(wait__status="open").order_by("wait__opened_at", "wait_id"):
        said = Decision.objects.filter(approval=asked).values_list("reviewer_name", flat=True)
        if left := [name for name in REVIEWERS if name not in set(said)]:
            return asked, left[0]
    return None


def approve(wait: UUID, name: str, digest: str) -> None:
    """One person says yes."""
    decisions.decide(wait, actor=_user(name), outcome="approved", digest=digest)


def click_again(wait: str, name: str, digest: str) -> None:
    """The page did not answer: the same person does the same again, and is told the truth."""
    with suppress(AlreadyDecided, WaitClosed):
        approve(UUID(wait), name, digest)


def settle() -> bool:
    """A case of doubt; False if there is none of which anything can be said yet."""
    case = Wait.objects.filter(status="open", kind="reconciliation", name="in doubt").first()
    if case is None:
        return False
    effect = Effect.objects.get(pk=json.loads(case.data)["effect"])
    there = world.ledger.has(effect.key, landed=True)
    try:
        reconciliation.resolve(
            case.pk,
            actor=_user(OPERATOR),
            resolution="confirm" if there else "disprove",
            note="looked at the peer's own list",
            external_id=f"peer:{effect.key}" if there else None,
        )
    except IllegalTransition:  # too early to say that it did not happen
        return False
    return True
