"""Files that a run produces or reads: kept in Django's default storage, named by what they hold.

A file's name in the storage follows from its content, so putting the same bytes twice, by two workers at
once, or again after a torn write, ends in one object that holds them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import unicodedata
from typing import Self
from uuid import uuid4

from django.core.files.base import ContentFile
from django.core.files.storage import Storage, default_storage
from pydantic import ConfigDict

from approvals.errors import ContentChanged
from approvals.types import FileRef, Verification

NAME_BYTES = 120
SUFFIX_BYTES = 20
CHUNK_BYTES = 1 << 20
PLACING_ATTEMPTS = 5
MISSING: str = Verification.MISSING.value


class StoredFile(FileRef):
    """A file by name, content and size: legal in inputs, outputs, requests (so in their digest) and evidence."""

    model_config = ConfigDict(json_schema_extra={"format": "stored-file"})  # forms ask for a file

    @classmethod
    def put(cls, data: bytes, name: str) -> Self:
        """Stores the bytes and says where; the same bytes and name give the same answer every time.

        The name is made safe (`safe_name`). Raises `ContentChanged` if the storage does not hold what it
        was given, and `OSError` if it cannot be reached.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        shown = safe_name(name)
        storage_name = f"files/{sha256[:2]}/{sha256}/{_ascii(shown)}"
        if _found(storage_name) != sha256:
            _place(default_storage, storage_name, data, sha256)
        return cls(name=shown, storage_name=storage_name, sha256=sha256, size=len(data))

    def read(self) -> bytes:
        """The bytes. Raises `ContentChanged` (name, expected, found) if they are gone or not those recorded."""
        try:
            with default_storage.open(self.storage_name) as file:
                data: bytes = file.read()
        except FileNotFoundError:
            raise ContentChanged(name=self.name, expected=self.sha256, found=MISSING) from None
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise ContentChanged(name=self.name, expected=self.sha256, found=found)
        return data


def safe_name(name: str) -> str:
    """The last part of a name, without control, direction or other invisible characters, and not too long.

    A short suffix is kept; what has no name left is called `file`.
    """
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rstrip("/").rpartition("/")[2]
    visible = "".join(
        c for c in last if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    )
    stem, suffix = os.path.splitext(visible.strip(" ."))
    if len(suffix.encode()) > SUFFIX_BYTES:
        stem, suffix = stem + suffix, ""
    stem = stem.encode()[: NAME_BYTES - len(suffix.encode())].decode(errors="ignore")
    return (stem + suffix).strip(" .") or "file"


def _ascii(name: str) -> str:
    """The name for a storage: letters, digits, `.`, `_` and `-` alone."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


def _found(storage_name: str) -> str:
    """The SHA-256 of what the storage holds under this name, or `missing`."""
    found = hashlib.sha256()
    try:
        with default_storage.open(storage_name) as file:
            for chunk in file.chunks(CHUNK_BYTES):
                found.update(chunk)
    except FileNotFoundError:
        return MISSING
    return found.hexdigest()


def _place(storage: Storage, storage_name: str, data: bytes, sha256: str) -> None:
    """Makes the storage hold the bytes under this name, whoever else is at it. Raises `ContentChanged`."""
    found = _found(storage_name)
    for _ in range(PLACING_ATTEMPTS):
        if not _move_into_place(storage, storage_name, data):
            if found != MISSING:
                storage.delete(storage_name)  # torn
            saved = storage.save(storage_name, ContentFile(data))
            if saved != storage_name:  # somebody else was quicker
                storage.delete(saved)
        found = _found(storage_name)
        if found == sha256:
            return
    raise ContentChanged(name=storage_name, expected=sha256, found=found)


def _move_into_place(storage: Storage, storage_name: str, data: bytes) -> bool:
    """Writes beside and renames, so that nobody ever sees a part; False where the storage keeps no such files."""
    try:
        path = storage.path(storage_name)
    except NotImplementedError:
        return False
    beside = storage.save(f"files/new/{uuid4().hex}", ContentFile(data))
    try:
        if not os.path.isfile(storage.path(beside)):  # it has paths, but no files there
            storage.delete(beside)
            return False
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.replace(storage.path(beside), path)
    except BaseException:
        with contextlib.suppress(OSError):
            storage.delete(beside)
        raise
    return True
