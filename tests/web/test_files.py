"""Files that pages name: whoever sees the page fetches them, byte for byte, and nobody else or anything else."""

from __future__ import annotations

import errno
import json
import re
from typing import Any
from unittest import mock

import pytest
from django.core.files.storage import default_storage
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import Context, Json, Object, StoredFile, workflow
from approvals.limits import Limits
from approvals.queries import trees
from approvals.services import decisions, runs
from approvals.testing import drive, people
from tests.web import asking

HOSTILE = b"<!doctype html><script>alert(1)</script>"


@workflow(name="web-files", version=1, visible_to=["nobody"])
def echo(ctx: Context, file: StoredFile) -> StoredFile:
    return ctx.step("shorten", shorten, file)


def shorten(file: StoredFile) -> StoredFile:
    return StoredFile.put(file.read()[:4], "short.txt")


def links(client: Client, page: str) -> list[str]:
    """The files that a page offers."""
    return re.findall(rf'href="({page}files/[0-9a-f]{{32}}/)"', client.get(page).content.decode())


@pytest.fixture
def proof(vera: Client) -> str:
    """An approval whose evidence is a hostile file; the page's address."""
    file = StoredFile.put(HOSTILE, "r\u00e9sum\u00e9 \u202e\r\n.html")
    return asking.url(asking.ask(evidence=[Object("Proof", file)]))


def fetched(client: Client, address: str) -> bytes:
    """What comes, as something to be saved and nothing else."""
    answer = client.get(address)
    assert answer.status_code == 200 and answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment;")
    assert answer["X-Content-Type-Options"] == "nosniff" and answer["Cache-Control"] == "no-store"
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    return bytes(answer.content)


def test_whoever_sees_an_approval_fetches_its_evidence(vera: Client, rita: Client, proof: str) -> None:
    (link,) = links(vera, proof)
    assert fetched(vera, link) == fetched(rita, link) == HOSTILE
    name = vera.get(link)["Content-Disposition"]
    assert name == "attachment; filename*=utf-8''r%C3%A9sum%C3%A9%20.html"
    assert vera.head(link).content == b"" and vera.post(link).status_code == 405


def test_nobody_else_does(browser: Any, who: Any, client: Client, vera: Client, proof: str) -> None:
    (link,) = links(vera, proof)
    assert browser(who.outsider).get(link).status_code == 404
    assert client.get(link)["Location"] == f"/sign-in/?next={link}"
    other = asking.url(asking.ask("Bob"))
    assert vera.get(link.replace(proof, other)).status_code == 404
    for nothing in ("0" * 32, "x", "..%2f..", "a\x00"):
        assert vera.get(f"{proof}files/{nothing}/").status_code == 404


def test_a_file_in_the_action_in_other_evidence_and_in_an_answer(vera: Client, who: Any) -> None:
    one, two, three = (StoredFile.put(f"file {n}".encode(), f"{n}.txt") for n in "123")
    approval = asking.ask_about(
        {"form": "proof", "nested": [{"file": one.model_dump()}]}, [Json("More", {"deep": two.model_dump()})]
    )
    decisions.decide(
        approval.pk,
        actor=who.reviewers[0],
        outcome="approved",
        digest=approval.digest,
        form={"scan": three.model_dump()},
    )
    page = asking.url(approval)
    assert [fetched(vera, link) for link in links(vera, page)] == [b"file 1", b"file 2", b"file 3"]


def test_a_run_s_input_and_output(rita: Client, browser: Any, who: Any) -> None:
    file = StoredFile.put(b"a long file", "long.txt")
    run = runs.start(echo, file, requester=people().requester)
    drive()
    out, given = links(rita, f"/runs/{run.id}/")
    assert (fetched(rita, given), fetched(rita, out)) == (b"a long file", b"a lo")
    assert 'filename="short.txt"' in rita.get(out)["Content-Disposition"]
    assert browser(who.operator).get(given).status_code == 200
    for name in ("outsider", "reviewers"):
        stranger = browser(people().outsider if name == "outsider" else people().reviewers[0])
        assert stranger.get(given).status_code == 404


def test_two_files_of_the_same_bytes_keep_their_names(vera: Client) -> None:
    both = [Object(name, StoredFile.put(b"same", name)) for name in ("b.txt", "a.txt")]
    first, second = links(vera, asking.url(asking.ask(evidence=both)))
    assert 'filename="b.txt"' in vera.get(first)["Content-Disposition"]
    assert 'filename="a.txt"' in vera.get(second)["Content-Disposition"]


def test_what_was_changed_or_is_gone_is_said_and_not_handed_out(vera: Client, proof: str) -> None:
    (link,) = links(vera, proof)
    (name,) = (part for part in asking.words(vera.get(proof)).split() if part.startswith("files/"))
    default_storage.delete(name)
    answer = vera.get(link)
    assert answer.status_code == 410 and "This file is gone" in asking.words(answer)
    with default_storage.open(name, "wb") as file:
        file.write(b"forged")
    answer = vera.get(link)
    told = asking.words(answer)
    assert answer.status_code == 409 and "not the file that was recorded" in told
    assert "forged" not in answer.content.decode() and "U+202E" not in told  # `put` made the name safe
    assert f'href="{proof}"' in answer.content.decode()
    assert (
        "<script" not in answer.content.decode()
    )  # it would fetch parts from here, where the file may be again


def test_a_storage_that_is_away_and_a_file_that_is_too_large(
    vera: Client, proof: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (link,) = links(vera, proof)
    away = OSError(errno.EIO, "the disk is gone")
    with mock.patch.object(type(default_storage._wrapped), "size", side_effect=away):  # type: ignore[attr-defined]
        answer = vera.get(link)
    assert answer.status_code == 503 and "does not give it now" in asking.words(answer)
    monkeypatch.setattr("approvals.queries.files.limits", lambda: Limits(file_bytes=10))
    answer = vera.get(link)
    assert answer.status_code == 409 and "pages hand out 10 at most" in asking.words(answer)


@pytest.mark.parametrize(
    "storage_name", ["../settings.py", "/etc/passwd", "files/../../x", "", "a\\b", "files"]
)
def test_what_only_looks_like_a_file_leads_nowhere(vera: Client, storage_name: str) -> None:
    crafted = {"name": "x", "storage_name": storage_name, "sha256": "ab" * 32, "size": 1}
    page = asking.url(asking.ask_about({"file": crafted}))
    if storage_name == "files":  # a directory: there may be a file of that name in another storage
        (link,) = links(vera, page)
        assert vera.get(link).status_code == 503
        return
    assert links(vera, page) == [] and trees.file_id(crafted) == ""


def test_a_secret_file_is_not_named(vera: Client) -> None:
    file = {"name": "x", "storage_name": "a", "sha256": "ab" * 32, "size": 1}
    assert list(trees.files(trees.read(json.dumps([file])))) == [file]
    assert list(trees.files(trees.read(json.dumps([{"$secret": file}])))) == []


def test_it_takes_the_same_few_queries(vera: Client, proof: str) -> None:
    (link,) = links(vera, proof)
    with CaptureQueriesContext(
        connection,
    ) as seen:
        vera.get(link)
    assert len(seen) <= 6  # session and person 4, the approval and what was said 2
