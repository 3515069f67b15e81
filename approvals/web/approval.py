"""The page of one approval: what will happen, why, what has happened, who decides; and the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import HttpResponse

from approvals.errors import (
    AlreadyDecided,
    ApprovalsError,
    CommentRequired,
    DecisionRefused,
    InvalidInput,
    NotFound,
    StaleDigest,
    WaitClosed,
)
from approvals.queries import sheets
from approvals.queries.wording import absolute, amount
from approvals.services import decisions, files
from approvals.web import forms, show
from approvals.web.exhibits import exhibits
from approvals.web.files import below
from approvals.web.pages import Request, page, render, see_other
from approvals.web.show import Sight

COMMENT_CHARS = 10_000
"""Of one comment; the service keeps no more."""
PARTS = ("status", "quorum", "said", "buttons", "happened")
WITHDRAW = "withdraw"
TITLE_CHARS = 120
SAID: Mapping[str, str] = {
    "approved": "approved this",
    "rejected": "rejected this",
    "changes_requested": "asked for changes",
}
TO: Mapping[str, str] = {
    "approved": "to approve",
    "rejected": "to reject",
    "changes_requested": "to ask for changes",
}


@dataclass(frozen=True, slots=True)
class Typed:
    """What came with a decision that was refused, to be shown again; and why it was. `is_done`: it was taken."""

    comment: str = ""
    told: str = ""
    is_done: bool = False
    post: forms.Post | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    focus: str = ""


@page("GET", "POST")
def approval(request: Request, wait_id: UUID) -> HttpResponse:
    """GET shows; POST decides (`outcome`, `digest`, `revision`, `comment`, `seen`) or withdraws, then shows."""
    found = sheets.sheet(request.viewer, wait_id)
    if request.method != "POST":
        return _page(request, found, Typed())
    comment, post = request.POST.get("comment", ""), forms.posted(request.POST)
    if found.form is not None and (more := forms.changed(post)) is not None:
        return _page(request, found, Typed(comment, post=more[0], focus=more[1]))
    filled = None
    if found.form is not None and request.POST.get("outcome") == "approved":
        keep = partial(files.keep, request.user)
        filled = forms.tree(found.form, post, request.FILES, keep=keep)
    try:
        _decide(request, found, filled)
    except NotFound:
        raise
    except ApprovalsError as refused:
        problems = _blamed(filled, refused)
        typed = Typed(comment, _words(refused, problems), post=post, problems=problems)
        # Read again: whoever is refused because somebody was quicker sees what is so now.
        return _page(request, sheets.sheet(request.viewer, wait_id), typed, _status(refused))
    if request.headers.get("HX-Request") == "true":
        return _page(request, sheets.sheet(request.viewer, wait_id), Typed(is_done=True))
    return see_other("approval", wait_id)


def _decide(request: Request, found: sheets.Sheet, filled: forms.Filled | None) -> None:
    post = request.POST
    if post.get("outcome") == WITHDRAW:
        decisions.withdraw(found.id, actor=request.user)
        return
    comment, revision = post.get("comment", "").replace("\r\n", "\n"), post.get("revision", "")
    if len(comment) > COMMENT_CHARS:
        raise InvalidInput(f"The comment has {len(comment):,} characters; {COMMENT_CHARS:,} are kept at most")
    if not (revision.isascii() and revision.isdigit() and len(revision) < 6):
        raise InvalidInput("This form did not come from this page; decide on what it shows now")
    is_approved = post.get("outcome") == "approved"
    if is_approved and post.get("seen") != found.digest and _is_shortened(found):
        raise InvalidInput("Not all of it was shown yet; open “Show everything”, read it, and approve there")
    if filled is not None and filled.problems:
        raise InvalidInput("The form is not filled in as it must be")
    decisions.decide(
        found.id,
        actor=request.user,
        outcome=post.get("outcome", ""),
        digest=post.get("digest", ""),
        revision=int(revision),
        comment=comment,
        form=filled.tree if filled is not None else None,
        channel="web",
    )


def _blamed(filled: forms.Filled | None, refused: ApprovalsError) -> Mapping[str, str]:
    """What is wrong with the form, by its fields."""
    if filled is None or not isinstance(refused, InvalidInput):
        return {}
    return filled.problems or (filled.blame(refused) if "field" in refused.values else {})


def _status(refused: ApprovalsError) -> HTTPStatus:
    match refused:
        case WaitClosed() | StaleDigest():
            return HTTPStatus.CONFLICT
        case CommentRequired():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case DecisionRefused():
            return HTTPStatus.FORBIDDEN
    return HTTPStatus.UNPROCESSABLE_ENTITY


def _words(refused: ApprovalsError, problems: Mapping[str, str]) -> str:
    """What became of the decision, in words for whoever took it."""
    kept = "Your decision changed nothing; your comment is kept below."
    match refused:
        case AlreadyDecided(by=by, at=at, values={"outcome": outcome}) if at is not None:
            return f"{by} had already {SAID.get(outcome, outcome)}, at {absolute(at)}. {kept}"
        case WaitClosed(outcome="expired"):
            return f"It expired before you decided. {kept}"
        case WaitClosed():
            return f"Nobody waits for this any more: the run ended, or went on without it. {kept}"
        case CommentRequired(values={"outcome": outcome, "policy": policy}):
            return f"Nothing was decided yet: policy {policy} wants a comment {TO[outcome]}. Say why, and decide again."
        case StaleDigest():
            return f"What you saw is not what is asked now; this page shows it as it is. {kept}"
    if problems:
        return "Nothing was decided yet: the form is not filled in as it must be. What is wrong stands beside it."
    return str(refused)


# --- what the page shows ---------------------------------------------------------------------------


def _layout(found: sheets.Sheet, sight: Sight) -> dict[str, Any]:
    """All that was written to persuade, as far as it is shown; what matters most first."""
    shown = {
        "sentence": sight.text(found.sentence),
        "target": sight.text(found.target),
        "title": sight.text(found.title),
        "action": sight.value(found.action, "action"),
        "summary": sight.text(found.summary),
        "evidence": exhibits(found.evidence, sight),
    }
    return {
        **shown,
        "whole": sight.whole,
        "is_shortened": sight.is_shortened,
        "json": None if sight.whole or sight.is_shortened else show.as_json(found.action),
    }


def _is_shortened(found: sheets.Sheet) -> bool:
    """Whether the page, as it is first shown, leaves anything out."""
    sight = Sight()
    _layout(found, sight)
    return sight.is_shortened


def _page(request: Request, found: sheets.Sheet, typed: Typed, status: int = HTTPStatus.OK) -> HttpResponse:
    valid_for = found.terms.valid_for
    context = {
        **_layout(found, Sight(whole="whole" in request.GET, files=below("approval", found.id))),
        "sheet": found,
        "now": found.now,
        "parts": PARTS,
        "typed": typed,
        "path": request.get_full_path(),
        "document_title": show.spelled(found.title[:TITLE_CHARS]),
        "bar": [place < found.got for place in range(found.needed)],
        "valid_for": amount(valid_for.total_seconds()) if valid_for else "",
        "asked": [
            (stage, [(need, [_source(source) for source in need.sources]) for need in stage.needs])
            for stage in found.stages
        ],
        "comment_needed": " or ".join(words for o, words in TO.items() if o in found.comment_required),
        "fields": _fields(found, typed),
        "decisions": [
            (
                d,
                Sight(files=below("approval", found.id)).value(d.form, "form")
                if d.form is not None
                else None,
            )
            for d in found.decisions
        ],
        "deciders": sorted({d.reviewer for d in found.decisions if d.counts and d.outcome == found.outcome}),
    }
    return render(request, "approvals/web/approval.html", context, tab="inbox", status=status)


def _fields(found: sheets.Sheet, typed: Typed) -> forms.Field | None:
    """What a reviewer fills in, where this one may."""
    if found.form is None or not found.is_open or not found.may_decide or found.own is not None:
        return None
    return forms.fields(
        found.form, post=typed.post, problems=typed.problems, focus=typed.focus, label="Your answer"
    )


def _source(source: str) -> str:
    """Whom a policy asks, in words."""
    kind, _, name = source.partition(":")
    if source == "permission:approvals.review":
        return "anyone who may review"
    return {"group": f"group {name}", "permission": f"whoever has {name}"}.get(kind, name)
