"""Whole or not at all, nothing overwritten, on a disk and without paths."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.core.files.storage import default_storage

from durable_app.workflows import objects

pytestmark = pytest.mark.usefixtures("store")


def names(directory: str) -> list[str]:
    return sorted(default_storage.listdir(directory)[1])


def test_an_object_is_added_once() -> None:
    objects.add("drafts/a.jsonl", b"one")
    objects.add("drafts/a.jsonl", b"one")
    assert objects.read("drafts/a.jsonl") == b"one"
    assert names("drafts") == ["a.jsonl"]


def test_nothing_is_overwritten() -> None:
    objects.add("drafts/a.jsonl", b"one")
    with pytest.raises(FileExistsError):
        objects.add("drafts/a.jsonl", b"two")
    assert objects.read("drafts/a.jsonl") == b"one"
    assert names("drafts") == ["a.jsonl"]


def test_somebody_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    objects.add("drafts/a.jsonl", b"one")
    answers = iter([None])
    with monkeypatch.context() as patch:
        real = objects.checksum
        patch.setattr(objects, "checksum", lambda name: next(answers, real(name)))
        objects.add("drafts/a.jsonl", b"one")
    assert names("drafts") == ["a.jsonl"]


def test_replace_and_remove() -> None:
    objects.replace("public/a.jsonl", b"one")
    objects.replace("public/a.jsonl", b"two")
    assert objects.read("public/a.jsonl") == b"two"
    assert names("public") == ["a.jsonl"]
    objects.remove("public/a.jsonl")
    objects.remove("public/a.jsonl")
    assert objects.read("public/a.jsonl") is None
    assert objects.checksum("public/a.jsonl") is None


@pytest.mark.parametrize("store", ["disk"], indirect=True)
@pytest.mark.parametrize("act", [objects.add, objects.replace])
def test_a_write_that_fails_leaves_nothing(store: str, act: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        act("drafts/a.jsonl", b"x" * 100_000)  # type: ignore[operator]
    left = [path for path in Path(default_storage.path("")).rglob("*") if path.is_file()]
    assert left == []
