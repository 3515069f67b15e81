"""The effects, each against the world it changes."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest
from django.core import mail
from django.core.mail import mailers
from django.test import override_settings

from approvals import CHANGED, MATCH, MISSING, Effect, NotSent, Receipt, Refused, StoredFile, Unknown
from durable_app.workflows import objects
from durable_app.workflows.publishing import MakePublic, Notice, Publication, SendNotice, Upload, UploadDraft

pytestmark = pytest.mark.usefixtures("store")

KEY = "0192f3aa:3/1"
ADDRESS = "public/set.jsonl"


def performed(effect: Effect[Any], request: Any, key: str = KEY) -> Receipt[Any]:
    return effect.perform(request, key).bound(request, key, effect.kind)


def hashed(data: bytes) -> str:
    return sha256(data).hexdigest()


# --- the draft ----------------------------------------------------------------------------------------


@pytest.fixture
def upload(store: str) -> Upload:
    return Upload(file=StoredFile.put(b"records\n", "set.jsonl"))


def test_draft_is_looked_up_verified_and_removed(upload: Upload) -> None:
    draft = UploadDraft()
    assert draft.lookup(upload, KEY) is None
    receipt = performed(draft, upload)
    assert receipt.checksum == upload.file.sha256
    assert objects.read(receipt.external_id) == b"records\n"
    found = draft.lookup(upload, KEY)
    assert found is not None
    assert (found.external_id, found.checksum) == (receipt.external_id, receipt.checksum)
    assert draft.verify(receipt) is MATCH
    draft.compensate(receipt, "another")
    assert draft.verify(receipt) is MISSING
    draft.compensate(receipt, "another")


def test_draft_twice_with_one_key_is_one_object(upload: Upload) -> None:
    assert performed(UploadDraft(), upload) == performed(UploadDraft(), upload)


def test_drafts_of_two_keys_do_not_meet(upload: Upload) -> None:
    other = performed(UploadDraft(), upload, "0192f3aa:3/2")
    assert performed(UploadDraft(), upload).external_id != other.external_id


def test_changed_draft_shows_both_checksums(upload: Upload) -> None:
    receipt = performed(UploadDraft(), upload)
    objects.replace(receipt.external_id, b"tampered")
    assert UploadDraft().verify(receipt) is CHANGED
    found = UploadDraft().lookup(upload, KEY)
    assert found is not None
    assert (receipt.checksum, found.checksum) == (hashed(b"records\n"), hashed(b"tampered"))


def test_draft_overwrites_nothing(upload: Upload) -> None:
    receipt = performed(UploadDraft(), upload)
    objects.replace(receipt.external_id, b"somebody else's")
    with pytest.raises(Refused):
        performed(UploadDraft(), upload)
    assert objects.read(receipt.external_id) == b"somebody else's"


def test_draft_of_a_file_that_changed_is_refused(upload: Upload) -> None:
    objects.replace(upload.file.storage_name, b"tampered")
    with pytest.raises(Refused):
        performed(UploadDraft(), upload)


# --- the publication ----------------------------------------------------------------------------------


def publication(data: bytes, replaces: bytes | None = None) -> Publication:
    draft = f"drafts/{hashed(data)[:8]}.jsonl"
    objects.add(draft, data)
    before = hashed(replaces) if replaces is not None else ""
    return Publication(slug="set", draft=draft, sha256=hashed(data), records=1, replaces=before)


def test_first_publication_and_back() -> None:
    public, request = MakePublic(), publication(b"one")
    assert public.target(request) == ADDRESS
    assert "nothing is public yet" in public.describe(request)
    assert public.current(request) == {"address": ADDRESS, "sha256": None}
    assert public.lookup(request, KEY) is None
    receipt = performed(public, request)
    assert objects.read(ADDRESS) == b"one"
    assert public.verify(receipt) is MATCH
    assert performed(public, request) == receipt
    found = public.lookup(request, KEY)
    assert found is not None
    assert (found.external_id, found.checksum) == (ADDRESS, hashed(b"one"))
    public.compensate(receipt, "another")
    public.compensate(receipt, "another")
    assert public.verify(receipt) is MISSING


def test_second_publication_keeps_the_first_and_goes_back_to_it() -> None:
    public = MakePublic()
    first = performed(public, publication(b"one"))
    second = performed(public, publication(b"two", replaces=b"one"))
    assert objects.read(ADDRESS) == b"two"
    assert public.verify(second) is MATCH
    assert public.verify(first) is MATCH, "a later publication is no contradiction of an earlier one"
    public.compensate(second, "another")
    assert objects.read(ADDRESS) == b"one"
    assert public.verify(first) is MATCH


def test_changed_publication() -> None:
    receipt = performed(MakePublic(), publication(b"one"))
    objects.replace(ADDRESS, b"tampered")
    assert MakePublic().verify(receipt) is CHANGED
    with pytest.raises(Unknown):
        MakePublic().lookup(receipt.request, KEY)
    with pytest.raises(Refused):
        MakePublic().compensate(receipt, "another")
    assert objects.read(ADDRESS) == b"tampered"


def test_only_what_was_approved_is_published() -> None:
    request = publication(b"one")
    objects.replace(request.draft, b"tampered")
    with pytest.raises(Refused, match="not what was approved"):
        performed(MakePublic(), request)
    objects.remove(request.draft)
    with pytest.raises(Refused, match="not what was approved"):
        performed(MakePublic(), request)
    assert objects.read(ADDRESS) is None


def test_only_in_place_of_what_was_approved() -> None:
    late = publication(b"two")
    performed(MakePublic(), publication(b"one"))
    with pytest.raises(Refused, match="ask again"):
        performed(MakePublic(), late)
    assert objects.read(ADDRESS) == b"one"


def test_publishing_what_is_public_already() -> None:
    performed(MakePublic(), publication(b"one"))
    again = performed(MakePublic(), publication(b"one", replaces=b"one"))
    MakePublic().compensate(again, "another")
    assert objects.read(ADDRESS) == b"one"
    assert MakePublic().verify(again) is MATCH


# --- the notice ---------------------------------------------------------------------------------------

NOTICE = Notice(to=["a@example.org", "b@example.org"], subject="Published: set", body="…")


class Server:
    """A mail server that answers as it is told."""

    def __init__(self, *, on_open: Exception | None = None, on_send: Exception | None = None) -> None:
        self.on_open, self.on_send = on_open, on_send
        self.sent: list[Any] = []

    def open(self) -> bool:
        if self.on_open:
            raise self.on_open
        return True

    def send_messages(self, messages: list[Any]) -> int:
        if self.on_send:
            raise self.on_send
        self.sent += messages
        return len(messages)

    def close(self) -> None:
        raise smtplib.SMTPServerDisconnected("closing fails, after everything was said")


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Server], Server]]:
    def use(server: Server) -> Server:
        monkeypatch.setattr(type(mailers), "default", server)
        return server

    return use  # type: ignore[return-value]


@override_settings(DEFAULT_FROM_EMAIL="Durable <durable@data.example>")
def test_notice_has_a_stable_id_and_hides_the_others(using: Callable[[Server], Server]) -> None:
    server = using(Server())
    receipt = performed(SendNotice(), NOTICE)
    assert receipt.external_id == "<0192f3aa-3-1@data.example>"
    assert performed(SendNotice(), NOTICE) == receipt
    message = server.sent[0].message()
    assert message["Message-ID"] == receipt.external_id
    assert message["To"] is None
    assert server.sent[0].recipients() == NOTICE.to


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (Server(on_open=ConnectionRefusedError()), NotSent),
        (Server(on_open=smtplib.SMTPAuthenticationError(535, b"no")), NotSent),
        (Server(on_send=smtplib.SMTPDataError(451, b"later")), NotSent),
        (Server(on_send=smtplib.SMTPDataError(554, b"never")), Refused),
        (Server(on_send=smtplib.SMTPSenderRefused(550, b"not you", "x")), Refused),
        (Server(on_send=smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (451, b"")})), NotSent),
        (Server(on_send=smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (550, b"")})), Refused),
        (Server(on_send=smtplib.SMTPNotSupportedError()), Refused),
        (Server(on_send=ValueError("Invalid address")), Refused),
        (Server(on_send=smtplib.SMTPServerDisconnected()), smtplib.SMTPServerDisconnected),
        (Server(on_send=TimeoutError()), TimeoutError),
    ],
    ids=lambda value: repr(getattr(value, "on_open", None) or getattr(value, "on_send", None)),
)
def test_what_a_mail_server_says(
    using: Callable[[Server], Server], server: Server, expected: type[Exception]
) -> None:
    using(server)
    with pytest.raises(expected):
        performed(SendNotice(), NOTICE)


def test_notice_by_django_itself() -> None:
    performed(SendNotice(), NOTICE)
    (sent,) = mail.outbox
    assert sent.subject == NOTICE.subject
