"""Who is eligible now and which policy holds now, read after the lock. Nothing here decides."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.db import IntegrityError, transaction
from django.db.models import Q, Value

from approvals import canonical, clock, policy
from approvals.errors import UnknownPolicy
from approvals.models import Approval, Decision, Effect, Policy, PolicyClaim, PolicyVersion, Run

_PERMISSION = ("content_type__app_label", "codename")


def people(ids: Collection[Any]) -> dict[str, policy.Person]:
    """These people (primary keys) as they are now, by id; a removed account is missing. Two queries, however many.

    A superuser is eligible by group and permission like everybody: no name opens every gate.
    """
    found = {u.pk: u for u in get_user_model()._default_manager.filter(pk__in=ids)}
    groups: dict[Any, set[str]] = {pk: set() for pk in found}
    permissions: dict[Any, set[str]] = {pk: set() for pk in found}
    member = Group.objects.filter(user__in=found).values_list("user", Value(""), "name")
    unordered = Permission.objects.order_by()  # its own order would be one within a union
    granted = unordered.filter(user__in=found).values_list("user", *_PERMISSION)
    by_group = unordered.filter(group__user__in=found).values_list("group__user", *_PERMISSION)
    for who, app, name in member.union(granted, by_group, all=True) if found else ():
        if who not in found:  # a group has other members too
            continue
        if app:
            permissions[who].add(f"{app}.{name}")
        else:
            groups[who].add(name)
    return {
        str(pk): policy.Person(
            str(pk), u.get_username(), u.is_active, frozenset(groups[pk]), frozenset(permissions[pk])
        )
        for pk, u in found.items()
    }


def person(account: Any) -> policy.Person | None:
    """One account as it is now; None if it was removed, or is nobody's."""
    return people([account.pk]).get(str(account.pk)) if account is not None else None


def present(account: Any) -> policy.Person:
    """The person behind a request, whose account row was read for it just now. Two queries."""
    granted = Permission.objects.filter(Q(user=account) | Q(group__user=account)).distinct()
    return policy.Person(
        str(account.pk),
        account.get_username(),
        account.is_active,
        frozenset(Group.objects.filter(user=account).values_list("name", flat=True)),
        frozenset(
            f"{app}.{name}" for app, name in granted.values_list("content_type__app_label", "codename")
        ),
    )


def is_operator(account: Any, person: policy.Person) -> bool:
    """Whether they see everything: holders of `approvals.operate`, and superusers."""
    return bool(account.is_superuser) or "approvals.operate" in person.permissions


def may_start(account: Any, person: policy.Person, startable_by: Collection[str]) -> bool:
    """Whether they start a workflow that names these groups: members do, and superusers.

    Where it names none, staff and holders of `approvals.start` do.
    """
    if account.is_superuser:
        return True
    if startable_by:
        return not person.groups.isdisjoint(startable_by)
    return bool(account.is_staff) or "approvals.start" in person.permissions


def sources(person: policy.Person) -> list[str]:
    """Every term by which a policy may ask this person."""
    return [
        f"user:{person.username}",
        *(f"group:{name}" for name in sorted(person.groups)),
        *(f"permission:{name}" for name in sorted(person.permissions)),
    ]


def requester(run: Run) -> str | None:
    """The id of whoever asked for the run; None for the installation itself, and for a removed account."""
    return None if run.requester_id is None else str(run.requester_id)


def parties(run: Run) -> policy.Parties:
    """Whom policies may exclude."""
    who = requester(run)
    return policy.Parties(requester=who, starter=who)


def rule(approval: Approval) -> policy.Rule:
    """The rule that asked."""
    return read(approval.policy).rules[approval.rule]


def counts(decision: Decision, approval: Approval) -> bool:
    """Whether this decision is about the present revision, and stands."""
    return decision.counted and decision.withdrawn_at is None and decision.revision == approval.revision


def votes(approval: Approval, said: Iterable[Decision]) -> list[policy.Vote]:
    """The decisions that count."""
    return [
        policy.Vote(
            _reviewer(d),
            d.outcome,  # type: ignore[arg-type]
            commented=policy.says_something(d.comment),
            username=d.reviewer_name,
        )
        for d in said
        if counts(d, approval)
    ]


def _reviewer(decision: Decision) -> str:
    """Whose decision it is; of a removed account, nobody's, and not the same nobody's as another one."""
    return f"removed:{decision.pk}" if decision.reviewer_id is None else str(decision.reviewer_id)


def reviewers(said: Iterable[Decision], *others: Any) -> dict[str, policy.Person]:
    """Whoever decided, and other accounts, as they are now. Two queries."""
    decided = {d.reviewer_id for d in said if d.reviewer_id is not None}
    return people(decided | {account.pk for account in others if account is not None})


def tally(
    approval: Approval, run: Run, said: Iterable[Decision], people: Mapping[str, policy.Person]
) -> policy.Tally:
    """What the decisions come to, over the reviewers as they are now."""
    return policy.tally(read(approval.policy), rule(approval), votes(approval, said), people, parties(run))


def quorum(approval: Approval) -> policy.Tally:
    """How far the decisions had come when they were last counted. No query."""
    return policy.quorum(rule(approval).stages, json.loads(approval.progress))


def staff(parsed: policy.Policy) -> tuple[set[str], list[policy.Person]]:
    """Whom a policy may ask: which of the groups and users that it names exist, and who of them could decide now.

    Of many, only as many as make no difference: one more than any rule needs. A query for each source.
    """
    accounts = get_user_model()._default_manager.order_by("pk")
    enough = 1 + max(sum(stage.needed for stage in rule.stages) for rule in parsed.rules)
    there: set[str] = set()
    ids: set[Any] = set()
    for source in {s for rule in parsed.rules for stage in rule.stages for s in stage.sources}:
        kind, _, name = source.partition(":")
        if kind == "group":
            asked = Q(groups__name=name)
            exists = Group.objects.filter(name=name).exists()
        elif kind == "user":
            asked = Q(**{get_user_model().USERNAME_FIELD: name})
            exists = accounts.filter(asked).exists()
        else:
            app, _, codename = name.partition(".")
            permission = Permission.objects.filter(content_type__app_label=app, codename=codename)
            asked = Q(user_permissions__in=permission) | Q(groups__permissions__in=permission)
            exists = permission.exists()
        there |= {source} if exists else set()
        ids |= set(accounts.filter(asked, is_active=True).values_list("pk", flat=True).distinct()[:enough])
    return there, list(people(ids).values())


@lru_cache(maxsize=512)
def _parsed(body: str) -> policy.Policy:
    return policy.parse(json.loads(body))


def read(version: PolicyVersion) -> policy.Policy:
    """A stored version as rules."""
    return _parsed(version.body)


def publish(parsed: policy.Policy, *, author: Any = None) -> tuple[PolicyVersion, bool]:
    """Stores a policy as its next version and makes it current; (version, whether it is new).

    The same text again changes nothing. To be called in a transaction.
    """
    version = _unsaved(parsed)
    # The newest version row is what writers of one policy queue on.
    newest = PolicyVersion.objects.select_for_update().filter(slug=parsed.slug).order_by("-version").first()
    if newest is not None and newest.digest == version.digest:
        return newest, False
    version.version = newest.version + 1 if newest else 1
    version.author, version.author_name = author, author.get_username() if author else ""
    version.created_at = clock.now()
    version.save(force_insert=True)
    Policy.objects.update_or_create(slug=parsed.slug, defaults={"current": version})
    PolicyClaim.objects.filter(policy=parsed.slug).exclude(kind__in=parsed.effects).delete()
    for kind in parsed.effects:
        PolicyClaim.objects.get_or_create(policy_id=parsed.slug, kind=kind)
    return version, True


def _unsaved(parsed: policy.Policy) -> PolicyVersion:
    body = policy.body(parsed)
    return PolicyVersion(
        slug=parsed.slug,
        version=1,
        body=json.dumps(body, sort_keys=True),
        digest=canonical.digest(body),
    )


def version_of(slug: str, version: int | None = None) -> PolicyVersion | None:
    """One version of a policy, or its newest; `one-reviewer` even before its first use (then not yet stored)."""
    rows = PolicyVersion.objects.filter(slug=slug)
    row = rows.filter(version=version).first() if version else rows.order_by("-version").first()
    if row is None and slug == policy.ONE_REVIEWER["slug"] and version in (None, 1):
        return _unsaved(policy.parse(policy.ONE_REVIEWER))
    return row


def required(slugs: Iterable[str], kind: str) -> list[PolicyVersion]:
    """The current versions of every policy that must hold: the named ones and those that claim the kind.

    Raises UnknownPolicy for a name that nobody loaded; `one-reviewer` always exists.
    """
    names = set(slugs)
    claims = Q(claims__kind=kind) if kind else Q(pk__in=[])
    rows = (
        Policy.objects.filter(Q(slug__in=names) | claims)
        .select_related("current")
        .distinct()
        .order_by("slug")
    )
    found = {p.slug: p.current for p in rows}
    for slug in sorted(names - found.keys()):
        if slug != policy.ONE_REVIEWER["slug"]:
            raise UnknownPolicy(
                policy=slug, loaded=", ".join(Policy.objects.values_list("slug", flat=True)) or "none"
            )
        found[slug] = _built_in()
    return [found[slug] for slug in sorted(found)]


def _built_in() -> PolicyVersion:
    """`one-reviewer`, made on first use; of two that make it at once, the second takes the first's."""
    try:
        with transaction.atomic():
            return publish(policy.parse(policy.ONE_REVIEWER))[0]
    except IntegrityError:
        return Policy.objects.select_related("current").get(slug=policy.ONE_REVIEWER["slug"]).current


def of_effect(run: Run, effect: Effect) -> policy.Facts:
    """What conditions see of an effect."""
    about = {
        "kind": effect.kind,
        "target": effect.target,
        "risk": effect.risk,
        "reversible": effect.reversible,
    }
    return policy.Facts(json.loads(effect.request), about, *_of_run(run))


def of_question(run: Run, action: str) -> policy.Facts:
    """What conditions see of a question to people."""
    return policy.Facts(json.loads(action), None, *_of_run(run))


def _of_run(run: Run) -> tuple[dict[str, Any], dict[str, Any] | None]:
    about = {
        "id": str(run.pk),
        "workflow": run.workflow,
        "version": run.version,
        "key": run.key,
        "tags": json.loads(run.tags),
    }
    if not run.requester_name:
        return about, None
    person = people([run.requester_id]).get(str(run.requester_id))
    return about, {"username": run.requester_name, "groups": sorted(person.groups) if person else []}


def verdicts(
    versions: Sequence[PolicyVersion], facts: policy.Facts
) -> list[tuple[PolicyVersion, policy.Verdict]]:
    """What each policy says of these facts."""
    return [(version, policy.choose(read(version), facts)) for version in versions]
