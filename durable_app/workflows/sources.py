"""Where an inventory comes from: the Python distributions installed here, or the files of a folder.

A folder is somebody's input. Only regular files below it are read, links are never followed, sizes are bounded,
and what is not read is reported.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from approvals import StoredFile
from durable_app.workflows.inventory import Dropped, Record, licence_expression, record, to_lines

FILES_MAX = 500
FILE_BYTES_MAX = 10_000_000
FOLDER_BYTES_MAX = 100_000_000
ENTRIES_MAX = 50_000
ROWS_MAX = 20_000
PATH_MAX = 500
CHUNK = 25


class Source(BaseModel):
    """What one step reads: some of the distributions of one directory, or one file of a folder."""

    label: str
    directory: str
    distributions: list[str] = []
    file: str = ""


class Sources(BaseModel):
    """Everything to read, and what was found but will not be read."""

    sources: list[Source]
    dropped: list[Dropped] = []


def find_sources(folder: str | None) -> Sources:
    """The sources of an inventory: of `folder`, or else of this machine's Python."""
    return find_installed() if folder is None else find_files(folder)


def gather(source: Source) -> StoredFile:
    """Reads one source into JSON lines of records, with what had to be left out and why."""
    items = read_file(source) if source.file else read_distributions(source)
    return StoredFile.put(to_lines(items), "gathered.jsonl")


# --- installed distributions --------------------------------------------------------------------------


def find_installed(path: list[str] | None = None) -> Sources:
    """The distributions on Python's path, some at a time."""
    sources = []
    for directory in dict.fromkeys(os.path.abspath(entry) for entry in (sys.path if path is None else path)):
        names = sorted({name for found in distributions(path=[directory]) if (name := _name(found))})
        for start in range(0, len(names), CHUNK):
            some = names[start : start + CHUNK]
            label = f"{Path(directory).name} {start + 1}-{start + len(some)}"
            sources.append(Source(label=label, directory=directory, distributions=some))
    return Sources(sources=sources)


def read_distributions(source: Source) -> Iterator[Record | Dropped]:
    """The named distributions of one directory, from their metadata and licence files."""
    found = {_name(each): each for each in distributions(path=[source.directory])}
    for name in source.distributions:
        origin = f"{source.directory}: {name}"
        if name not in found:
            yield Dropped(origin=origin, reason="gone since it was listed")
            continue
        try:
            yield _installed(found[name], name, origin)
        except (OSError, ValueError, csv.Error) as problem:  # half an installation is no reason to stop
            yield Dropped(origin=origin, reason=f"metadata cannot be read: {type(problem).__name__}")


def _name(distribution: Distribution) -> str:
    try:
        return re.sub(r"[-_.]+", "-", distribution.metadata.get("Name") or "").lower()
    except (OSError, UnicodeError):
        return ""


def _installed(distribution: Distribution, name: str, origin: str) -> Record | Dropped:
    metadata = distribution.metadata
    if expression := metadata.get("License-Expression"):
        licence = " ".join(expression.split())
    elif classes := [each for each in metadata.get_all("Classifier", []) if each.startswith("License :: ")]:
        licence = " AND ".join(sorted({licence_expression(each.split(" :: ")[-1]) for each in classes}))
    else:
        licence = licence_expression(metadata.get("License") or "")
    version = metadata.get("Version") or ""
    files = sorted(file for file in distribution.files or () if _is_licence(file.parts))
    texts = [_bytes(Path(str(file.locate()))) for file in files]
    digest = sha256(b"\n".join(texts)).hexdigest() if texts else ""
    return record(origin, name=name, version=version, licence=licence, text_digest=digest)


def _is_licence(parts: tuple[str, ...]) -> bool:
    if not parts[0].endswith(".dist-info") or ".." in parts:
        return False
    return "licenses" in parts[1:-1] or parts[-1].upper().startswith(("LICEN", "COPYING", "NOTICE"))


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > FILE_BYTES_MAX:
        raise ValueError(f"{path} is larger than {FILE_BYTES_MAX:,} bytes")
    return path.read_bytes()


# --- files of a folder --------------------------------------------------------------------------------


def find_files(folder: str) -> Sources:
    """The CSV, JSON and TXT files below `folder`, within the limits. Raises NotADirectoryError."""
    root = Path(folder).resolve()
    if not root.is_dir():
        raise NotADirectoryError(folder)
    found, total = Sources(sources=[]), 0
    for seen, path in enumerate(_walk(root, found)):
        if seen >= ENTRIES_MAX:
            _leave_out(found, str(root), f"beyond {ENTRIES_MAX:,} entries nothing was looked at")
            break
        if not path.lower().endswith(tuple(_READERS)):
            continue
        try:
            about = os.lstat(root / path)
        except OSError as problem:
            _leave_out(found, path, f"cannot be read: {problem.strerror}")
            continue
        if reason := _unreadable(path, about, total, len(found.sources)):
            _leave_out(found, path, reason)
            continue
        total += about.st_size
        found.sources.append(Source(label=path, directory=str(root), file=path))
    return found


def _walk(root: Path, found: Sources) -> Iterator[str]:
    """The files below a directory, in a stable order, without hidden ones. Links are not followed."""

    def closed(problem: OSError) -> None:
        _leave_out(found, os.path.relpath(problem.filename, root), f"cannot be read: {problem.strerror}")

    for parent, directories, files in os.walk(root, onerror=closed):
        below = Path(os.path.relpath(parent, root))
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in directories:
            if os.path.islink(os.path.join(parent, name)):
                _leave_out(found, str(below / name), "a link, not followed")
        yield from (str(below / name) for name in sorted(files) if not name.startswith("."))


def _leave_out(found: Sources, path: str, reason: str) -> None:
    if len(found.dropped) < FILES_MAX:
        shown = path if path.isprintable() else ascii(path)
        found.dropped.append(Dropped(origin=shown[:PATH_MAX], reason=reason))


def _unreadable(path: str, about: os.stat_result, total: int, files: int) -> str:
    """Why a file will not be read; nothing if it will be."""
    if not stat.S_ISREG(about.st_mode):
        return "not a regular file"
    if not path.isprintable() or len(path) > PATH_MAX:
        return "its path is too long or not printable"
    if about.st_size > FILE_BYTES_MAX:
        return f"larger than {FILE_BYTES_MAX:,} bytes"
    if total + about.st_size > FOLDER_BYTES_MAX:
        return f"beyond {FOLDER_BYTES_MAX:,} bytes in this folder"
    if files >= FILES_MAX:
        return f"beyond {FILES_MAX} files in this folder"
    return ""


def read_file(source: Source) -> Iterator[Record | Dropped]:
    """The records of one file of a folder."""
    try:
        text = _bytes_below(source.directory, source.file).decode("utf-8-sig")
        rows = _READERS[Path(source.file).suffix.lower()](text, source.file)
        for number, row in enumerate(rows, start=1):
            if number > ROWS_MAX:
                yield Dropped(origin=source.file, reason=f"beyond {ROWS_MAX:,} records nothing was read")
                return
            origin = f"{source.file}:{number}"
            if isinstance(row, Mapping):
                yield _from_row(row, origin)
            else:
                yield Dropped(origin=origin, reason="not an object")
    except UnicodeDecodeError:
        yield Dropped(origin=source.file, reason="not UTF-8")
    except (ValueError, RecursionError, csv.Error):
        yield Dropped(origin=source.file, reason="not well-formed; nothing after the mistake was read")
    except OSError as problem:
        yield Dropped(origin=source.file, reason=f"cannot be read: {problem.strerror}")


def _bytes_below(directory: str, file: str) -> bytes:
    """One regular file below a directory. A link anywhere on the way, a pipe, or too many bytes: OSError."""
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        *parents, name = Path(file).parts
        for parent in parents:
            below = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)
    with open(opened, "rb") as stream:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(0, "not a regular file")
        data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(0, "it has grown beyond the limit")
    return data


def _csv_rows(text: str, file: str) -> Iterator[object]:
    return iter(csv.DictReader(io.StringIO(text, newline="")))


def _json_rows(text: str, file: str) -> Iterator[object]:
    """The items of a list, also of one that is an object's only value; else the one document."""
    document = json.loads(text)
    inner = next(iter(document.values())) if isinstance(document, dict) and len(document) == 1 else document
    return iter(inner if isinstance(inner, list) else [document])


def _text_rows(text: str, file: str) -> Iterator[object]:
    stated = re.search(r"SPDX-License-Identifier:\s*([^\r\n]{1,80})", text)
    name = Path(file).with_suffix("").as_posix()
    yield {"name": name, "licence": stated[1] if stated else "", "text": text}


_READERS: dict[str, Callable[[str, str], Iterator[object]]] = {
    ".csv": _csv_rows,
    ".json": _json_rows,
    ".txt": _text_rows,
}


def _from_row(row: Mapping[Any, Any], origin: str) -> Record | Dropped:
    values = {str(key).strip().lower(): value for key, value in row.items()}

    def value(*names: str) -> str:
        found = next((values[name] for name in names if values.get(name) is not None), "")
        return str(found) if isinstance(found, str | int | float) else ""

    text = value("text", "licence_text", "license_text").encode("utf-8", "surrogatepass")
    return record(
        origin,
        name=value("name", "package", "title"),
        version=value("version", "revision"),
        licence=licence_expression(value("licence", "license", "license_expression", "spdx")),
        text_digest=sha256(text).hexdigest() if text else "",
    )
