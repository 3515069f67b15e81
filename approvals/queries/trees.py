"""Stored values as pages may have them: plain JSON, with a sign in the place of every secret."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final

from approvals.sealing import MASKED
from approvals.types import FileRef


class Hidden(Enum):
    """What is there, and is not shown."""

    SECRET = MASKED


SECRET: Final = Hidden.SECRET


def read(text: str) -> Any:
    """Stored JSON; unlike dots, which anybody may have typed, `SECRET` says for certain what is one."""
    return json.loads(text, object_hook=_hide) if text else None


def _hide(value: dict[str, Any]) -> Any:
    return SECRET if len(value) == 1 and "$secret" in value else value


def is_file(value: Any) -> bool:
    """Whether this is a stored file, as the contract writes them."""
    return (
        isinstance(value, Mapping)
        and value.keys() == {"name", "storage_name", "sha256", "size"}
        and all(isinstance(value[part], str) for part in ("name", "storage_name", "sha256"))
        and isinstance(value["size"], int)
    )


def files(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Every stored file in a value, in its order."""
    if is_file(tree):
        yield tree
    elif isinstance(tree, Mapping | list):
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            yield from files(part)


def file_id(file: Mapping[str, Any]) -> str:
    """What stands for this file in an address; empty for what no storage can hold, whatever it looks like."""
    with suppress(ValueError):
        named = FileRef.model_validate(dict(file))
        told = json.dumps([named.name, named.storage_name, named.sha256])
        return hashlib.sha256(told.encode()).hexdigest()[:32]
    return ""


def written(tree: Any, *, indent: int | None = 2) -> str:
    """The tree as JSON, secrets as dots; without `indent` on one line."""
    return json.dumps(tree, indent=indent, ensure_ascii=False, default=lambda hidden: hidden.value)
