"""What a reviewer is shown."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from approvals import Check, Diff, Object, Receipt, StoredFile
from durable_app.workflows import objects
from durable_app.workflows.inventory import Inventory, Record, normalise, to_lines
from durable_app.workflows.publishing import public_name
from durable_app.workflows.research import Changes, ResearchRequest, compare, evidence, summary

pytestmark = pytest.mark.usefixtures("store")


def dataset(*packages: str) -> StoredFile:
    """A dataset of packages given as "name version licence"."""
    records = [
        Record(name=name, version=version, licence=licence, text_digest="", origin="here")
        for name, version, licence in (package.split() for package in packages)
    ]
    return StoredFile.put(to_lines(records), "set.jsonl")


def publish(*packages: str) -> str:
    file = dataset(*packages)
    objects.replace(public_name("set"), file.read())
    return file.sha256


def shown(inventory: Inventory, changes: Changes, checksum: str) -> dict[str, bool | None]:
    receipt: Receipt[object] = Receipt("drafts/x", checksum=checksum)
    items = evidence(inventory, changes, receipt)  # type: ignore[arg-type]
    return {item.label: item.passed for item in items if isinstance(item, Check)}


def test_first_publication_compares_with_nothing() -> None:
    assert compare("set", dataset("a 1 MIT", "b 1 MIT")) == Changes(added=2)


def test_added_removed_and_changed() -> None:
    before = publish("gone 1 MIT", "same 1 MIT", "newer 1 MIT", "twice 1 MIT", "twice 2 MIT")
    changes = compare(
        "set", dataset("added 1 MIT", "same 1 MIT", "newer 2 MIT", "twice 1 MIT", "twice 2 ISC")
    )
    assert changes.replaces == before
    assert (changes.records_before, changes.added, changes.removed, changes.changed) == (5, 1, 1, 2)
    assert changes.before == {"gone": "1 MIT", "newer": "1 MIT", "twice": "1 MIT, 2 MIT"}
    assert changes.after == {"added": "1 MIT", "newer": "2 MIT", "twice": "1 MIT, 2 ISC"}


def test_what_is_public_is_no_dataset() -> None:
    objects.replace(public_name("set"), b"<html>")
    changes = compare("set", dataset("a 1 MIT"))
    assert (changes.added, changes.removed) == (1, 0)
    assert changes.replaces == objects.checksum(public_name("set"))


def test_a_large_difference_stays_small_on_the_page() -> None:
    publish(*(f"old{number:04} 1 MIT" for number in range(2_000)))
    changes = compare("set", dataset(*(f"new{number:04} 1 MIT" for number in range(2_000))))
    assert (changes.added, changes.removed) == (2_000, 2_000)
    assert len(changes.before) + len(changes.after) == 50


def test_evidence_says_what_is_wrong() -> None:
    records = dataset("a 1 NOASSERTION", "a 1 MIT", *(f"p{number} 1 MIT" for number in range(9)))
    inventory = normalise([records], [])
    publish(*(f"p{number} 1 MIT" for number in range(6)))
    changes = compare("set", inventory.dataset)
    assert shown(inventory, changes, "another") == {
        "every record states a licence": False,
        "nothing was left out": False,
        "the draft is what was gathered": False,
        "the number of records changed by less than 20%": False,
    }
    items = evidence(inventory, changes, Receipt("x", checksum="another"))
    assert isinstance(items[4], Diff)
    assert [item.title for item in items if isinstance(item, Object)] == [
        "the dataset",
        "what was left out, and why",
    ]
    assert summary(inventory, changes) == (
        "10 records, 1 left out. Since the last publication: 4 added, 0 removed, 0 changed."
    )


def test_evidence_says_what_is_right() -> None:
    inventory = normalise([dataset("a 1 MIT")], [])
    first = compare("set", inventory.dataset)
    passed = shown(inventory, first, inventory.dataset.sha256)
    assert passed.pop("the number of records changed by less than 20%") is None
    assert all(passed.values())
    assert summary(inventory, first) == "1 records, 0 left out. The first publication under this title."


@pytest.mark.parametrize(
    ("title", "slug"),
    [("Installed packages", "installed-packages"), ("Überblick", "uberblick"), ("目録", "dataset-2348a9ba")],
)
def test_every_title_has_an_address(title: str, slug: str) -> None:
    assert ResearchRequest(title=title).slug == slug


@pytest.mark.parametrize(
    "odd",
    [
        {"title": " "},
        {"title": "two\nlines"},
        {"subscribers": ["nobody"]},
        {"subscribers": ["a@b\nBcc: c@d"]},
    ],
)
def test_requests_that_cannot_be_met(odd: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ResearchRequest.model_validate(odd)


def test_a_request_with_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValidationError, match="titel"):
        ResearchRequest.model_validate({"titel": "Set"})
