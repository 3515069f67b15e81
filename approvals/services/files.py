"""Files that people send with a form."""

from __future__ import annotations

from typing import Any

from django.core.files.uploadedfile import UploadedFile

from approvals.errors import InvalidInput, ServiceError
from approvals.limits import limits
from approvals.services.actors import fresh
from approvals.workflows.files import StoredFile


def keep(actor: Any, upload: UploadedFile[Any]) -> dict[str, Any]:
    """Stores what was sent, and says where: the JSON form of a StoredFile.

    Raises InvalidInput (found, limit: bytes) for a file that is too large, PermissionRefused for an account
    that is disabled, ServiceError where the storage cannot be reached.
    """
    fresh(actor)
    limit, found = limits().file_bytes, upload.size or 0
    if found > limit:
        told = f"The file has {found:,} bytes, and {limit:,} are the limit. Nothing was stored."
        raise InvalidInput(told, found=found, limit=limit)
    try:
        return StoredFile.put(upload.read(), upload.name or "file").model_dump(mode="json")
    except OSError as error:
        raise ServiceError("The storage for files cannot be reached now; try again in a while.") from error
