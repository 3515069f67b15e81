"""What a run does and waits for: effects, waits, messages; and the outbox."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from approvals import clock
from approvals.models.checks import closed_iff, one_of, set_in
from approvals.models.runs import Run
from approvals.states import EFFECT_DONE, EFFECT_UNSETTLED, WAIT_CLOSED, EffectStatus, WaitKind, WaitStatus


class Wait(models.Model):
    """What a run is suspended at. Identity: (run, position, kind, ordinal)."""

    # What happens to a parked wait that is still open when its run is woken; TOGETHER: none is, all must close.
    NOT_PARKED, KEEP, CANCEL, TOGETHER = 0, 1, 2, 3

    id = models.UUIDField(primary_key=True, default=clock.new_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="waits", db_index=False)
    position = models.IntegerField()
    kind = models.CharField(max_length=14, choices=[(k.value, k.value) for k in WaitKind])
    ordinal = models.SmallIntegerField(default=0)
    name = models.TextField()
    status = models.CharField(max_length=9, default=WaitStatus.OPEN)
    opened_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, blank=True, help_text="When it expires, or a timer fires.")
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_seq = models.IntegerField(null=True, blank=True, help_text="The entry that closed it.")
    outcome = models.TextField(default="", blank=True)
    data = models.TextField(
        default="", blank=True, help_text="JSON: why, for a reconciliation; else what it brought."
    )
    parked = models.SmallIntegerField(
        default=NOT_PARKED, help_text="Whether its run is parked on it, and what becomes of it then."
    )

    class Meta:
        permissions: ClassVar = [("review", "Can decide approvals")]
        constraints: ClassVar = [
            one_of("wait", "status"),
            closed_iff("wait_closed", WAIT_CLOSED, "closed_at"),
            models.CheckConstraint(name="wait_kind", condition=Q(kind__in=tuple(WaitKind))),
            models.UniqueConstraint(fields=["run", "position", "kind", "ordinal"], name="wait_identity"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["due_at"], condition=Q(status="open", due_at__isnull=False), name="wait_due"
            ),
            models.Index(
                fields=["kind", "id"],
                condition=Q(status="open", kind__in=("approval", "reconciliation")),
                name="wait_for_people",
            ),
            models.Index(
                fields=["due_at", "id"], condition=Q(kind="approval", status="open"), name="wait_in_inbox"
            ),
            models.Index(
                fields=["closed_at", "id"],
                condition=Q(kind="approval", closed_at__isnull=False),
                name="wait_decided",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Reconciliation(Wait):
    """A case: a wait for an operator, seen for itself."""

    class Meta:
        proxy = True
        default_permissions = ("view",)


class Effect(models.Model):
    """One change in the outside world: intent, stable key, receipt."""

    id = models.UUIDField(primary_key=True, default=clock.new_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="effects", db_index=False)
    position = models.IntegerField()
    name = models.TextField()
    kind = models.TextField()
    status = models.CharField(max_length=12, default=EffectStatus.INTENDED)
    generation = models.SmallIntegerField(default=1)
    key = models.TextField(help_text="The same for all attempts of one generation.")
    target = models.TextField(default="", blank=True)
    request = models.TextField(help_text="JSON, frozen")
    digest = models.CharField(max_length=64, help_text="Of {kind, target, request}.")
    risk = models.CharField(max_length=6, default="low")
    reversible = models.BooleanField(default=True)
    policies = models.TextField(default="[]", help_text="JSON: slugs and versions of the pinned policies.")
    attempts = models.SmallIntegerField(default=0, help_text="Attempts that certainly sent nothing.")
    sends = models.SmallIntegerField(default=0)
    calls = models.IntegerField(default=0, help_text="Every dispatch, of every generation; only grows.")
    sent_at = models.DateTimeField(null=True, blank=True, help_text="The last dispatch.")
    deadline_at = models.DateTimeField(
        null=True, blank=True, help_text="The last call sends nothing after this."
    )
    external_id = models.TextField(null=True, blank=True)
    checksum = models.TextField(null=True, blank=True)
    evidence = models.TextField(default="{}", help_text="JSON")
    verified_at = models.DateTimeField(null=True, blank=True)
    superseded = models.BooleanField(
        default=False, help_text="A later effect stands for it; not verified any more."
    )
    reason = models.TextField(
        default="", blank=True, help_text="Why it was refused, withdrawn, doubted or contradicted."
    )
    compensates = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="compensation"
    )

    class Meta:
        constraints: ClassVar = [
            one_of("effect", "status"),
            set_in("effect_sent", {*EFFECT_UNSETTLED, *EFFECT_DONE, EffectStatus.CONTRADICTED}, "sent_at"),
            set_in("effect_receipt", {*EFFECT_DONE, EffectStatus.CONTRADICTED}, "external_id"),
            models.UniqueConstraint(fields=["run", "position"], name="effect_identity"),
            models.UniqueConstraint(fields=["key"], name="effect_key"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Message(models.Model):
    """A signal or webhook body that came for a run, early, in time or late. Consumed once."""

    class Status(models.TextChoices):
        BUFFERED = "buffered"
        CONSUMED = "consumed"
        LATE = "late"

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="messages", db_index=False)
    name = models.TextField()
    message_id = models.TextField()
    payload = models.TextField(help_text="JSON")
    status = models.CharField(max_length=8, choices=Status, default=Status.BUFFERED)
    wait = models.ForeignKey(
        Wait, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    received_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "name", "message_id"], name="message_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.message_id}"


class Outbox(models.Model):
    """What must happen after a commit and may not be lost: one row, removed when it is done."""

    class Kind(models.TextChoices):
        CHILD_ENDED = "child_ended"
        CANCEL_CHILD = "cancel_child"
        PROBE = "probe"

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=12, choices=Kind)
    subject = models.UUIDField(help_text="The run (or, for a probe, the wait) that it concerns.")
    data = models.TextField(default="{}", help_text="JSON")
    due_at = models.DateTimeField(help_text="Nobody else takes it before this.")
    attempts = models.SmallIntegerField(default=0)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["subject"], condition=Q(kind="probe"), name="outbox_probe_once")
        ]
        indexes: ClassVar = [models.Index(fields=["due_at"], name="outbox_due")]
        verbose_name_plural = "outbox"

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"
