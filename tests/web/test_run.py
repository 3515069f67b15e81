"""The page of a run: what it shows and to whom, that it stays small, and what may be done there."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import Context, Failed, workflow
from approvals.models import Effect as Row
from approvals.models import Entry, Run
from approvals.queries import runs_pages
from approvals.services import runs
from approvals.testing import People, assert_invariants, drive, people
from tests.admin.conftest import staff
from tests.engine.undo import Flight, Hotel, booking, trip, world

from . import run_flows as flows
from .page import Page

Browser = Callable[..., Client]
QUERIES = 12
"""Session, account, groups, permissions, time; run, waits, decisions, entries, effects; two for the counts."""
PARTS = ("head", "timeline", "aside", "result", "buttons")


@pytest.fixture
def olaf(browser: Browser, who: People) -> Client:
    return browser(who.operator)


def url(run: Any) -> str:
    return f"/runs/{run.id}/"


def words(answer: Any) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def buttons(answer: Any) -> list[str]:
    """What can be pressed."""
    return [c.attributes.get("value") or "" for c in Page(answer.content.decode()).named("do")]


def unchanged() -> Any:
    return list(Run.objects.order_by("pk").values()), Entry.objects.count()


def status(run: Any) -> str:
    return Run.objects.get(pk=run.id).status


# --- what it shows ---------------------------------------------------------------------------------


def test_it_says_what_runs_what_has_happened_and_what_happens_next(rita: Client) -> None:
    run = flows.asking(key="november")
    answer = rita.get(url(run))
    told = words(answer)
    for expected in (
        "november · Durable",
        f"run {run.id} · runpage-story version 3 · started",
        "by rita",
        "waiting for approval",
        "0 of 1 · counting 0",
        "step count 0",
        "effect upload draft verified high risk cannot be undone",
        "approval make public",
        "policy one-reviewer version 1",
        "People decide on “make public”: 0 of 1 so far.",
        "No worker is held meanwhile",
        "sku A text",
        "•••••• not shown secret",
    ):
        assert expected in told
    assert "hunter2" not in answer.content.decode()
    assert f"/approvals/{_approval(run)}/" in Page(answer.content.decode()).links


def _approval(run: Any) -> str:
    opened = Entry.objects.filter(run=run.id, kind="wait.open", data__contains='"approval"').get()
    return str(re.findall(r'"id":"([0-9a-f-]+)"', opened.data)[0])


def test_how_it_ended(rita: Client) -> None:
    done = runs.start(flows.odd, flows.Order(), requester=people().requester)
    failed = runs.start(flows.failing, flows.Order(), requester=people().requester)
    drive()
    told = words(rita.get(url(done)))
    assert "Done. Nothing is open, nothing is in doubt." in told
    assert "Output value pay U+202E load<script>alert(1)</script> text" in told
    told = words(rita.get(url(failed)))
    assert "Why it failed no pay U+202E load<script>alert(1)</script> today Failed · code failed" in told
    assert buttons(rita.get(url(failed))) == []


def test_what_authors_wrote_is_escaped_marked_and_bounded(rita: Client) -> None:
    run = runs.start(flows.odd, flows.Order(), requester=people().requester)
    drive()
    page = rita.get(url(run)).content.decode()
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert 'class="odd" title="RIGHT-TO-LEFT OVERRIDE">U+202E<' in page
    assert "x" * 300 not in page
    assert "4,800 more characters" in page
    assert not re.search(r"\sstyle=|\son\w+=|<script(?![^>]* src=)", page)


def test_a_long_value_is_shown_to_those_who_ask_for_it(rita: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs_pages, "WHOLE_CHARS", 50)
    run = flows.waiting(order=flows.Order(sku="S" * 100))
    assert "too many to be shown unasked" in words(rita.get(url(run)))
    assert "S" * 100 not in re.sub(r'id="part-timeline".*?</section>', "", rita.get(url(run)).content.decode(),
                                   flags=re.DOTALL)  # fmt: skip
    assert "S" * 100 in words(rita.get(url(run), {"whole": "1", "part": "result"})) + words(
        rita.get(url(run), {"whole": "1"})
    )


def test_operators_among_staff_are_led_to_the_case(browser: Browser, who: People) -> None:
    run = flows.doubtful()
    asked = "It is not known whether “order” (runpage.blind) happened."
    plain = browser(who.operator).get(url(run))
    assert asked in words(plain)
    assert "/admin/approvals/reconciliation/" not in plain.content.decode()
    linked = browser(staff(who.operator)).get(url(run))
    assert re.search(
        r'href="/admin/approvals/reconciliation/[0-9a-f-]+/change/">An operator', linked.content.decode()
    )


# --- who sees it -----------------------------------------------------------------------------------


def test_a_stranger_finds_nothing_there(browser: Browser, who: People) -> None:
    run = runs.start(flows.steps, flows.Order(), requester=who.requester)
    before = unchanged()
    outsider = browser(who.outsider)
    for part in ("", *PARTS, "rail"):
        assert outsider.get(url(run), {"part": part} if part else {}).status_code == 404
    assert outsider.post(url(run), {"do": "cancel", "reason": "mine now"}).status_code == 404
    assert Client().get(url(run)).status_code == 302
    assert Client().get(url(run), {"part": "head"}).status_code == 401
    assert Client().post(url(run), {"do": "cancel", "reason": "x"}).status_code == 302
    assert unchanged() == before
    assert browser(who.requester).get(url(run)).status_code == 200
    assert outsider.get("/runs/00000000-0000-7000-8000-000000000000/").status_code == 404
    assert outsider.get("/runs/no-id/").status_code == 404


def test_looking_changes_nothing(olaf: Client) -> None:
    run = flows.asking()
    before = unchanged()
    for send in (olaf.get, olaf.head):
        for part in ("", *PARTS):
            given = {"do": "cancel", "reason": "x", **({"part": part} if part else {})}
            assert send(url(run), given).status_code == 200
    for method in ("PUT", "DELETE", "PATCH"):
        assert olaf.generic(method, url(run)).status_code == 405
    assert unchanged() == before


# --- live ------------------------------------------------------------------------------------------


def test_each_part_comes_alone_and_newer_than_before(rita: Client) -> None:
    run = flows.asking()
    whole = rita.get(url(run)).content.decode()
    assert f'data-live="lists run:{run.id}"' in whole
    for name in PARTS:
        part = rita.get(url(run), {"part": name}).content.decode().strip()
        assert part.startswith("<section")
        assert part.count("data-part=") == 1
        assert f'id="part-{name}"' in part
        assert f'data-topic="run:{run.id}"' in part
        old, new = (re.findall(rf'id="part-{name}"[^>]* data-version="(\d+)"', t)[0] for t in (whole, part))
        assert int(old) <= int(new)
    assert rita.get(url(run), {"part": "nothing"}).status_code == 404
    assert rita.get(url(run), {"part": "rail"}).content.decode().strip().startswith("<nav")


def test_what_is_typed_lies_in_no_part(olaf: Client) -> None:
    run = flows.asking()
    for name in PARTS:
        part = Page(olaf.get(url(run), {"part": name}).content.decode())
        assert [c.tag for c in part.controls if c.tag != "button"] == []


# --- its size --------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 10_000])
def test_the_same_few_queries_and_a_bounded_page_for_any_journal(olaf: Client, steps: int) -> None:
    run = flows.asking()
    flows.grown(run, steps)
    olaf.get(url(run))
    with CaptureQueriesContext(connection) as asked:
        answer = olaf.get(url(run))
    assert len(asked) == QUERIES
    assert answer.content.count(b"<li") < 260
    assert len(answer.content) < 250_000


def test_pages_lead_through_a_long_journal_once(olaf: Client) -> None:
    run = flows.waiting()
    flows.grown(run, 1_000)
    top = Run.objects.get(pk=run.id).position
    first = olaf.get(url(run))
    ids = set(_positions(first))
    assert {1, 2, 4, 20, top, top - 199} <= ids
    assert 21 not in ids
    assert f"Positions 21 to {top - 200} are not shown here" in words(first)
    seen, page = [], first
    while links := [link for link in Page(page.content.decode()).links if link.startswith("?before=")]:
        page = olaf.get(url(run) + links[0])
        assert "An earlier part of the journal" in words(page)
        seen += _positions(page)
    assert {*seen, *ids, 3} == set(range(1, top + 1))  # 3 is the signal, a wait
    assert len(seen) == len(set(seen))


def _positions(answer: Any) -> list[int]:
    return [int(n) for n in re.findall(r'<li class="[^"]*" id="p(\d+)"', answer.content.decode())]


@pytest.mark.parametrize("before", ["x", "-5", "0", "9" * 40, "٣", "", "\x00", "1e9"])
def test_what_is_no_position_shows_a_journal_all_the_same(rita: Client, before: str) -> None:
    assert rita.get(url(flows.waiting()), {"before": before}).status_code == 200


# --- what may be done ------------------------------------------------------------------------------


def test_the_requester_cancels_with_a_reason(rita: Client) -> None:
    run = flows.waiting()
    assert buttons(rita.get(url(run))) == ["cancel"]
    answer = rita.post(url(run), {"do": "cancel", "reason": "No longer\r\nneeded"})
    assert (answer.status_code, answer["Location"]) == (303, url(run))
    assert status(run) == "cancelled"
    told = words(rita.get(url(run)))
    assert "cancelled by rita: No longer needed" in told
    assert "Cancelled. What it has done in the world stays as it is." in told


def test_an_operator_pauses_and_resumes(olaf: Client) -> None:
    run = flows.waiting()
    assert buttons(olaf.get(url(run))) == ["pause", "cancel"]
    assert olaf.post(url(run), {"do": "pause", "reason": "Let me look"}).status_code == 303
    assert status(run) == "paused"
    paused = olaf.get(url(run))
    assert "paused by olaf: Let me look" in words(paused)
    assert buttons(paused) == ["resume", "cancel"]
    assert olaf.post(url(run), {"do": "resume", "reason": ""}).status_code == 303
    assert "goes on by olaf" in words(olaf.get(url(run)))
    assert status(run) == "pending"


@pytest.mark.parametrize("do", ["pause", "resume", "cancel"])
def test_who_may_not_is_told_so_in_place_and_nothing_changes(browser: Browser, who: People, do: str) -> None:
    run = flows.waiting()
    before = unchanged()
    onlooker = browser(who.outsider)
    assert buttons(onlooker.get(url(run))) == []
    answer = onlooker.post(url(run), {"do": do, "reason": "because"})
    assert answer.status_code == 403
    assert "Nothing was changed" in words(answer)
    assert "approval make public" not in words(answer)
    assert "step count 0" in words(answer)
    assert unchanged() == before


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"do": "cancel", "reason": "  "}, "Say why"),
        ({"do": "pause"}, "Say why"),
        ({"do": "cancel", "reason": "a\x00b"}, "NUL"),
        ({"do": "cancel", "reason": "w" * 1_001}, "1,001 characters"),
        ({"do": "approve", "reason": "kept"}, "cancel, pause or resume"),
        ({"reason": "kept"}, "cancel, pause or resume"),
    ],
)
def test_what_does_not_fit_is_refused_and_what_was_typed_is_kept(
    olaf: Client, given: dict[str, str], told: str
) -> None:
    run = flows.waiting()
    before = unchanged()
    answer = olaf.post(url(run), given)
    assert answer.status_code == 422
    assert told in words(answer)
    kept = Page(answer.content.decode()).named("reason")[0].text
    assert kept == given.get("reason", "")
    assert unchanged() == before


def test_what_is_over_or_not_paused_cannot_be_stopped_or_resumed(olaf: Client) -> None:
    over = runs.start(flows.odd, flows.Order())
    drive()
    waiting = flows.waiting()
    before = unchanged()
    for run, do in ((over, "cancel"), (over, "pause"), (over, "resume"), (waiting, "resume")):
        answer = olaf.post(url(run), {"do": do, "reason": "my reason"})
        assert answer.status_code == 409
        assert "my reason" in answer.content.decode()
        assert Page(answer.content.decode()).ids.count("problem") == 1
    assert unchanged() == before


def test_a_form_from_elsewhere_is_refused(browser: Browser, who: People) -> None:
    run = flows.waiting()
    before = unchanged()
    careful = browser(who.operator, enforce_csrf_checks=True)
    assert careful.post(url(run), {"do": "cancel", "reason": "x"}).status_code == 403
    assert unchanged() == before
    page = Page(careful.get(url(run)).content.decode())
    token = page.named("csrfmiddlewaretoken")[-1].attributes["value"]
    sent = {"do": "cancel", "reason": "x", "csrfmiddlewaretoken": token}
    assert careful.post(url(run), sent).status_code == 303


def test_what_was_done_is_undone_on_request_and_only_offered_where_there_is_something(olaf: Client) -> None:
    world.clear()
    box = b'name="undo"'
    run = runs.start(trip("page", Flight, ends="waits"), 1)
    assert box not in olaf.get(url(run)).content
    drive()
    assert box in olaf.get(url(run)).content
    answer = olaf.post(url(run), {"do": "cancel", "reason": "enough", "undo": "1"})
    assert answer.status_code == 303
    drive()
    assert (
        status(run) == "cancelled" and Row.objects.get(run=run.id, compensates=None).status == "compensated"
    )
    told = words(olaf.get(url(run)))
    assert "undone, with the key" in told and "undoing undo.flight done" in told
    assert "Cancelled. What it had done was undone first" in told
    assert_invariants()


@workflow(name="web-changed-its-mind", version=1)
def changed_its_mind(ctx: Context, books_again: bool) -> None:
    """Undoes by itself, and fails all the same."""
    booking(ctx, Flight)
    ctx.compensate("no seat")
    if books_again:
        booking(ctx, Hotel)
    raise Failed("no visa")


@pytest.mark.parametrize(
    ("flow", "given", "told"),
    [
        (changed_its_mind, False, "Failed. What it had done was undone first."),
        (changed_its_mind, True, "Failed. Some of what it had done was undone, some stays as it is"),
        (trip("stays", Flight, compensate=False), 1, "Failed. What it has done in the world stays as it is."),
        (trip("on", Flight, ends="undoes"), 1, "What was undone on the way is in the journal."),
    ],
)
def test_its_end_says_whether_what_it_did_was_undone(olaf: Client, flow: Any, given: Any, told: str) -> None:
    world.clear()
    run = runs.start(flow, given)
    drive()
    assert told in words(olaf.get(url(run)))
