"""Stored files: named by content, put once however often, checked when read."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from pydantic import BaseModel, ValidationError

from approvals.canonical import digest
from approvals.errors import ContentChanged
from approvals.types import Object, evidence_from_json, evidence_to_json
from approvals.workflows.files import StoredFile, safe_name
from approvals.workflows.values import codec_for

STORAGES = {
    "paths": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "no paths": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
}


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Any:
    settings.MEDIA_ROOT = str(tmp_path)
    settings.STORAGES = {**settings.STORAGES, "default": STORAGES[request.param]}
    return default_storage


def contents(storage: Any, folder: str = "files") -> list[str]:
    folders, names = storage.listdir(folder)
    inner = [name for child in folders for name in contents(storage, f"{folder}/{child}")]
    return [*(f"{folder}/{name}" for name in names), *inner]


def test_put_and_read(storage: Any) -> None:
    file = StoredFile.put(b"data", "Report 1.pdf")
    sha256 = hashlib.sha256(b"data").hexdigest()
    assert file.model_dump() == {
        "name": "Report 1.pdf",
        "storage_name": f"files/{sha256[:2]}/{sha256}/Report_1.pdf",
        "sha256": sha256,
        "size": 4,
    }
    assert file.read() == b"data"
    assert StoredFile.put(b"", "empty").read() == b""


def test_the_same_put_is_one_object(storage: Any) -> None:
    files = [StoredFile.put(b"data", "a.txt") for _ in range(3)]
    assert files[0] == files[1] == files[2]
    assert contents(storage) == [files[0].storage_name]


def test_a_torn_object_is_mended(storage: Any) -> None:
    file = StoredFile.put(b"data", "a.txt")
    storage.delete(file.storage_name)
    storage.save(file.storage_name, ContentFile(b"da"))
    assert StoredFile.put(b"data", "a.txt") == file
    assert file.read() == b"data"
    assert contents(storage) == [file.storage_name]


def test_many_workers_at_once(storage: Any) -> None:
    data = b"x" * 300_000
    found: list[StoredFile] = []
    barrier = threading.Barrier(8)

    def put() -> None:
        barrier.wait()
        found.append(StoredFile.put(data, "a.bin"))

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({file.storage_name for file in found}) == 1
    assert found[0].read() == data
    assert contents(storage) == [found[0].storage_name]


def test_changed_content_is_told(storage: Any) -> None:
    file = StoredFile.put(b"data", "a.txt")
    storage.delete(file.storage_name)
    with pytest.raises(ContentChanged) as gone:
        file.read()
    storage.save(file.storage_name, ContentFile(b"other"))
    with pytest.raises(ContentChanged) as changed:
        file.read()
    assert gone.value.values == {"name": "a.txt", "expected": file.sha256, "found": "missing"}
    assert changed.value.values["found"] == hashlib.sha256(b"other").hexdigest()


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("a.txt", "a.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\x.doc", "x.doc"),
        ("/", "file"),
        ("", "file"),
        ("..", "file"),
        ("a\0b\n.txt", "ab.txt"),
        ("\u202egnp.exe", "gnp.exe"),
        ("a\ud800", "a"),
        (".hidden", "hidden"),
        ("é" * 300 + ".tar.gz", "é" * 58 + ".gz"),
        ("x." + "y" * 300, "x." + "y" * 118),
    ],
)
def test_names_are_made_safe(given: str, safe: str) -> None:
    assert safe_name(given) == safe


@pytest.mark.parametrize("name", ["../../../etc/passwd", "\0", "é" * 500, "a/../b", "%2e%2e", "файл", " "])
def test_any_name_can_be_stored(storage: Any, name: str) -> None:
    file = StoredFile.put(b"data", name)
    assert file.read() == b"data"
    assert contents(storage) == [file.storage_name]


@pytest.mark.parametrize(
    "values",
    [{"storage_name": "../x"}, {"storage_name": "/x"}, {"storage_name": ""}, {"sha256": "x"}, {"size": -1}],
)
def test_a_forged_file_is_refused(values: dict[str, Any]) -> None:
    good = {"name": "a", "storage_name": "files/a", "sha256": "0" * 64, "size": 1}
    StoredFile.model_validate(good)
    with pytest.raises(ValidationError):
        StoredFile.model_validate({**good, **values})


class Upload(BaseModel):
    name: str
    file: StoredFile


def test_files_are_values(storage: Any) -> None:
    upload = Upload(name="set", file=StoredFile.put(b"data", "a.txt"))
    again = codec_for(Upload).roundtrip(upload, what="request")[1]
    assert again == upload
    assert type(again.file) is StoredFile
    assert digest(upload) != digest(Upload(name="set", file=StoredFile.put(b"atad", "a.txt")))
    (shown,) = evidence_from_json(evidence_to_json([Object("the file", upload.file)]))
    assert isinstance(shown, Object)
    assert shown.file.model_dump() == upload.file.model_dump()
