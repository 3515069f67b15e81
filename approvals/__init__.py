"""The author's whole surface (CONTRACT section 2), importable before models are loaded."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from approvals.errors import Failed, NotSent, Refused, Unknown
    from approvals.types import (
        CHANGED,
        MATCH,
        MISSING,
        UNKNOWN,
        Check,
        Decision,
        DecisionRecord,
        Diff,
        Evidence,
        Expired,
        Failure,
        Fired,
        Json,
        Link,
        Message,
        Object,
        Receipt,
        Retry,
        StillOpen,
        Text,
        Verification,
    )
    from approvals.workflows.context import Context
    from approvals.workflows.effects import Effect
    from approvals.workflows.files import StoredFile
    from approvals.workflows.handles import Handle, WebhookHandle
    from approvals.workflows.registry import Workflow, step, workflow

_ROOMS = {
    "approvals.errors": ("Failed", "NotSent", "Refused", "Unknown"),
    "approvals.types": (
        "CHANGED", "MATCH", "MISSING", "UNKNOWN", "Check", "Decision", "DecisionRecord", "Diff", "Evidence",
        "Expired", "Failure", "Fired", "Json", "Link", "Message", "Object", "Receipt", "Retry", "StillOpen",
        "Text", "Verification",
    ),
    "approvals.workflows.context": ("Context",),
    "approvals.workflows.effects": ("Effect",),
    "approvals.workflows.files": ("StoredFile",),
    "approvals.workflows.handles": ("Handle", "WebhookHandle"),
    "approvals.workflows.registry": ("Workflow", "step", "workflow"),
}  # fmt: skip
_WHERE = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "CHANGED", "MATCH", "MISSING", "UNKNOWN", "Check", "Context", "Decision", "DecisionRecord", "Diff", "Effect",
    "Evidence", "Expired", "Failed", "Failure", "Fired", "Handle", "Json", "Link", "Message", "NotSent", "Object",
    "Receipt", "Refused", "Retry", "StillOpen", "StoredFile", "Text", "Unknown", "Verification", "WebhookHandle",
    "Workflow", "step", "workflow",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'approvals' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
