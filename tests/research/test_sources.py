"""Reading a machine's packages and a stranger's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from durable_app.workflows import sources
from durable_app.workflows.inventory import Dropped, Record, from_lines
from durable_app.workflows.sources import Source, find_files, find_installed, find_sources, gather, read_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


def read(folder: Path) -> tuple[list[Record], dict[str, str]]:
    """Everything that a folder gives: its records, and why each other thing is none."""
    found = find_files(str(folder))
    items = [*found.dropped, *(item for source in found.sources for item in read_file(source))]
    records = [item for item in items if isinstance(item, Record)]
    return records, {item.origin: item.reason for item in items if isinstance(item, Dropped)}


# --- a folder -----------------------------------------------------------------------------------------


def test_csv_json_and_text(folder: Path) -> None:
    (folder / "a.csv").write_text("Package,Version,License\nhttpx,0.28,BSD-3-Clause\n,1,MIT\n", "utf-8-sig")
    (folder / "b.json").write_text(json.dumps({"items": [{"name": "attrs", "version": 25.1}, "odd"]}))
    (folder / "c.json").write_text(json.dumps({"name": "alone"}))
    below = folder / "contracts"
    below.mkdir()
    (below / "lease.TXT").write_text("SPDX-License-Identifier: CC-BY-4.0\nThe lessee …")
    records, dropped = read(folder)
    assert [(r.name, r.version, r.licence, r.origin) for r in records] == [
        ("httpx", "0.28", "BSD-3-Clause", "a.csv:1"),
        ("attrs", "25.1", "NOASSERTION", "b.json:1"),
        ("alone", "", "NOASSERTION", "c.json:1"),
        ("contracts/lease", "", "CC-BY-4.0", "contracts/lease.TXT:1"),
    ]
    assert records[-1].text_digest == sha256((below / "lease.TXT").read_bytes()).hexdigest()
    assert dropped == {"a.csv:2": "no name", "b.json:2": "not an object"}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("latin.csv", "name\ncafé\n".encode("latin-1"), "not UTF-8"),
        ("utf16.txt", "text".encode("utf-16"), "not UTF-8"),
        ("broken.json", b"{", "not well-formed"),
        ("deep.json", b"[" * 200_000, "not well-formed"),
        ("long.json", b"[" + b"9" * 5_000 + b"]", "not well-formed"),
        ("wide.csv", b"name\n" + b"x" * 200_000, "not well-formed"),
    ],
)
def test_odd_files_are_left_out_with_a_reason(folder: Path, name: str, content: bytes, reason: str) -> None:
    (folder / name).write_bytes(content)
    (folder / "good.csv").write_text("name\nkept\n")
    records, dropped = read(folder)
    assert [r.name for r in records] == ["kept"]
    assert dropped[name].startswith(reason)


def test_invisible_characters_are_left_out(folder: Path) -> None:
    (folder / "a.json").write_text('[{"name": "a\\u202eb"}, {"name": "a\\ud800"}, {"name": "fine"}]')
    records, dropped = read(folder)
    assert [r.name for r in records] == ["fine"]
    assert len(dropped) == 2


def test_only_regular_files_below_the_folder(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (folder / "link.txt").symlink_to(secret)
    (folder / "up").symlink_to(tmp_path, target_is_directory=True)
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "directory.txt").mkdir()
    os.mkfifo(folder / "pipe.txt")
    records, dropped = read(folder)
    assert records == []
    assert dropped == {
        "link.txt": "not a regular file",
        "pipe.txt": "not a regular file",
        "up": "a link, not followed",
    }


@pytest.mark.parametrize("swapped", ["file", "parent"])
def test_a_link_put_there_after_the_listing_is_not_followed(
    folder: Path, tmp_path: Path, swapped: str
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "below").mkdir()
    (folder / "below" / "secret.txt").write_text("harmless")
    (source,) = find_files(str(folder)).sources
    (folder / "below" / "secret.txt").unlink()
    if swapped == "file":
        (folder / "below" / "secret.txt").symlink_to(tmp_path / "secret.txt")
    else:
        (folder / "below").rmdir()
        (folder / "below").symlink_to(tmp_path, target_is_directory=True)
    (item,) = read_file(source)
    assert isinstance(item, Dropped)
    assert item.reason.startswith("cannot be read")


def test_a_pipe_put_there_after_the_listing_does_not_hang(folder: Path) -> None:
    os.mkfifo(folder / "a.txt")
    (item,) = read_file(Source(label="a.txt", directory=str(folder), file="a.txt"))
    assert item == Dropped(origin="a.txt", reason="cannot be read: not a regular file")


def test_a_file_that_is_gone(folder: Path) -> None:
    (item,) = read_file(Source(label="a.txt", directory=str(folder), file="a.txt"))
    assert item == Dropped(origin="a.txt", reason="cannot be read: No such file or directory")


def test_limits_are_kept_and_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "FILES_MAX": 3,
        "FILE_BYTES_MAX": 100,
        "FOLDER_BYTES_MAX": 150,
        "ROWS_MAX": 2,
    }.items():
        monkeypatch.setattr(sources, name, value)
    (folder / "a.txt").write_text("x" * 101)
    (folder / "b.csv").write_text("name\n1\n2\n3\n")
    (folder / "c.txt").write_text("x" * 90)
    (folder / "d.txt").write_text("x" * 90)
    (folder / "e.txt").write_text("x")
    (folder / "f.txt").write_text("x")
    records, dropped = read(folder)
    assert [r.origin for r in records] == ["b.csv:1", "b.csv:2", "c.txt:1", "e.txt:1"]
    assert dropped == {
        "a.txt": "larger than 100 bytes",
        "b.csv": "beyond 2 records nothing was read",
        "d.txt": "beyond 150 bytes in this folder",
        "f.txt": "beyond 3 files in this folder",
    }


def test_a_file_that_grew_after_the_listing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FILE_BYTES_MAX", 10)
    (folder / "a.txt").write_text("x" * 11)
    (item,) = read_file(Source(label="a.txt", directory=str(folder), file="a.txt"))
    assert item == Dropped(origin="a.txt", reason="cannot be read: it has grown beyond the limit")


def test_a_huge_tree_is_not_walked_to_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ENTRIES_MAX", 5)
    for number in range(9):
        (folder / f"{number}.png").touch()
    found = find_files(str(folder))
    assert [item.reason for item in found.dropped] == ["beyond 5 entries nothing was looked at"]


def test_paths_that_no_page_could_show(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("x")
    (folder / "a\u202e.txt").write_text("x")
    records, dropped = read(folder)
    assert records == []
    assert len(dropped) == 2
    assert all(origin.isascii() for origin in dropped)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        find_sources(str(tmp_path / "absent"))


# --- this machine -------------------------------------------------------------------------------------


def install(site: Path, name: str, metadata: str, **licences: bytes) -> None:
    info = site / f"{name}-1.dist-info"
    (info / "licenses").mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1\n{metadata}")
    for file, text in licences.items():
        (info / "licenses" / file).write_bytes(text)
    listed = [f"{info.name}/METADATA,,", *(f"{info.name}/licenses/{file},," for file in licences)]
    (info / "RECORD").write_text("\n".join([*listed, f"{info.name}/licenses/../../../secret,,"]))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "site"
    made.mkdir()
    return made  # type: ignore[return-value]


def installed(site: Path) -> list[Record | Dropped]:
    found = find_installed([str(site), str(site), str(site / "absent")])
    return [item for source in found.sources for item in sources.read_distributions(source)]


def test_metadata_and_licence_files(site: Path) -> None:
    (site.parent / "secret").write_bytes(b"secret")
    install(site, "Stated.Well", "License-Expression: MIT OR Apache-2.0\n", A=b"one", B=b"two")
    install(site, "classified", "Classifier: License :: OSI Approved :: ISC License (ISCL)\n")
    install(site, "old", "License: BSD\n")
    install(site, "silent", "")
    items = [item for item in installed(site) if isinstance(item, Record)]
    assert [(r.name, r.version, r.licence) for r in items] == [
        ("classified", "1", "ISC"),
        ("old", "1", "LicenseRef-BSD"),
        ("silent", "1", "NOASSERTION"),
        ("stated-well", "1", "MIT OR Apache-2.0"),
    ]
    assert items[-1].text_digest == sha256(b"one\ntwo").hexdigest()
    assert items[0].text_digest == ""


def test_many_are_read_in_steps(site: Path) -> None:
    for number in range(60):
        install(site, f"p{number:02}", "")
    found = find_installed([str(site)])
    assert [source.label for source in found.sources] == ["site 1-25", "site 26-50", "site 51-60"]


def test_half_an_installation_stops_nothing(site: Path) -> None:
    install(site, "whole", "License-Expression: MIT\n")
    install(site, "nameless", "")
    (site / "nameless-1.dist-info" / "METADATA").write_text("Version: 1\n")
    (site / "empty-1.dist-info").mkdir()
    install(site, "huge", "", A=b"x" * (sources.FILE_BYTES_MAX + 1))
    items = installed(site)
    assert [item.name for item in items if isinstance(item, Record)] == ["whole"]
    assert [item.reason for item in items if isinstance(item, Dropped)] == [
        "metadata cannot be read: ValueError"
    ]


def test_gone_since_it_was_listed(site: Path) -> None:
    source = Source(label="x", directory=str(site), distributions=["gone"])
    assert list(sources.read_distributions(source)) == [
        Dropped(origin=f"{site}: gone", reason="gone since it was listed")
    ]


def test_this_machine(store: str) -> None:
    found = find_sources(None)
    items = [item for source in found.sources for item in from_lines(gather(source).read())]
    by_name = {item.name: item for item in items if isinstance(item, Record)}
    assert by_name["django"].licence == "BSD-3-Clause"
    assert by_name["django"].text_digest
