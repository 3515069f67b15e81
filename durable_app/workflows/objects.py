"""The object store: Django's storage API, with what publishing needs of it.

Writing is all or nothing as far as a storage permits: on a disk the bytes are staged, synced and moved into
place in one rename; other storages (S3 and the like) show an object whole or not at all by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, default_storage


class _Staged(File):  # type: ignore[type-arg]
    """A whole file on the store's own disk; the file storage moves what has a `temporary_file_path`."""

    def temporary_file_path(self) -> str:
        return str(self.name)


def read(name: str) -> bytes | None:
    """An object's bytes; None if there is none of that name."""
    try:
        with default_storage.open(name, "rb") as stored:
            return bytes(stored.read())
    except FileNotFoundError:
        return None


def checksum(name: str) -> str | None:
    """An object's SHA-256, read back from the store; None if there is none of that name."""
    data = read(name)
    return None if data is None else sha256(data).hexdigest()


def add(name: str, data: bytes) -> None:
    """Adds one object; the same bytes twice are once. FileExistsError if its name holds other bytes."""
    if checksum(name) is None:
        with _staged(data) as content:
            saved = default_storage.save(name, content)
        if saved != name:  # somebody was faster
            default_storage.delete(saved)
    if checksum(name) != sha256(data).hexdigest():
        raise FileExistsError(f"{name} already holds something else")


def replace(name: str, data: bytes) -> None:
    """Puts new bytes under a name that readers may be reading."""
    if not isinstance(default_storage, FileSystemStorage):  # no rename: for a moment nothing may be there
        default_storage.delete(name)
        default_storage.save(name, ContentFile(data))
        return
    path = Path(default_storage.path(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    with _staged(data) as content:
        staged = Path(str(content.name))
        staged.chmod(default_storage.file_permissions_mode or 0o644)
        staged.replace(path)


def remove(name: str) -> None:
    """Removes an object, if it is there."""
    if default_storage.exists(name):
        default_storage.delete(name)


@contextmanager
def _staged(data: bytes) -> Iterator[File]:  # type: ignore[type-arg]
    if not isinstance(default_storage, FileSystemStorage):
        yield ContentFile(data)
        return
    root = Path(default_storage.location)
    root.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=root, prefix=".staged-", delete=False) as staged:
        try:
            staged.write(data)
            staged.flush()
            os.fsync(staged.fileno())
            yield _Staged(staged.file, staged.name)
        finally:
            Path(staged.name).unlink(missing_ok=True)
