"""`manage.py runs`."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from approvals.management.timeline import timeline
from approvals.services import runs
from approvals.testing import People, drive
from tests.commands.conftest import Manage
from tests.commands.flows import doubling
from tests.engine.undo import Flight, trip, world

NOBODY = "0190f5c4-7d3a-7000-8000-00000000abcd"


def test_a_run_from_its_start_to_its_end(manage: Manage, team: People) -> None:
    started = manage("runs", "start", "commands-double", "--input", "21", "--as", "rita", "--json")
    assert started.code == 0 and started.err == ""
    run = started.document
    assert (run["status"], run["requester"], run["input"], run["output"]) == ("pending", "rita", 21, None)
    drive()
    shown = manage("runs", "show", run["id"], "--json").document
    assert (shown["status"], shown["output"]) == ("completed", 42)
    assert [entry["kind"] for entry in shown["entries"]][-1] == "run.complete"
    text = manage("runs", "show", run["id"])
    assert text.code == 0 and "double" in text.out and "completed" in text.out and "ago (" in text.out


def test_a_key_starts_nothing_twice(manage: Manage) -> None:
    start = ("runs", "start", "commands-double", "--key", "a", "--json")
    first = manage(*start, "--input", "1").document
    assert manage(*start, "--input", "1").document["id"] == first["id"]
    other = manage(*start, "--input", "2")
    assert other.code == 1 and other.error["code"] == "run_conflict" and other.error["run"] == first["id"]


def test_an_input_that_does_not_fit_is_told_what_would(manage: Manage) -> None:
    wrong = manage("runs", "start", "commands-order", "--input", '{"skew": "A"}', "--json")
    assert wrong.code == 1 and wrong.error["code"] == "invalid_input"
    assert wrong.error["fields"] == "sku, note"


def test_input_from_a_file(manage: Manage, tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text('{"sku": "Ä", "note": "hush"}', encoding="utf-8")
    run = manage("runs", "start", "commands-order", "--input", f"@{tmp_path / 'input.json'}", "--json")
    assert run.document["input"]["sku"] == "Ä"
    assert "hush" not in run.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "VERB"),
        (("start",), "NAME"),
        (("start", "x", "--input", "{"), "needs JSON"),
        (("start", "x", "--input", "NaN"), "NaN is not JSON"),
        (("start", "x", "--input", "[" * 100_000), "needs JSON"),
        (("start", "x", "--input", "@/nowhere"), "needs a file"),
        (("show", "12"), "needs an id in full"),
        (("list", "--status", "asleep"), "invalid choice"),
        (("list", "--limit", "0"), "needs a whole number"),
        (("list", "--cursor", "x"), "needs an id in full"),
        (("signal", NOBODY, "go"), "--payload"),
        (("show", NOBODY, "--nonsense"), "unrecognized"),
        (("show", "\udcff"), "not UTF-8"),
    ],
)
def test_a_wrong_call_ends_with_2(manage: Manage, arguments: tuple[str, ...], told: str) -> None:
    text = manage("runs", *arguments)
    assert text.code == 2 and text.out == "" and told in text.err
    as_json = manage("runs", *arguments, "--json")
    assert as_json.code == 2 and as_json.err == "" and told in as_json.error["message"]
    assert as_json.error["type"] == "WrongCall" and as_json.error["code"] == "wrong_call"


@pytest.mark.parametrize("verb", ["show", "cancel", "pause", "resume", "replay"])
def test_no_such_run(manage: Manage, verb: str) -> None:
    text = manage("runs", verb, NOBODY)
    assert text.code == 1 and NOBODY in text.err and "manage.py runs list" in text.err and text.out == ""
    as_json = manage("runs", verb, NOBODY, "--json")
    assert as_json.code == 1 and as_json.error["code"] == "not_found" and as_json.error["run"] == NOBODY


def test_what_cannot_be_started(manage: Manage) -> None:
    unknown = manage("runs", "start", "nope", "--json")
    assert (
        unknown.code == 1
        and unknown.error["type"] == "UnknownWorkflow"
        and unknown.error["workflow"] == "nope"
    )
    unfit = manage("runs", "start", "commands-order", "--input", '{"sku": 1}')
    assert unfit.code == 1 and "problem  sku:" in unfit.err.replace("   ", "  ")
    nobody = manage("runs", "start", "commands-double", "--input", "1", "--as", "nobody", "--json")
    assert nobody.code == 1 and nobody.error["user"] == "nobody"


def test_the_list_and_its_pages(manage: Manage) -> None:
    assert "No runs yet" in manage("runs", "list").out
    ids = [str(runs.start(doubling, n).id) for n in range(3)]
    page = manage("runs", "list", "--limit", "2", "--json").document
    assert [run["id"] for run in page["items"]] == ids[:0:-1]
    rest = manage("runs", "list", "--limit", "2", "--cursor", page["next"], "--json").document
    assert [run["id"] for run in rest["items"]] == ids[:1] and rest["next"] is None
    assert manage("runs", "list", "--status", "failed", "--json").document["items"] == []
    assert "No run fits" in manage("runs", "list", "--workflow", "other").out
    assert ids[0] in manage("runs", "list").out


def test_pause_resume_and_cancel(manage: Manage, team: People) -> None:
    run = str(runs.start(doubling, 1).id)
    refused = manage("runs", "pause", run, "--as", "otto", "--json")
    assert refused.code == 1 and refused.error["code"] == "permission_refused"
    assert (
        manage("runs", "pause", run, "--reason", "lunch", "--as", "olaf", "--json").document["status"]
        == "paused"
    )
    assert "manage.py runs resume" in manage("runs", "show", run).out
    again = manage("runs", "pause", run)
    assert again.code == 1 and "paused" in again.err
    assert manage("runs", "resume", run, "--json").document["status"] == "pending"
    assert manage("runs", "cancel", run, "--json").document["status"] == "cancelled"
    shown = manage("runs", "show", run)
    assert "lunch" in shown.out


def test_a_signal_once(manage: Manage) -> None:
    run = manage("runs", "start", "commands-wait", "--input", "1", "--json").document["id"]
    drive()
    assert f"runs signal {run} go --payload JSON" in manage("runs", "show", run).out
    unfit = manage("runs", "signal", run, "go", "--payload", "{}", "--json")
    assert unfit.code == 1 and unfit.error["type"] == "InvalidInput"
    for _ in range(2):
        sent = manage("runs", "signal", run, "go", "--payload", '{"sku": "A"}', "--message-id", "m1")
        assert sent.code == 0
    drive()
    assert runs.get(UUID(run)).output == "A"
    late = manage("runs", "signal", run, "go", "--payload", '{"sku": "B"}', "--json")
    assert late.code == 1 and late.error["code"] == "wait_closed"


def test_replay_says_whether_the_code_still_does_it(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = str(runs.start(doubling, 4).id)
    drive()
    same = manage("runs", "replay", run, "--json")
    assert same.code == 0 and same.document["same"] is True and same.document["output"] == 8
    monkeypatch.setattr(doubling, "fn", lambda ctx, number: number)
    other = manage("runs", "replay", run, "--json")
    assert other.code == 1 and other.document["same"] is False
    assert "DIFFERS" in manage("runs", "replay", run).out


def test_what_others_wrote_cannot_move_the_cursor(manage: Manage) -> None:
    run = manage(
        "runs", "start", "commands-order", "--input", r'{"sku": "\u001b[2Jx\u202ey"}', "--json"
    ).document
    drive()
    for shown in (manage("runs", "show", run["id"]).out, manage("approvals", "list").out):
        assert "\x1b" not in shown and "\u202e" not in shown
        assert r"\x1b[2Jx\u202ey" in shown


def test_a_refusal_says_what_is_needed(manage: Manage) -> None:
    run = str(runs.start(doubling, 1).id)
    drive()
    told = manage("runs", "resume", run)
    assert told.code == 1 and "Only a paused run can be resumed, and this one is completed" in told.err
    assert "WORKFLOW_MODULES" in manage("runs", "start", "nope").err


def test_a_stop_that_was_asked_for_in_words(manage: Manage) -> None:
    entry = {
        "at": "2026-11-29T12:00:00+00:00",
        "name": "",
        "kind": "run.cancel_asked",
        "data": {"reason": "no"},
    }
    (line,) = timeline([entry])
    assert "asked to cancel, at its next boundary: no" in line
    looked = {**entry, "kind": "effect.disprove", "data": {"by": "look-up"}}
    said = {**entry, "kind": "effect.disprove", "data": {"by": "olaf: I rang: nothing there"}}
    assert [line.rpartition("  ")[2] for line in timeline([looked, said])] == [
        "looked up: it did not happen",
        "olaf: it did not happen (I rang: nothing there)",
    ]


def test_a_cancelled_run_is_undone_on_request_and_shows_what_undoes_what(
    manage: Manage, team: People
) -> None:
    world.clear()
    run = str(runs.start(trip("commands", Flight, ends="waits"), 1).id)
    drive()
    asked = manage("runs", "cancel", run, "--compensate", "--reason", "enough", "--json")
    assert (asked.code, asked.document["status"], asked.document["unwinding"]) == (0, "pending", "asked")
    drive()
    shown = manage("runs", "show", run, "--json").document
    assert (shown["status"], world.booked) == ("cancelled", {})
    done, undone = shown["effects"]
    assert (done["status"], done["compensates"]) == ("compensated", None)
    assert (undone["kind"], undone["compensates"]) == ("undo.flight.compensate", done["position"])
    text = manage("runs", "show", run).out
    assert "and to undo what it did first: enough" in text and "undone" in text
