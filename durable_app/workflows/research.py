"""research-and-publish: gather, keep a draft, ask people, make it public, tell the subscribers.

The workflow is ordinary Python that may stop for days. Whatever `ctx` answers is journaled: another worker, on
another day, calls the function again and goes on from there. Steps only read; what changes the world outside is
an effect, and `make public` happens only if people approve that exact request.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Literal

from django.utils.text import slugify
from pydantic import BaseModel, ConfigDict, Field

from approvals import Check, Context, Diff, Evidence, Object, Receipt, StoredFile, Text, workflow
from approvals.errors import EffectRefused, NotApproved, PolicyDenied, StepFailed
from durable_app.workflows import objects
from durable_app.workflows.inventory import Inventory, Record, from_lines, normalise
from durable_app.workflows.publishing import (
    MakePublic,
    Notice,
    Publication,
    SendNotice,
    Upload,
    UploadDraft,
    public_name,
)
from durable_app.workflows.sources import find_sources, gather

MAY_CHANGE = 0.2
SHOWN_MAX = 50

Address = Annotated[
    str, Field(pattern=r"^[^@\s]+@[^@\s]+$", max_length=254, description="One e-mail address.")
]


class ResearchRequest(BaseModel):
    """What to make an inventory of, and whom to tell."""

    model_config = ConfigDict(extra="forbid")  # a misspelt field would be a default, unnoticed

    folder: str | None = Field(
        None,
        description="A folder of CSV, JSON and TXT files, where the worker runs; empty: the Python packages there.",
    )
    title: str = Field(
        "Installed packages",
        max_length=100,
        pattern=r"^[^\r\n]*\S[^\r\n]*$",
        description="Names the publication; the same title again replaces the last one.",
    )
    subscribers: list[Address] = Field(
        ["subscribers@example.org"], max_length=100, description="Who is told by mail once it is public."
    )

    @property
    def slug(self) -> str:
        """The title as a name in the object store."""
        return slugify(self.title) or f"dataset-{sha256(self.title.encode()).hexdigest()[:8]}"


class Changes(BaseModel):
    """How a dataset differs from the last publication."""

    replaces: str = ""  # the last publication's SHA-256; empty: there is none
    records_before: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    before: dict[str, str] = {}
    after: dict[str, str] = {}


class Report(BaseModel):
    """How it ended."""

    outcome: Literal["published", "not published"] = "not published"
    reason: str = ""
    records: int
    left_out: int
    draft: str = ""
    sha256: str = ""
    address: str = ""
    verified: bool = False  # what is public was read back, and is what was approved
    notified: str = ""


@workflow(name="research-and-publish", version=3, startable_by=["requesters", "operators"])
def research_and_publish(ctx: Context, request: ResearchRequest) -> Report:
    """Publishes an inventory of packages or documents, once people have approved it."""
    found = ctx.step("find sources", find_sources, request.folder)
    gathered = []
    for done, source in enumerate(found.sources):
        ctx.progress(done, len(found.sources), f"gathering {source.label}")
        gathered.append(ctx.step(f"gather {source.label}", gather, source))
    ctx.progress(len(gathered), len(gathered), "gathered")
    inventory = ctx.step("normalise", normalise, gathered, found.dropped)
    report = Report(records=inventory.records, left_out=inventory.left_out)
    if not inventory.records:
        report.reason = "no records were found"
        return report

    draft = ctx.effect("upload draft", UploadDraft, Upload(file=inventory.dataset))
    changes = ctx.step("compare", compare, request.slug, inventory.dataset)
    publication = Publication(
        slug=request.slug,
        draft=draft.external_id,
        sha256=inventory.dataset.sha256,
        records=inventory.records,
        replaces=changes.replaces,
    )
    report.draft, report.sha256 = publication.draft, publication.sha256
    try:
        published = ctx.effect(
            "make public",
            MakePublic,
            publication,
            title=f"Publish “{request.title}”: {inventory.records:,} records",
            summary=summary(inventory, changes),
            evidence=evidence(inventory, changes, draft),
        )
    except (NotApproved, PolicyDenied, EffectRefused) as no:
        report.reason = str(no)  # the draft stays, for whoever wants to try again
        return report

    report.outcome, report.address = "published", published.external_id
    report.verified = ctx.step("read back", read_back, published.external_id, published.request.sha256)
    report.notified = notify(ctx, request, published)
    return report


def read_back(address: str, checksum: str) -> bool:
    """Whether this is public now. A run that is resumed verifies its receipts by itself; this one ends soon."""
    return objects.checksum(address) == checksum


def notify(ctx: Context, request: ResearchRequest, published: Receipt[Publication]) -> str:
    """Tells the subscribers. What is public stays public, also if no mail can be sent."""
    if not request.subscribers:
        return "nobody asked to be told"
    count, address = published.request.records, published.external_id
    notice = Notice(
        to=request.subscribers,
        subject=f"Published: {request.title}",
        body=f"{count:,} records are public at {address}\nSHA-256 {published.checksum}\n",
    )
    try:
        ctx.effect("notify", SendNotice, notice)
    except (EffectRefused, StepFailed) as no:
        return f"not sent: {no}"
    return f"{len(notice.to)} by mail"


def compare(slug: str, dataset: StoredFile) -> Changes:
    """Holds a dataset against the last publication; shows no more of it than a page can hold."""
    public = objects.read(public_name(slug))
    if public is None:
        return Changes(added=sum(1 for _ in from_lines(dataset.read())))
    try:
        before = _by_name(public)
    except ValueError:  # what is there is no dataset: all of it goes, all of ours is new
        before = {}
    after = _by_name(dataset.read())
    differing = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    return Changes(
        replaces=sha256(public).hexdigest(),
        records_before=len(public.splitlines()),
        added=len(after.keys() - before.keys()),
        removed=len(before.keys() - after.keys()),
        changed=len([name for name in differing if name in before and name in after]),
        before={name: before[name] for name in differing[:SHOWN_MAX] if name in before},
        after={name: after[name] for name in differing[:SHOWN_MAX] if name in after},
    )


def _by_name(data: bytes) -> dict[str, str]:
    """What is compared of each name: its versions, each with its licence and its text."""
    names: dict[str, list[str]] = {}
    for item in from_lines(data):
        if isinstance(item, Record):
            told = f"{item.version} {item.licence} {item.text_digest[:12]}".strip()
            names.setdefault(item.name, []).append(told)
    return {name: ", ".join(versions)[:500] for name, versions in names.items()}


def summary(inventory: Inventory, changes: Changes) -> str:
    """The sentence under the title."""
    told = f"{inventory.records:,} records, {inventory.left_out:,} left out."
    if not changes.replaces:
        return f"{told} The first publication under this title."
    moved = f"{changes.added:,} added, {changes.removed:,} removed, {changes.changed:,} changed"
    return f"{told} Since the last publication: {moved}."


def evidence(inventory: Inventory, changes: Changes, draft: Receipt[Upload]) -> list[Evidence]:
    """What a reviewer needs in order to say yes or no."""
    shown: list[Evidence] = [*checks(inventory, changes, draft)]
    if changes.replaces:
        shown.append(Diff("since the last publication", changes.before, changes.after))
    shown += [Text("licences", _counts(inventory.licences)), Object("the dataset", inventory.dataset)]
    if inventory.left_out:
        shown.append(Object("what was left out, and why", inventory.dropped))
    return shown


def checks(inventory: Inventory, changes: Changes, draft: Receipt[Upload]) -> list[Check]:
    """What could be wrong with it, looked at one by one; None: cannot be said."""
    before, now, unknown = changes.records_before, inventory.records, inventory.not_stated
    moved = abs(now - before) / before if before else None
    is_whole, is_same = not inventory.left_out, draft.checksum == inventory.dataset.sha256
    return [
        Check("every record states a licence", not unknown, f"{unknown:,} of {now:,} do not"),
        Check("nothing was left out", is_whole, _counts(inventory.reasons) or "all that was found is in it"),
        Check("the draft is what was gathered", is_same, f"SHA-256 {draft.checksum}"),
        Check(
            f"the number of records changed by less than {MAY_CHANGE:.0%}",
            None if moved is None else moved < MAY_CHANGE,
            "there is no earlier publication" if moved is None else f"{before:,} → {now:,}",
        ),
    ]


def _counts(counts: dict[str, int]) -> str:
    return "\n".join(f"{count:,} × {what}" for what, count in counts.items())
