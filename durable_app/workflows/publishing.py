"""What research-and-publish does to the outside world: a draft, a publication, a notice."""

from __future__ import annotations

import re
import smtplib
from contextlib import suppress
from datetime import timedelta
from email.utils import parseaddr
from hashlib import sha256

from django.conf import settings
from django.core.mail import EmailMessage, mailers
from pydantic import BaseModel

from approvals import (
    CHANGED,
    MATCH,
    MISSING,
    Effect,
    NotSent,
    Receipt,
    Refused,
    Retry,
    StoredFile,
    Unknown,
    Verification,
)
from approvals.errors import ContentChanged
from durable_app.workflows import objects


class Upload(BaseModel):
    """A file to keep under a name of its own, not public."""

    file: StoredFile


class UploadDraft(Effect[Upload]):
    """Keeps a draft in the object store, under a name made from the key: it cannot meet anybody else's."""

    kind = "draft.upload"
    deadline = timedelta(minutes=2)

    def describe(self, request: Upload) -> str:
        return f"Keep {request.file.name} ({request.file.size:,} bytes) as a draft."

    def target(self, request: Upload) -> str:
        return "drafts/"

    def perform(self, request: Upload, key: str) -> Receipt[Upload]:
        name = draft_name(key)
        try:
            objects.add(name, request.file.read())
        except (FileExistsError, ContentChanged) as problem:
            raise Refused(str(problem)) from problem
        return Receipt(name, checksum=request.file.sha256, evidence={"bytes": request.file.size})

    def lookup(self, request: Upload, key: str) -> Receipt[Upload] | None:
        name = draft_name(key)
        found = objects.checksum(name)
        return None if found is None else Receipt(name, checksum=found)

    def verify(self, receipt: Receipt[Upload]) -> Verification:
        found = objects.checksum(receipt.external_id)
        return MISSING if found is None else MATCH if found == receipt.checksum else CHANGED

    def compensate(self, receipt: Receipt[Upload], key: str) -> Receipt[Upload] | None:
        objects.remove(receipt.external_id)
        return Receipt(receipt.external_id, evidence={"removed": True})


class Publication(BaseModel):
    """The draft to make public, exactly; and what it takes the place of, exactly."""

    slug: str
    draft: str
    sha256: str
    records: int
    replaces: str = ""

    @property
    def address(self) -> str:
        """Where readers find the latest."""
        return public_name(self.slug)


class MakePublic(Effect[Publication]):
    """Makes a draft the latest publication. Each also stays under its checksum, so that one can go back.

    People approve a change from one publication to the next, so it is refused when another has come between.
    The store has no compare-and-swap: `replaces` is compared just before.
    """

    kind = "dataset.publish"
    policy = "publication"
    risk = "medium"
    deadline = timedelta(minutes=2)

    def describe(self, request: Publication) -> str:
        place = "in place of what is public there" if request.replaces else "where nothing is public yet"
        return f"Make {request.records:,} records public as {request.address}, {place}."

    def target(self, request: Publication) -> str:
        return request.address

    def current(self, request: Publication) -> dict[str, str | None]:
        return {"address": request.address, "sha256": objects.checksum(request.address)}

    def perform(self, request: Publication, key: str) -> Receipt[Publication]:
        data = objects.read(request.draft)
        if data is None or sha256(data).hexdigest() != request.sha256:
            raise Refused(f"{request.draft} is not what was approved")
        public = objects.checksum(request.address)
        if public != request.sha256:
            if public != (request.replaces or None):
                raise Refused(f"{request.address} is not what it was when this was asked for; ask again")
            objects.add(_kept(request.slug, request.sha256), data)
            objects.replace(request.address, data)
        return self._receipt(request)

    def lookup(self, request: Publication, key: str) -> Receipt[Publication] | None:
        public = objects.checksum(request.address)
        if public == request.sha256:
            return self._receipt(request)
        if public == (request.replaces or None):
            return None
        raise Unknown(f"{request.address} holds neither this publication nor the one before, but {public}")

    def verify(self, receipt: Receipt[Publication]) -> Verification:
        public = objects.checksum(receipt.external_id)
        if public is None:
            return MISSING
        # Another publication may have taken its place since; that one was kept under its own checksum.
        is_later = (
            public != receipt.checksum and objects.checksum(_kept(receipt.request.slug, public)) == public
        )
        return MATCH if public == receipt.checksum or is_later else CHANGED

    def compensate(self, receipt: Receipt[Publication], key: str) -> Receipt[Publication] | None:
        request, public = receipt.request, objects.checksum(receipt.external_id)
        before = objects.read(_kept(request.slug, request.replaces)) if request.replaces else None
        if public not in {request.sha256, request.replaces or None} or (request.replaces and before is None):
            raise Refused(f"{request.address} holds a later publication, or the one before was not kept")
        if before is not None:
            objects.replace(request.address, before)
        else:
            objects.remove(request.address)
        if request.replaces != request.sha256:
            objects.remove(_kept(request.slug, request.sha256))
        return Receipt(receipt.external_id, checksum=request.replaces or None)

    def _receipt(self, request: Publication) -> Receipt[Publication]:
        evidence = {"kept": _kept(request.slug, request.sha256), "replaces": request.replaces}
        return Receipt(request.address, checksum=request.sha256, evidence=evidence)


class Notice(BaseModel):
    """One mail to many, none of whom sees the others."""

    to: list[str]
    subject: str
    body: str


class SendNotice(Effect[Notice]):
    """Sends a mail. A mail server cannot be asked later what it sent: an unknown outcome goes to a person."""

    kind = "notice.send"
    deadline = timedelta(seconds=30)
    reversible = False
    retry = Retry(attempts=5, first_seconds=10, factor=4, max_seconds=600)

    def describe(self, request: Notice) -> str:
        return f"Send “{request.subject}” to {len(request.to)} subscribers."

    def target(self, request: Notice) -> str:
        return ", ".join(request.to)

    def perform(self, request: Notice, key: str) -> Receipt[Notice]:
        host = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
        message_id = f"<{_safe(key)}@{host}>"
        mail = EmailMessage(request.subject, request.body, bcc=request.to, headers={"Message-ID": message_id})
        server = mailers.default
        try:
            server.open()
        except OSError as problem:  # smtplib's exceptions are OSErrors too
            raise NotSent(f"no mail server: {problem}") from problem
        try:
            server.send_messages([mail])
        except (smtplib.SMTPException, ValueError) as answer:
            if (told := _answer(answer)) is None:
                raise
            raise told from answer
        finally:
            with suppress(OSError):
                server.close()
        return Receipt(message_id, evidence={"recipients": len(request.to)})


def draft_name(key: str) -> str:
    """Where the effect with this key keeps its draft."""
    return f"drafts/{_safe(key)}.jsonl"


def public_name(slug: str) -> str:
    """Where the latest publication is."""
    return f"public/{slug}.jsonl"


def _kept(slug: str, checksum: str) -> str:
    return f"public/{slug}/{checksum}.jsonl"


def _safe(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", key)


def _answer(error: Exception) -> Refused | NotSent | None:
    """What a mail server said: 4xx is "not now", other codes a definite no. None: it said nothing."""
    match error:
        case smtplib.SMTPRecipientsRefused():
            codes = [code for code, _ in error.recipients.values()]
        case smtplib.SMTPResponseException():
            codes = [error.smtp_code]
        case smtplib.SMTPNotSupportedError() | ValueError():  # it never got as far as the server
            codes = [500]
        case _:
            return None
    return NotSent(str(error)) if all(400 <= code < 500 for code in codes) else Refused(str(error))
