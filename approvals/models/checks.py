"""CHECK constraints made from the state tables."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import CheckConstraint, Q

from approvals.states import STATUSES, Machine


def one_of(machine: Machine, column: str) -> CheckConstraint:
    """The status is one that the machine's table knows."""
    return CheckConstraint(name=f"{machine}_status", condition=Q(**{f"{column}__in": STATUSES[machine]}))


def closed_iff(name: str, statuses: Iterable[str], column: str) -> CheckConstraint:
    """`column` is set exactly in these statuses."""
    among = sorted(statuses)
    return CheckConstraint(
        name=name,
        condition=Q(status__in=among, **{f"{column}__isnull": False})
        | (~Q(status__in=among) & Q(**{column: None})),
    )


def set_in(name: str, statuses: Iterable[str], column: str) -> CheckConstraint:
    """`column` is set at least in these statuses."""
    return CheckConstraint(
        name=name, condition=~Q(status__in=sorted(statuses)) | Q(**{f"{column}__isnull": False})
    )
