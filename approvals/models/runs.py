"""Runs, their journal, and the workers that hold them."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from approvals import clock
from approvals.models.checks import closed_iff, one_of
from approvals.states import RUN_FINAL, RunStatus


class Clock(models.Model):
    """One row: how far tests have moved database time. Absent or zero in production."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    shift = models.DurationField(default=timedelta())

    class Meta:
        db_table = "approvals_clock"

    def __str__(self) -> str:
        return f"shifted by {self.shift}"


class Worker(models.Model):
    """A process (or a set of threads in one) that moves runs. It renews one lease, its own."""

    id = models.UUIDField(primary_key=True, default=clock.new_id, editable=False)
    name = models.TextField()
    queue = models.TextField(default="default")
    started_at = models.DateTimeField()
    lease_until = models.DateTimeField(help_text="Its runs are free after this, by database time.")
    stopped_at = models.DateTimeField(null=True, blank=True)
    swept_at = models.DateTimeField(
        null=True, blank=True, help_text="About when it last swept; others may have since."
    )
    versions = models.TextField(default="[]", help_text="JSON: [workflow, version] pairs it can continue.")
    # PostgreSQL: the session lock says at once that the process is gone; null where it cannot tell.
    lock_key = models.BigIntegerField(null=True, blank=True)
    backend_pid = models.IntegerField(null=True, blank=True)
    locked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                name="worker_lock_whole",
                condition=Q(lock_key=None, backend_pid=None, locked_at=None)
                | Q(lock_key__isnull=False, backend_pid__isnull=False, locked_at__isnull=False),
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["lease_until"], condition=Q(stopped_at=None), name="worker_alive")
        ]

    def __str__(self) -> str:
        return self.name


class Run(models.Model):
    """One execution of a workflow, from its start to its end, over any number of turns and workers."""

    class Unwinding(models.TextChoices):
        """Whether what the run has done is undone before it ends; once begun, no workflow code runs any more."""

        NO = ""
        ASKED = "asked"
        BEGUN = "begun"

    id = models.UUIDField(primary_key=True, default=clock.new_id, editable=False)
    workflow = models.TextField()
    version = models.IntegerField(help_text="The version it was started at.")
    key = models.TextField(
        null=True, blank=True, help_text="The caller's own name for it; unique in its workflow."
    )
    status = models.CharField(max_length=10, default=RunStatus.PENDING)
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
    )
    requester_name = models.TextField(default="", blank=True, help_text="Stays when the account is removed.")
    input = models.TextField(help_text="JSON")
    output = models.TextField(null=True, blank=True, help_text="JSON")
    error = models.TextField(default="", blank=True, help_text="JSON: type, message, code")
    tags = models.TextField(default="[]", help_text="JSON")
    progress = models.TextField(default="", blank=True, help_text="JSON: done, total, text")
    seed = models.UUIDField(help_text="What ctx.uuid and ctx.random derive from; a fork keeps it.")

    seq = models.IntegerField(default=0, help_text="The last entry of its journal.")
    position = models.IntegerField(default=0, help_text="The highest completed position.")
    fence = models.IntegerField(
        default=0, help_text="Grows with every claim; an older holder writes nothing."
    )
    worker = models.ForeignKey(
        Worker, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    turns_lost = models.IntegerField(default=0, help_text="Turns lost since a position was newly completed.")
    ready_at = models.DateTimeField(help_text="Since when it waits for a worker.")
    parked_left = models.IntegerField(
        default=0, help_text="So many more parked waits must close before it is woken."
    )
    verify_due = models.BooleanField(
        default=False, help_text="The next turn first verifies earlier receipts."
    )

    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    pause_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_by = models.TextField(default="", blank=True, help_text="Who asked for it, and why.")
    cancel_reason = models.TextField(default="", blank=True)
    pause_by = models.TextField(default="", blank=True, help_text="Who asked for it, and why.")
    pause_reason = models.TextField(default="", blank=True)

    unwinding = models.CharField(
        max_length=5,
        choices=Unwinding,
        default=Unwinding.NO,
        blank=True,
        help_text="Whether what it has done is undone before it ends; an error that it has already is how.",
    )

    parent_wait = models.UUIDField(null=True, blank=True, help_text="The wait of its parent that it closes.")
    parent_run = models.UUIDField(null=True, blank=True)

    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        permissions: ClassVar = [
            ("start", "Can start runs"),
            ("operate", "Can pause, resume, cancel and reconcile runs"),
        ]
        constraints: ClassVar = [
            one_of("run", "status"),
            closed_iff("run_finished", RUN_FINAL, "finished_at"),
            models.CheckConstraint(
                name="run_held_iff_running",
                condition=Q(status=RunStatus.RUNNING, worker__isnull=False)
                | (~Q(status=RunStatus.RUNNING) & Q(worker=None)),
            ),
            models.UniqueConstraint(
                fields=["workflow", "key"], condition=Q(key__isnull=False), name="run_key"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["ready_at"], condition=Q(status=RunStatus.PENDING), name="run_runnable"),
            models.Index(fields=["worker"], condition=Q(status=RunStatus.RUNNING), name="run_held"),
            models.Index(
                fields=["cancel_requested_at"],
                condition=Q(cancel_requested_at__isnull=False, finished_at=None),
                name="run_to_cancel",
            ),
            models.Index(
                fields=["requester", "id"], condition=Q(requester__isnull=False), name="run_requester"
            ),
            models.Index(
                fields=["parent_wait"],
                condition=Q(parent_wait__isnull=False, finished_at=None),
                name="run_child",
            ),
            # Few among many, and no step of a run's way: asked for by status, the newest first.
            models.Index(
                fields=["status", "id"],
                condition=Q(status__in=(RunStatus.PAUSED, RunStatus.FAILED, RunStatus.CANCELLED)),
                name="run_seldom",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} {self.id}"


class Entry(models.Model):
    """One line of a run's journal. Append-only."""

    pk = models.CompositePrimaryKey("run", "seq")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="entries", db_index=False)
    seq = models.IntegerField()
    position = models.IntegerField(null=True)
    kind = models.CharField(max_length=24)
    name = models.TextField(default="")
    digest = models.CharField(max_length=64, default="")
    data = models.TextField(default="{}", help_text="JSON")
    at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.seq}: {self.kind} {self.name}"
