"""What people decide on and by which rules: policies, approvals, decisions."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from approvals import clock
from approvals.models.work import Effect, Wait


class PolicyVersion(models.Model):
    """One immutable version of a policy."""

    slug = models.SlugField(max_length=100, db_index=False)
    version = models.IntegerField()
    body = models.TextField(help_text="JSON")
    digest = models.CharField(max_length=64)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    author_name = models.TextField(default="", blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["slug", "version"], name="policy_version")]

    def __str__(self) -> str:
        return f"{self.slug} v{self.version}"


class Policy(models.Model):
    """A policy by name, and the version that holds now."""

    slug = models.SlugField(max_length=100, primary_key=True)
    current = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")

    class Meta:
        verbose_name_plural = "policies"

    def __str__(self) -> str:
        return self.slug


class PolicyClaim(models.Model):
    """An effect kind that can never run without a policy."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="claims")
    kind = models.TextField(db_index=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["policy", "kind"], name="policy_claim")]

    def __str__(self) -> str:
        return f"{self.policy_id} claims {self.kind}"


class Approval(models.Model):
    """What an approval wait is about: the exact action, by which policy, and what became of it."""

    wait = models.OneToOneField(Wait, primary_key=True, on_delete=models.CASCADE, related_name="approval")
    effect = models.ForeignKey(
        Effect,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="approvals",
        db_index=False,
        help_text="The effect that may use it.",
    )
    kind = models.TextField(
        default="", blank=True, help_text="The effect kind that it authorises; empty: a question."
    )
    target = models.TextField(default="", blank=True)
    action = models.TextField(help_text="JSON")
    digest = models.CharField(max_length=64)
    revision = models.SmallIntegerField(default=1)
    title = models.TextField()
    sentence = models.TextField(default="", blank=True, help_text="From the effect's own describe().")
    summary = models.TextField(default="", blank=True)
    evidence = models.TextField(default="[]", help_text="JSON")
    form = models.TextField(default="", blank=True, help_text="JSON schema of what a reviewer fills in.")
    risk = models.CharField(max_length=6, default="low")
    reversible = models.BooleanField(default=True)
    policy = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+", db_index=False)
    rule = models.SmallIntegerField(help_text="Which of the policy's rules asked.")
    needed = models.SmallIntegerField()
    progress = models.TextField(
        default="[]", blank=True, help_text="JSON: how many approvals count, by stage and need."
    )
    workflow_version = models.IntegerField(help_text="Of the code that asked.")
    excludes_requester = models.BooleanField(
        default=True, help_text="Whether its policy keeps whoever asked for the run from deciding."
    )
    consumed_by = models.ForeignKey(
        Effect, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    invalidated = models.TextField(default="", blank=True, help_text="Why a later check refused it.")

    def __str__(self) -> str:
        return self.title


class Audience(models.Model):
    """Whom an approval asks, in its policy's own terms (`group:reviewers`), so that inboxes can be looked up."""

    pk = models.CompositePrimaryKey("source", "approval")
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="audience")
    source = models.TextField()

    def __str__(self) -> str:
        return f"{self.source} is asked {self.approval_id}"


class Decision(models.Model):
    """What one person said about one revision."""

    id = models.UUIDField(primary_key=True, default=clock.new_id, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="decisions")
    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    reviewer_name = models.TextField(help_text="Stays when the account is removed.")
    outcome = models.CharField(max_length=17)
    comment = models.TextField(default="", blank=True)
    form = models.TextField(default="", blank=True, help_text="JSON")
    at = models.DateTimeField()
    channel = models.CharField(max_length=10)
    revision = models.SmallIntegerField()
    digest = models.CharField(max_length=64)
    key = models.TextField(null=True, blank=True, help_text="Whoever decides by it again gets this answer.")
    stage = models.SmallIntegerField(default=0)
    counted = models.BooleanField(default=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["approval", "revision", "reviewer"],
                condition=Q(withdrawn_at=None, reviewer__isnull=False),
                name="decision_once",
            ),
            models.UniqueConstraint(
                fields=["approval", "key"], condition=Q(key__isnull=False), name="decision_key"
            ),
            models.CheckConstraint(
                name="decision_outcome",
                condition=Q(outcome__in=("approved", "rejected", "changes_requested")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reviewer_name}: {self.outcome}"
