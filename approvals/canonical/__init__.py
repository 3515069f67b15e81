"""Canonical bytes and digests: what an approval binds and what replay compares.

The bytes are RFC 8785 (JSON Canonicalization Scheme) over a plain form of the value. What JSON cannot
hold exactly is written as an object with one `$` key, and a plain object's own keys that begin with `$`
get a second one, so that no plain object can pass for a tagged value:

| value | plain form |
|---|---|
| pydantic model, dataclass, dict | object; non-string keys as pydantic writes them in JSON |
| list, tuple, deque | array |
| set, frozenset | array, sorted by the canonical bytes of its items |
| integer beyond ±(2^53 - 1) | `{"$int": "9007199254740993"}` |
| Decimal | `{"$decimal": "1.50"}` |
| bytes | `{"$bytes": "<base64>"}` |
| aware datetime | `{"$instant": "2026-01-31T12:00:00.000000Z"}`, always in UTC |
| date, time | `{"$date": "2026-01-31"}`, `{"$time": "12:00:00"}` |
| timedelta | `{"$microseconds": "90000000"}` |
| UUID | `{"$uuid": "..."}` |
| Enum | its value |
| SecretStr, SecretBytes, Secret | `{"$secret_sha256": "..."}`, never the secret itself |
| what else pydantic writes as text (URL, path, IP address) | `{"$text": "..."}` |

Refused with `NotSerializable`: a naive datetime, NaN and infinities, lone surrogates, two keys of one
object that are written alike, nesting deeper than 200, and everything not in the table.
"""

from __future__ import annotations

import hashlib
from typing import Any

from approvals.canonical.leaves import Refused
from approvals.canonical.plain import MAX_DEPTH, Plain
from approvals.errors import NotSerializable

__all__ = ["MAX_DEPTH", "action_digest", "canonical_bytes", "digest"]


def canonical_bytes(value: Any, *, what: str = "value") -> bytes:
    """The one sequence of bytes that stands for this value, whatever its key order, zone or container.

    Raises `NotSerializable` (what, path, type, reason) for what has no canonical form.
    """
    writer = Plain()
    try:
        return writer.encode(writer.plain(value, 0))
    except Refused as refused:
        path = "$" + refused.path()
        raise NotSerializable(what=what, path=path, type=refused.kind, reason=refused.reason) from None


def digest(value: Any, *, what: str = "value") -> str:
    """SHA-256, in hexadecimal, of the canonical bytes. Raises as `canonical_bytes` does."""
    return hashlib.sha256(canonical_bytes(value, what=what)).hexdigest()


def action_digest(kind: str, target: str, request: Any) -> str:
    """What an approval binds: the digest of an effect's kind, target and request together.

    Raises `NotSerializable`, whose path begins at `kind`, `target` or `request`.
    """
    return digest({"kind": kind, "target": target, "request": request}, what=f"action {kind}")
