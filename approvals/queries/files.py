"""The stored files that an approval or a run names, for those who see it.

Whoever sees the page sees the file: nobody else, and no other file. It is named by all that identifies it
(`trees.file_id`), so that an address leads to the file that the page named, or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.core.files.storage import default_storage
from django.db.models import Prefetch

from approvals.errors import ContentChanged, LimitExceeded, NotFound, ServiceError
from approvals.limits import limits
from approvals.models import Decision
from approvals.queries import access, trees
from approvals.workflows.files import MISSING, StoredFile, safe_name

__all__ = ["StoredFile", "content", "in_approval", "in_run", "safe_name"]


def in_approval(viewer: access.Viewer, wait_id: UUID, file_id: str) -> StoredFile:
    """A file in the action, the evidence, or what reviewers filled in. Two queries. Raises NotFound."""
    said = Prefetch("decisions", Decision.objects.only("approval", "form").order_by("at", "pk"))
    rows = access.approvals(viewer).only("action", "evidence").prefetch_related(said)
    row = rows.filter(pk=wait_id).first()
    if row is None:
        raise NotFound(approval=wait_id)
    return _named((row.action, row.evidence, *(d.form for d in row.decisions.all())), file_id)


def in_run(viewer: access.Viewer, run_id: UUID, file_id: str) -> StoredFile:
    """A file in the input or the output. One query. Raises NotFound."""
    found = access.runs(viewer).filter(pk=run_id).values_list("input", "output").first()
    if found is None:
        raise NotFound(run=run_id)
    return _named(found, file_id)


def _named(texts: Iterable[str | None], file_id: str) -> StoredFile:
    for text in texts:
        for item in trees.files(trees.read(text or "")):
            if trees.file_id(item) == file_id:
                return StoredFile.model_validate(dict(item))
    raise NotFound(file=file_id)


def content(file: StoredFile) -> bytes:
    """The bytes that were recorded, and no others.

    Raises ContentChanged (name, expected, found) where they are gone or others, LimitExceeded for more than
    pages hand out (`file_bytes`), ServiceError where the storage gives nothing.
    """
    limit = limits().file_bytes
    try:
        if (found := default_storage.size(file.storage_name)) > limit:
            told = f"“{file.name}” has {found:,} bytes, and pages hand out {limit:,} at most (`file_bytes`)"
            raise LimitExceeded(told, found=found, limit=limit)
        return file.read()
    except FileNotFoundError:
        raise ContentChanged(name=file.name, expected=file.sha256, found=MISSING) from None
    except OSError as error:
        raise ServiceError("The storage for files does not give it now; try again in a while") from error
