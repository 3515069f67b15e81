"""research-and-publish from its start to its end, on the engine."""

from __future__ import annotations

import json
import smtplib
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.core.files.storage import default_storage
from django.core.mail.backends.locmem import EmailBackend

from approvals.errors import Crashed, DecisionRefused
from approvals.faults import POINTS
from approvals.models import Wait
from approvals.services import policies, reconciliation, runs
from approvals.testing import People, assert_invariants, clock, crash_at, decide, drive, pending, people
from durable_app.seed import POLICIES
from durable_app.workflows import objects
from durable_app.workflows.publishing import public_name
from durable_app.workflows.research import Report, ResearchRequest, research_and_publish

pytestmark = [
    pytest.mark.usefixtures("engine", "store"),
    pytest.mark.parametrize("store", ["disk"], indirect=True),
]

ADDRESS = public_name("set")


@pytest.fixture
def team() -> People:
    made = people(group="reviewers")
    policies.load(POLICIES / "publication.yaml", actor=None)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    (made / "a.csv").write_text("name,version,licence\nattrs,25.1,MIT\nhttpx,0.28,BSD-3-Clause\n")
    (made / "b.csv").write_bytes(b"\xff")
    return made


def start(folder: Path, team: People) -> Any:
    return runs.start(
        research_and_publish, ResearchRequest(folder=str(folder), title="Set"), requester=team.requester
    )


def drafts() -> list[str]:
    return default_storage.listdir("drafts")[1] if default_storage.exists("drafts") else []


def report(run: Any) -> Report:
    ended = runs.get(run.id)
    assert ended.status == "completed"
    return Report.model_validate(ended.output)


def open_case(run: Any) -> dict[str, Any]:
    wait = Wait.objects.get(run=run.id, kind="reconciliation", status="open")
    assert runs.get(run.id).status == "suspended"
    case: dict[str, Any] = json.loads(wait.data)
    return case


def test_approved(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    (question,) = pending(run)
    assert question.title == "Publish “Set”: 2 records"
    assert objects.read(ADDRESS) is None
    assert mail.outbox == []
    decide(run, team.reviewers[0], "approved")
    drive()
    ended = report(run)
    assert (ended.outcome, ended.records, ended.left_out, ended.notified) == ("published", 2, 1, "1 by mail")
    assert objects.checksum(ADDRESS) == objects.checksum(ended.draft) == ended.sha256
    assert len(mail.outbox) == 1
    assert_invariants()


def test_rejected_leaves_the_draft(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    decide(run, team.reviewers[0], "rejected", comment="two licences are missing")
    drive()
    ended = report(run)
    assert ended.outcome == "not published"
    assert "two licences are missing" in ended.reason
    assert objects.checksum(ended.draft) == ended.sha256
    assert objects.read(ADDRESS) is None
    assert mail.outbox == []
    assert_invariants()


def test_nobody_answers(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    clock.shift(timedelta(days=3))
    drive()
    assert report(run).outcome == "not published"
    assert objects.read(ADDRESS) is None
    assert_invariants()


def test_the_requester_does_not_decide(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    with pytest.raises(DecisionRefused):
        decide(run, team.requester, "approved")
    assert len(pending(run)) == 1


def test_draft_changed_before_the_approval_stops_the_run(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    (name,) = drafts()
    objects.replace(f"drafts/{name}", b"tampered")
    decide(run, team.reviewers[0], "approved")
    drive()
    case = open_case(run)
    assert case["found"] == "changed"
    assert case["receipt"]["checksum"] != case["seen"]["checksum"]
    assert case["seen"]["checksum"] == objects.checksum(f"drafts/{name}")
    assert objects.read(ADDRESS) is None
    assert_invariants()


def test_draft_gone_before_the_approval_stops_the_run(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    (name,) = drafts()
    objects.remove(f"drafts/{name}")
    decide(run, team.reviewers[0], "approved")
    drive()
    assert open_case(run)["found"] == "missing"


@pytest.mark.parametrize("nth", [1, 2])
def test_crash_after_the_peer_acted(folder: Path, team: People, nth: int) -> None:
    run = start(folder, team)
    with crash_at(f"performed:{nth}"):
        drive()
        if nth == 2:
            decide(run, team.reviewers[0], "approved")
            drive()
    drive()
    if nth == 1:
        decide(run, team.reviewers[0], "approved")
        drive()
    assert report(run).outcome == "published"
    assert len(drafts()) == 1
    assert len(mail.outbox) == 1
    assert_invariants()


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_repeats_nothing(folder: Path, team: People, point: str, nth: int) -> None:
    run = start(folder, team)
    with crash_at(f"{point}:{nth}"), suppress(Crashed):
        drive()
        if pending(run):
            decide(run, team.reviewers[0], "approved")
            drive()
    for _ in range(4):
        drive()
        if pending(run):
            decide(run, team.reviewers[0], "approved")
            drive()
        clock.shift(timedelta(minutes=1))
        for case in Wait.objects.filter(run=run.id, kind="reconciliation", status="open"):
            assert case.name == "in doubt"  # the mail, which cannot be asked
            answer: dict[str, Any] = (
                {"resolution": "confirm", "external_id": "seen"}
                if mail.outbox
                else {"resolution": "disprove"}
            )
            reconciliation.resolve(case.pk, actor=team.operator, note="I looked", **answer)
    ended = report(run)
    assert ended.outcome == "published"
    assert objects.checksum(ADDRESS) == objects.checksum(ended.draft) == ended.sha256
    assert len(drafts()) == 1
    assert len(mail.outbox) == 1
    assert_invariants()


def test_crash_after_the_mail_went_out_asks_a_person(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    decide(run, team.reviewers[0], "approved")
    with crash_at("performed:2"):
        drive()
    drive()
    assert len(mail.outbox) == 1
    assert "doubt" in open_case(run)
    assert_invariants()


def test_somebody_published_in_between(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    objects.replace(ADDRESS, b"another publication\n")
    decide(run, team.reviewers[0], "approved")
    drive()
    ended = report(run)
    assert ended.outcome == "not published"
    assert "ask again" in ended.reason
    assert objects.read(ADDRESS) == b"another publication\n"


def test_second_publication_compares_with_the_first(folder: Path, team: People) -> None:
    for content in ("name,version\nattrs,25.1\n", "name,version\nattrs,25.3\nhttpx,0.28\n"):
        (folder / "a.csv").write_text(content)
        run = start(folder, team)
        drive()
        (question,) = pending(run)
        decide(run, team.reviewers[0], "approved")
        drive()
        assert report(run).outcome == "published"
    wait = Wait.objects.select_related("approval").get(pk=question.id)
    evidence = {item.get("title", item.get("label")): item for item in json.loads(wait.approval.evidence)}
    assert evidence["since the last publication"]["before"] == {"attrs": "25.1 NOASSERTION"}
    assert evidence["since the last publication"]["after"] == {
        "attrs": "25.3 NOASSERTION",
        "httpx": "0.28 NOASSERTION",
    }
    assert evidence["the number of records changed by less than 20%"]["passed"] is False


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (smtplib.SMTPDataError(554, b"never"), "was refused"),
        (ConnectionRefusedError("nobody there"), "could not be sent"),
    ],
)
def test_mail_refused_does_not_undo_the_publication(
    folder: Path, team: People, monkeypatch: pytest.MonkeyPatch, answer: Exception, told: str
) -> None:
    def refuse(*args: object) -> None:
        raise answer

    monkeypatch.setattr(EmailBackend, "send_messages" if "refused" in told else "open", refuse)
    run = start(folder, team)
    drive()
    decide(run, team.reviewers[0], "approved")
    drive()
    for _ in range(5):
        clock.shift(timedelta(hours=1))
        drive()
    ended = report(run)
    assert ended.outcome == "published"
    assert told in ended.notified
    assert_invariants()


def test_nothing_found(tmp_path: Path, team: People) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    run = start(empty, team)
    drive()
    assert (report(run).outcome, report(run).reason) == ("not published", "no records were found")
    assert drafts() == []


def test_no_such_folder(tmp_path: Path, team: People) -> None:
    run = start(tmp_path / "absent", team)
    drive()
    ended = runs.get(run.id)
    assert ended.status == "failed"


def test_this_machine_by_default(team: People) -> None:
    run = runs.start_json("research-and-publish", {}, requester=team.requester)
    drive()
    (question,) = pending(run)
    assert question.title.startswith("Publish “Installed packages”: ")
    assert_invariants()


def test_cancelling_with_compensation_deletes_the_draft(folder: Path, team: People) -> None:
    run = start(folder, team)
    drive()
    assert len(drafts()) == 1 and len(pending(run)) == 1
    runs.cancel(run.id, actor=team.requester, reason="not needed", compensate=True)
    drive()
    assert runs.get(run.id).status == "cancelled" and drafts() == [] and pending(run) == []
    assert_invariants()
