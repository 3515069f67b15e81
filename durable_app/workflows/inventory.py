"""The inventory: what was gathered, made comparable, merged and counted. Pure, but for StoredFile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from pydantic import BaseModel, TypeAdapter

from approvals import StoredFile

RECORDS_MAX = 100_000
DROPPED_MAX = 10_000
TEXT_MAX = 300
NOT_STATED = "NOASSERTION"  # SPDX's own word for "nobody said"


class Record(BaseModel):
    """One thing in the inventory: a package, a contract, a row of a table."""

    name: str
    version: str
    licence: str
    text_digest: str
    origin: str


class Dropped(BaseModel):
    """Something that was found and is not in the inventory, and why."""

    origin: str
    reason: str


class Inventory(BaseModel):
    """What all sources hold together: the data as files, and a summary small enough for the journal."""

    dataset: StoredFile
    dropped: StoredFile
    records: int
    left_out: int
    not_stated: int
    licences: dict[str, int]
    reasons: dict[str, int]


_LINE: TypeAdapter[Record | Dropped] = TypeAdapter(Record | Dropped)

# Only names that mean one licence. "BSD" and "Apache Software License" do not: they stay their own words.
_NAMES = """
    0BSD AGPL-3.0-only AGPL-3.0-or-later Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CC-BY-4.0 CC-BY-SA-4.0
    CC0-1.0 EPL-2.0 EUPL-1.2 GPL-2.0-only GPL-2.0-or-later GPL-3.0-only GPL-3.0-or-later HPND ISC LGPL-2.1-only
    LGPL-2.1-or-later LGPL-3.0-only LGPL-3.0-or-later MIT MIT-0 MIT-CMU MPL-2.0 ODbL-1.0 OFL-1.1 PSF-2.0
    Python-2.0 Unlicense Zlib ZPL-2.1
"""
_SPDX = {name.lower(): name for name in _NAMES.split()}
_OTHER_NAMES = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "the mit license": "MIT",
    "the unlicense (unlicense)": "Unlicense",
}


def licence_expression(stated: str) -> str:
    """What was stated as an SPDX expression; words that name no licence for certain become a LicenseRef."""
    words = " ".join(stated.split())
    if not words or len(words) > 80:  # longer is a licence's text, not its name
        return NOT_STATED
    if words.lower() in _OTHER_NAMES:
        return _OTHER_NAMES[words.lower()]
    parts = re.split(r"(\(|\)|\s+(?:AND|OR|WITH)\s+)", words)
    names = [part for part in parts[::2] if part]
    if names and all(map(_is_licence, names)):
        return "".join(_SPDX.get(part.lower(), part) for part in parts)
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-")
    return f"LicenseRef-{slug}" if slug else NOT_STATED


def _is_licence(name: str) -> bool:
    return name.lower() in _SPDX or re.fullmatch(r"LicenseRef-[A-Za-z0-9.-]+", name) is not None


def record(origin: str, *, name: str, version: str, licence: str, text_digest: str) -> Record | Dropped:
    """A record, or why it cannot be one."""
    name, version = " ".join(name.split()), " ".join(version.split())
    if not name:
        return Dropped(origin=origin, reason="no name")
    if max(len(name), len(version), len(licence)) > TEXT_MAX:
        return Dropped(origin=origin, reason=f"name, version or licence longer than {TEXT_MAX} characters")
    if not (name + version + licence).isprintable():
        return Dropped(origin=origin, reason="invisible characters in its name, version or licence")
    return Record(name=name, version=version, licence=licence, text_digest=text_digest, origin=origin)


def to_lines(items: Iterable[Record | Dropped]) -> bytes:
    """JSON lines."""
    return b"".join(item.model_dump_json().encode() + b"\n" for item in items)


def from_lines(data: bytes) -> Iterator[Record | Dropped]:
    """What `to_lines` wrote."""
    return (_LINE.validate_json(line) for line in data.splitlines())


def normalise(gathered: list[StoredFile], dropped: list[Dropped]) -> Inventory:
    """Merges what was gathered: sorted, each name and version once, so that equal input gives equal bytes."""
    kept: dict[tuple[str, str], Record] = {}
    out: list[Dropped] = []
    reasons: Counter[str] = Counter()

    def drop(item: Dropped) -> None:
        reasons[item.reason] += 1
        if len(out) < DROPPED_MAX:
            out.append(item)

    for left_out in dropped:
        drop(left_out)
    for file in gathered:
        for item in from_lines(file.read()):
            if isinstance(item, Dropped):
                drop(item)
            elif (item.name, item.version) in kept:
                drop(Dropped(origin=item.origin, reason="same name and version as an earlier one"))
            elif len(kept) >= RECORDS_MAX:
                drop(Dropped(origin=item.origin, reason=f"beyond {RECORDS_MAX:,} records"))
            else:
                kept[item.name, item.version] = item

    records = [kept[name] for name in sorted(kept)]
    licences = Counter(item.licence for item in records)
    return Inventory(
        dataset=StoredFile.put(to_lines(records), "inventory.jsonl"),
        dropped=StoredFile.put(to_lines(out), "dropped.jsonl"),
        records=len(records),
        left_out=reasons.total(),
        not_stated=licences[NOT_STATED],
        licences=_most(licences),
        reasons=_most(reasons),
    )


def _most(counts: Counter[str], limit: int = 20) -> dict[str, int]:
    """The most frequent, and how much all the others are."""
    most = dict(counts.most_common(limit))
    rest = counts.total() - sum(most.values())
    return {**most, "others": rest} if rest else most
