"""A journal in words: what each line says of what happened."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from approvals import NotSent, Verification, clock
from approvals.models import Effect, Entry, Run, Wait
from approvals.queries import access, timeline
from approvals.queries.event_lines import loss_line
from approvals.queries.lines import Line, Seen, glance, other_line
from approvals.queries.trees import SECRET
from approvals.services import policies, reconciliation, runs
from approvals.testing import clock as database_clock
from approvals.testing import crash_at, decide, drive, peer, pending, people

from . import run_flows as flows

pytestmark = pytest.mark.usefixtures("engine")


def read(run: Any, *, viewer: Any = None, before: int | None = None) -> timeline.Timeline:
    row = Run.objects.get(pk=run.id)
    seen_by = access.viewer(viewer or people().operator)
    return timeline.read(seen_by, row, timeline.open_waits(row), before=before)


def told(line: Line) -> str:
    """A line as a reader has it, without its times."""
    badges = [words for words, _ in line.badges]
    notes = [f"{n.text} {n.code}".strip() for n in line.notes if n.text or n.code]
    return f"{line.kind} {line.name}".strip() + "".join(f" [{b}]" for b in badges) + f": {'; '.join(notes)}"


def lines(run: Any, **options: Any) -> list[str]:
    return [told(line) for line in read(run, **options).lines]


def line_of(run: Any, kind: str, name: str = "") -> Line:
    return next(found for found in read(run).lines if found.kind == kind and found.name.startswith(name))


# --- steps -----------------------------------------------------------------------------------------


def test_steps_say_with_what_they_were_committed_and_what_they_gave():
    run = flows.waiting(order=flows.Order(steps=2))
    first, second = line_of(run, "step", "count 0"), line_of(run, "step", "count 1")
    assert told(first) == "step count 0: async, committed with “upload draft”; 0"
    assert told(second) == "step count 1: async, committed with “upload draft”; 1"
    assert first.took is not None
    assert first.took_as == "2 steps in"
    assert (second.took, second.took_as) == (None, "with the above")


def test_attempts_and_their_failures():
    flows.tries.clear()
    run = runs.start(flows.unsteady, flows.Order())
    drive()
    assert lines(run)[1:] == [
        "step hopeless [failed]: async, committed with “shaky”; OSError: no space",
        "step shaky [attempt 2 next]: attempt 1 failed: ConnectionError: the shelf is away; tried again",
    ]
    assert [n.words for n in read(run).next] == ["“shaky” is tried again."]
    database_clock.shift(timedelta(seconds=5))
    drive()
    assert lines(run)[2:] == [
        "step shaky: async, committed with “a nap”; attempt 2; "
        "attempt 1 failed: ConnectionError: the shelf is away; A",
        "timer a nap: fires; no worker is held",
    ]
    assert [n.words for n in read(run).next] == ["The timer “a nap” fires."]


# --- effects ---------------------------------------------------------------------------------------


def test_an_effect_has_its_times_its_receipt_and_its_key():
    run = runs.start(flows.story, flows.Order())
    drive()
    line = line_of(run, "effect")
    assert [word for word, _ in line.stamps] == ["intent", "sent", "receipt"]
    assert told(line) == (
        "effect upload draft [done] [high risk] [cannot be undone]: "
        "on shelf of A; receipt object:A; checksum 9f2c…e1b0"
    )
    facts = dict(line.facts)
    assert facts["key"] == f"{run.id}-2-1"
    assert len(facts["digest"]) == 64
    assert '"sku": "A"' in facts["request"]
    assert "hunter2" not in facts["request"]
    assert "••••••" in facts["request"]


def test_how_often_it_was_read_back_and_when_last():
    run = flows.waiting()
    with peer(flows.Upload) as shelf:
        shelf.keys.append(f"{run.id}-2-1")
        for _ in range(3):
            runs.pause(run.id, actor=None, reason="look")
            runs.resume(run.id, actor=None)
            drive()
    line = line_of(run, "effect")
    assert line.badges[0] == ("verified 3 times", "good")
    last = next(note for note in line.notes if note.text == "last verified")
    assert last.at == Effect.objects.get(run=run.id).verified_at


def test_doubt_and_how_a_look_up_settled_it():
    run = flows.lost_at("performed")
    effect = told(line_of(run, "effect"))
    assert "outcome unknown (worker " in effect
    assert "looked up: it is there, so it was not sent again" in effect
    lost = line_of(run, "worker lost")
    assert "the call of “upload draft” was under way: it is there, not sent again" in told(lost)
    assert "its process is gone" in told(lost)


def test_doubt_that_only_an_operator_could_settle():
    run = flows.doubtful()
    case = Wait.objects.get(run=run.id, kind="reconciliation")
    assert "outcome unknown" in told(line_of(run, "effect"))
    opened = line_of(run, "waits for an operator")
    assert told(opened).startswith("waits for an operator in doubt [open]: It is not known whether “order”")
    assert "its outcome is not known yet" in told(line_of(run, "worker lost"))
    olaf = people().operator
    reconciliation.resolve(case.pk, actor=olaf, resolution="confirm", note="I saw it", external_id="order-1")
    settled = told(line_of(run, "an operator settled"))
    assert settled.endswith("; olaf: It happened (“I saw it”)")
    assert "olaf says it did happen (“I saw it”)" in told(line_of(run, "effect"))


def test_a_run_that_stopped_before_its_first_call_shows_its_case():
    run = runs.start(flows.buggy, flows.Order(), requester=people().requester)
    drive()
    found = line_of(run, "waits for an operator")
    assert (found.position, found.name) == (0, "crashed")
    assert told(found).startswith("waits for an operator crashed [open]: The workflow's code raised KeyError")


def test_what_the_world_no_longer_shows():
    run = flows.waiting()
    runs.signal(run.id, "go", {})
    with peer(flows.Upload):
        drive()
    effect = told(line_of(run, "effect"))
    assert "[contradicted]" in effect
    assert "read back: it is gone" in effect
    assert "What “upload draft” (runpage.upload) made is gone." in told(line_of(run, "waits for an operator"))


def test_what_was_certainly_not_sent_and_what_the_peer_refused():
    with peer(flows.Publish, "refuse"), peer(flows.Upload) as shelf:
        run = flows.asking()
        decide(run, people().reviewers[0], "approved", comment="Looks right")
        shelf.keys.append(f"{run.id}-2-1")
        drive()
    refused = line_of(run, "effect", "make public")
    assert told(refused).startswith("effect make public [refused]:")
    assert "the peer refused: the peer refused" in told(refused)
    assert refused.look == "bad"


# --- waits and people ------------------------------------------------------------------------------


def test_an_approval_stands_before_the_effect_that_it_guards():
    run = flows.asking()
    (asked,) = pending(run)
    *_, approval, effect = read(run).lines
    assert told(approval) == (
        "approval make public: policy one-reviewer version 1; see the approval; 0 of 1; no worker is held"
    )
    assert approval.since is not None
    assert approval.look == "wait"
    assert [(n.to, n.id) for n in approval.notes if n.to] == [("approval", asked.id)]
    assert told(effect) == "effect make public [not sent yet]: guarded by policy one-reviewer"
    assert effect.look == "todo"
    decide(run, people().reviewers[0], "approved", comment="Looks right")
    approval = line_of(run, "approval")
    assert "[approved]" in told(approval)
    assert "vera-reviewers: approved, “Looks right”" in told(approval)
    assert approval.took_as == "waited"


def test_children_timers_and_whichever_came_first():
    run = runs.start(flows.family, flows.Order(), requester=people().requester)
    drive()
    child = Run.objects.get(parent_run=run.id)
    line = line_of(run, "child run")
    assert [(n.to, n.id) for n in line.notes if n.to] == [("run", child.pk)]
    assert [n.words for n in read(run).next] == [
        "The child run “the little one” ends.",
        "The timer “too long” fires.",
    ]
    runs.signal(child.pk, "go", {})
    drive()
    assert lines(run)[1:] == [
        "child run the little one [done]: see the child run",
        "timer too long [no longer waited for]: ",
        "first of the little one, too long: the first to close: “the little one”",
        "done: ",
    ]


def test_pauses_messages_and_cancels_lie_between():
    run = flows.waiting()
    olaf = people().operator
    runs.signal(run.id, "early", {})
    runs.pause(run.id, actor=olaf, reason="let me look")
    runs.resume(run.id, actor=olaf)
    runs.cancel(run.id, actor=olaf, reason="enough")
    told_ = lines(run)
    assert told_[0] == "started: by rita"
    assert told_[-5].startswith("a message came early and is kept: early ")
    assert told_[-4:] == [
        "paused: by olaf: let me look",
        "goes on: by olaf",
        "asked to cancel, at its next boundary: by olaf: enough",
        "cancelled: by olaf: enough",
    ]


def test_whoever_is_asked_for_one_approval_is_led_to_that_one_alone():
    vera = people().reviewers[0]
    run = flows.asking()
    Run.objects.filter(pk=run.id).update(workflow="no-longer-registered")  # so nobody sees it by its workflow

    def leads(viewer: Any) -> bool:
        approval = next(line for line in read(run, viewer=viewer).lines if line.kind == "approval")
        return any(note.to == "approval" for note in approval.notes)

    assert leads(vera)
    assert leads(people().requester)
    assert not leads(people().outsider)


def test_transactions_the_time_what_a_policy_denies_and_how_long_to_wait_at_most():
    policies.load(flows.NEVER)
    run = runs.start(flows.rest, flows.Order())
    drive()
    assert lines(run)[1:] == [
        "step keep: sync, committed by itself; 6",
        "transaction book: exactly once, together with its own rows; 7",
        "time the time was read: ",
        "effect forbidden [denied]: Policy runpage-never: none of its 1 rules matches; so it denies.",
        "signal maybe: no worker is held",
        "wait at most maybe: at the latest; no worker is held",
    ]
    assert [n.words for n in read(run).next] == [
        "A message “maybe” comes.",
        "The wait for “maybe” ends at the latest.",
    ]
    database_clock.shift(timedelta(hours=2))
    drive()
    assert lines(run)[-3:] == [
        "signal maybe [no longer waited for]: ",
        "wait at most maybe [over]: at the latest",
        "done: ",
    ]


def test_calls_that_were_refused():
    at = clock.now()
    denied = Seen(3, 1, "approval.deny", "publish", at, {"policy": "refunds", "reason": "no rule matches"})
    assert told(other_line([denied], {})) == (
        "approval publish [denied]: policy refunds denies it: no rule matches"
    )
    refused = Seen(
        4, 2, "refused", "ask", at, {"call": "child", "type": "ChildFailed", "message": "it failed"}
    )
    assert told(other_line([refused], {})) == "child ask [refused]: ChildFailed: it failed"


# --- losses ----------------------------------------------------------------------------------------


def test_a_worker_that_was_lost_with_nothing_under_way():
    run = flows.lost_at("step_done")
    (lost,) = (line for line in read(run).lines if line.kind == "worker lost")
    words = [note.text for note in lost.notes]
    assert words[0] == "its process is gone"
    assert words[1].startswith("noticed ")
    assert words[2] == "nothing outside was repeated"
    assert words[3].startswith("another turn went on ")


def test_what_was_sent_again_under_its_key_says_so():
    run = runs.start(flows.blind, flows.Order())
    with peer(flows.Blind, "deduplicate"):
        with crash_at("performed"):
            drive()
        drive()
    assert "“order” was sent again under the same key" in told(line_of(run, "worker lost"))
    assert "sent again under the same key, which the peer knows" in told(line_of(run, "effect"))


def test_a_loss_is_noticed_no_later_than_its_last_sign_of_life():
    at = clock.now()
    alive = Seen(1, 1, "step.complete", "gather", at - timedelta(seconds=1.1))
    why = "worker w1: its process is gone"
    loss = Seen(3, None, "run.lose_lease", "", at, {"why": why, "noticed_after_seconds": 4.0})
    doubt = Seen(2, 2, "effect.doubt", "send", at, {"reason": why, "lost": True})
    again = Seen(4, None, "run.claim", "", at + timedelta(seconds=0.3))
    line = loss_line(loss, [alive, doubt], [loss, again])
    assert told(line) == (
        "worker lost w1: its process is gone; noticed after 1.1 s; "
        "the call of “send” was under way: its outcome is not known yet; another turn went on after 0.3 s"
    )
    hung = Seen(3, None, "run.lose_lease", "", at, {"why": "the turn died: MemoryError"})
    assert told(loss_line(hung, [alive], [hung])) == (
        "turn lost: the turn died: MemoryError; nothing outside was repeated"
    )


# --- bounds ----------------------------------------------------------------------------------------


def test_a_receipt_that_was_read_back_a_thousand_times_is_one_entry():
    run = flows.waiting()
    row, top = Run.objects.get(pk=run.id), Entry.objects.filter(run=run.id).order_by("-seq")[0]
    Entry.objects.bulk_create(
        Entry(run=row, seq=top.seq + n, position=2, kind="effect.verify", name="upload draft",
              at=top.at + timedelta(seconds=n))
        for n in range(1, 5_001)
    )  # fmt: skip
    Effect.objects.filter(run=row).update(status="verified", verified_at=top.at)
    found = read(run)
    assert not found.is_cut
    assert next(line for line in found.lines if line.kind == "effect").badges[0][0] == "verified 5,000 times"


def test_more_than_fits_says_so(monkeypatch: pytest.MonkeyPatch):
    run = flows.waiting(order=flows.Order(steps=30))
    monkeypatch.setattr(timeline, "ENTRIES_MAX", 10)
    monkeypatch.setattr(timeline, "WAITS_MAX", 0)
    found = read(run)
    assert found.is_cut
    assert len(found.lines) < 10
    assert found.more_waits == 1
    assert found.next == []


def test_an_enormous_result_stays_in_the_database():
    run = runs.start(flows.odd, flows.Order())
    drive()
    Entry.objects.filter(run=run.id, kind="step.complete").update(data=f'"{"z" * 500_000}"')
    assert "500,002 characters" in told(line_of(run, "step", "pay"))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1, "b": "two", "c": "", "d": []}, "a: 1, b: two, d: 0 items"),
        ({"token": SECRET}, "token: ••••••"),
        ({"deep": {"x": 1}, "none": None}, "deep: 1 field, none: null"),
        ([1, 2], "2 items"),
        ({"name": "a.csv", "storage_name": "s", "sha256": "0", "size": 7}, "a.csv (7 bytes)"),
        ("t" * 500, f"{'t' * 120}…"),
    ],
)
def test_a_glance_at_a_value(value: Any, words: str):
    assert glance(value) == words


def test_verification_that_found_something_else():
    run = flows.waiting()
    runs.signal(run.id, "go", {})
    with peer(flows.Upload), mock.patch.object(flows.Upload, "verify", return_value=Verification.CHANGED):
        drive()
    assert "read back: it is not what the receipt says" in told(line_of(run, "effect"))


def test_what_was_certainly_not_sent_is_not_called_sent():
    refused = mock.Mock(side_effect=NotSent("the shelf is closed"))
    run = runs.start(flows.story, flows.Order())
    with mock.patch.object(flows.Upload, "perform", refused):
        drive()
    line = line_of(run, "effect")
    assert [word for word, _ in line.stamps] == ["intent"]
    assert "certainly not sent: the shelf is closed" in told(line)
