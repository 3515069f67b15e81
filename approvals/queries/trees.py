"""Stored values as pages may have them: plain JSON, with a sign in the place of every secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from approvals.sealing import MASKED


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


def written(tree: Any, *, indent: int | None = 2) -> str:
    """The tree as JSON, secrets as dots; without `indent` on one line."""
    return json.dumps(tree, indent=indent, ensure_ascii=False, default=lambda hidden: hidden.value)
