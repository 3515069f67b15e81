"""The few forms of the admin, and how a refusal reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.utils.html import format_html
from django.utils.timezone import localtime

from approvals.errors import AlreadyDecided, ApprovalsError, StaleDigest, WaitClosed

LONGEST_NOTE = 4_000


def told(error: ApprovalsError) -> str:
    """A refusal as a sentence, with what the person needs to go on."""
    values = error.values
    if isinstance(error, StaleDigest):
        return "The action changed since it was shown to you. Read it again: this page shows it as it is now."
    more = []
    if isinstance(error, WaitClosed) and values.get("outcome"):
        by = f" by {values['by']}" if isinstance(error, AlreadyDecided) and values.get("by") else ""
        more.append(f"it ended as {str(values['outcome']).replace('_', ' ')}{by}")
    for name, words in (("at", "at"), ("not_before", "not before")):
        if values.get(name):
            more.append(f"{words} {_instant(values[name])}")
    return f"{str(error).rstrip('.')} ({', '.join(more)})." if more else f"{str(error).rstrip('.')}."


def _instant(value: datetime | str) -> str:
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{localtime(at):%Y-%m-%d %H:%M:%S %Z}"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that an operator may do with a run."""

    label: str
    done: str
    css: str = ""


OPERATE = {
    "pause": Action("Pause", "The run is paused, or will be at its next boundary."),
    "resume": Action("Resume", "The run goes on."),
    "cancel": Action(
        "Cancel the run", "The run is cancelled, or will be at its next boundary.", "deletelink"
    ),
}


class OperateForm(forms.Form):
    """Pause, resume or cancel a run, with a reason that stays in its journal."""

    reason = forms.CharField(
        max_length=LONGEST_NOTE,
        required=False,
        help_text="Stays in the run's journal. Needed to pause and to cancel.",
    )

    def __init__(self, allowed: Sequence[str], data: Any = None) -> None:
        super().__init__(data)
        self.allowed = allowed

    def clean(self) -> dict[str, Any]:
        do = self.data.get("do", "")
        if do not in self.allowed:
            words = do if do in OPERATE else "done"
            raise forms.ValidationError(f"The run as it is now cannot be {_PAST.get(words, words)}.")
        if do != "resume" and not self.cleaned_data.get("reason", "").strip():
            self.add_error("reason", "Say why.")
        return {**self.cleaned_data, "do": do}


_PAST = {"pause": "paused", "resume": "resumed", "cancel": "cancelled", "done": "operated so"}


class ResolveForm(forms.Form):
    """How an operator settles a case."""

    resolution = forms.ChoiceField(widget=forms.RadioSelect, label="What holds")
    external_id = forms.CharField(
        label="External id", required=False, max_length=2_000, help_text="The id that the peer shows for it."
    )
    checksum = forms.CharField(
        required=False, max_length=2_000, help_text="Where the peer gives one; else leave it empty."
    )
    note = forms.CharField(
        max_length=LONGEST_NOTE,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="What you saw and why you decide so. It stays with the run.",
    )

    def __init__(self, choices: Sequence[tuple[str, str, str]], *, receipt: bool, data: Any = None) -> None:
        super().__init__(data)
        shown = [
            (name, format_html("<span><strong>{}</strong> {}</span>", label, what))
            for name, label, what in choices
        ]
        field = self.fields["resolution"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - for the type checker
        field.choices = shown
        if not receipt:
            del self.fields["external_id"], self.fields["checksum"]


class DecideForm(forms.Form):
    """One person's decision about exactly what the page shows: the page itself adds digest and revision."""

    outcome = forms.ChoiceField(
        widget=forms.RadioSelect,
        label="Your decision",
        choices=[
            ("approved", "Approve"),
            ("changes_requested", "Ask for changes"),
            ("rejected", "Reject"),
        ],
    )
    comment = forms.CharField(
        max_length=LONGEST_NOTE, required=False, widget=forms.Textarea(attrs={"rows": 3})
    )
    form = forms.CharField(
        label="Form, as JSON",
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="Fits the schema that this page shows. Needed to approve.",
    )
    digest = forms.CharField(widget=forms.HiddenInput)
    revision = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *, with_form: bool, data: Any = None) -> None:
        super().__init__(data)
        if not with_form:
            del self.fields["form"]

    def clean_form(self) -> Any:
        text = self.cleaned_data["form"].strip()
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(f"This is not JSON: {error}") from error
