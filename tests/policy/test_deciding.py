"""Who may decide, and how decisions are counted."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.policy import (
    ONE_REVIEWER,
    Eligibility,
    Person,
    Policy,
    Stage,
    Tally,
    Vote,
    eligibility,
    parse,
    tally,
)
from tests.policy.make import asking, id_of, person


def may(
    policy: Policy,
    who: Person,
    *,
    requester: str | None = id_of("rita"),
    starter: str | None = id_of("sam"),
    editors: frozenset[str] = frozenset({id_of("ed")}),
) -> Eligibility:
    return eligibility(
        policy, policy.rules[0].stages, who, requester=requester, starter=starter, editors=editors
    )


MIXED = asking(1, "group:finance", "user:cfo", "permission:approvals.review")


@pytest.mark.parametrize(
    ("who", "ok"),
    [
        (person("ann", "finance"), True),
        (person("cfo"), True),
        (person("bob", permissions=("approvals.review",)), True),
        (person("bob"), False),
        (person("bob", "Finance", "user:cfo", "cfo", permissions=("finance", "cfo")), False),
        (person("finance", permissions=("approvals.view",)), False),
        (person("CFO"), False),
    ],
)
def test_sources(who: Person, ok: bool) -> None:
    found = may(MIXED, who)
    assert (found.ok, found.stage) == ((True, 0) if ok else (False, None))
    if not ok:
        assert found.reason == (
            "is not in group:finance and is not user:cfo and does not have permission:approvals.review"
        )


def test_a_reason_for_one_source() -> None:
    assert may(asking(1, "group:finance"), person("bob")).reason == "is not in group:finance"
    assert may(asking(1, "user:cfo"), person("bob")).reason == "is not user:cfo"


def test_disabled() -> None:
    found = may(MIXED, person("ann", "finance", active=False))
    assert found == Eligibility(False, None, "is disabled")


EXCLUDED = {"rita": "asked for it", "sam": "started the run", "ed": "edited it"}
ROLES = {"requester": "rita", "starter": "sam", "editor": "ed"}


@pytest.mark.parametrize("size", range(4))
def test_exclusions_are_exactly_those_of_the_policy(size: int) -> None:
    for exclude in itertools.combinations(ROLES, size):
        policy = asking(1, "group:finance", exclude=list(exclude))
        for role, name in ROLES.items():
            found = may(policy, person(name, "finance"))
            assert found.ok is (role not in exclude)
            assert found.reason == ("" if found.ok else EXCLUDED[name])


def test_without_requester_or_starter_nobody_is_excluded_for_it() -> None:
    policy = asking(1, "group:finance")
    assert may(policy, person("rita", "finance"), requester=None).ok
    assert may(policy, person("sam", "finance"), starter=None).ok
    assert may(policy, person("ed", "finance"), editors=frozenset()).ok


def test_who_was_renamed_is_still_excluded_and_who_took_the_name_is_not() -> None:
    policy = asking(1, "group:finance")
    renamed = replace(person("rita", "finance"), username="bob")
    taken = replace(person("other", "finance"), username="rita")
    assert may(policy, renamed).reason == "asked for it"
    assert may(policy, taken).ok


def test_nobody_is_asked() -> None:
    found = eligibility(MIXED, (), person("cfo"), requester=None, starter=None, editors=frozenset())
    assert not found.ok
    assert found.reason


def test_one_reviewer() -> None:
    policy = parse(ONE_REVIEWER)
    allowed = ("approvals.review",)
    assert may(policy, person("ann", permissions=allowed)).ok
    assert not may(policy, person("ann", "reviewers")).ok
    assert may(policy, person("rita", permissions=allowed)).reason == "asked for it"
    assert may(policy, person("sam", permissions=allowed)).reason == "started the run"
    assert may(policy, person("ann", permissions=allowed, active=False)).reason == "is disabled"


def test_a_later_stage_may_take_a_person() -> None:
    stages = (Stage("a", 1, ("group:a",)), Stage("b", 1, ("group:b",)))
    found = eligibility(MIXED, stages, person("x", "b"), requester=None, starter=None, editors=frozenset())
    assert found == Eligibility(True, 1, "")


# --- counting -----------------------------------------------------------------------------------

TWO = (Stage("review", 2, ("group:finance",)),)


def yes(name: str, stage: int = 0, *, counted: bool = True) -> Vote:
    return Vote(name, "approved", stage, counted)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([], Tally(2, 0, None, 0)),
        ([yes("a")], Tally(2, 1, None, 0)),
        ([yes("a"), yes("a")], Tally(2, 1, None, 0)),
        ([yes("a"), yes("b")], Tally(2, 2, "approved", None)),
        ([yes("a"), yes("b"), yes("c")], Tally(2, 2, "approved", None)),
        ([yes("a"), yes("b", counted=False)], Tally(2, 1, None, 0)),
        ([yes("a"), Vote("b", "rejected")], Tally(2, 1, "rejected", None)),
        ([Vote("b", "rejected")], Tally(2, 0, "rejected", None)),
        ([Vote("b", "changes_requested")], Tally(2, 0, "changes_requested", None)),
        ([Vote("b", "rejected", counted=False)], Tally(2, 0, None, 0)),
        ([Vote("b", "changes_requested"), Vote("c", "rejected")], Tally(2, 0, "rejected", None)),
        ([yes("a"), yes("b"), Vote("c", "rejected")], Tally(2, 2, "rejected", None)),
        ([yes("a"), yes("b", stage=7)], Tally(2, 1, None, 0)),
    ],
)
def test_tally(votes: list[Vote], expected: Tally) -> None:
    assert tally(TWO, votes) == expected


def test_without_a_stage_nothing_is_approved() -> None:
    assert tally((), []).outcome is None
    assert tally((), [yes("a")]).outcome is None


def test_two_stages_need_different_people_in_order() -> None:
    stages = (Stage("a", 1, ("group:a",)), Stage("b", 1, ("group:b",)))
    assert tally(stages, [yes("x")]) == Tally(2, 1, None, 1)
    assert tally(stages, [yes("x"), yes("x", 1)]) == Tally(2, 1, None, 1)
    assert tally(stages, [yes("y", 1)]) == Tally(2, 1, None, 0)
    assert tally(stages, [yes("x"), yes("y", 1)]) == Tally(2, 2, "approved", None)


votes = st.lists(
    st.builds(
        Vote,
        st.sampled_from("abcdef"),
        st.sampled_from(["approved"] * 6 + ["rejected", "changes_requested"]),
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=12,
)
plans = st.lists(st.integers(1, 4), max_size=3).map(
    lambda needs: tuple(Stage(str(i), n, ("group:g",)) for i, n in enumerate(needs))
)


@given(plans, votes, st.randoms(use_true_random=False))
def test_order_never_matters(plan: tuple[Stage, ...], cast: list[Vote], rng: object) -> None:
    mixed = list(cast)
    rng.shuffle(mixed)  # type: ignore[attr-defined]
    assert tally(plan, mixed) == tally(plan, cast)


@given(plans, votes)
def test_a_person_never_counts_twice(plan: tuple[Stage, ...], cast: list[Vote]) -> None:
    found = tally(plan, cast)
    people = {v.reviewer for v in cast if v.counted and v.outcome == "approved"}
    assert found.got <= min(len(people), found.needed)
    assert tally(plan, cast + cast) == found
    if found.outcome == "approved":
        assert found.got == found.needed > 0
        assert all(v.outcome == "approved" for v in cast if v.counted)


@given(plans, votes)
def test_uncounted_decisions_are_as_if_never_taken(plan: tuple[Stage, ...], cast: list[Vote]) -> None:
    assert tally(plan, [v for v in cast if v.counted]) == tally(plan, cast)


@given(st.integers(1, 5), votes)
def test_a_stricter_stage_never_approves_more(needed: int, cast: list[Vote]) -> None:
    loose = tally((Stage("s", needed, ("group:g",)),), cast)
    strict = tally((Stage("s", needed + 1, ("group:g",)),), cast)
    assert strict.outcome != "approved" or loose.outcome == "approved"


@given(votes)
def test_a_no_is_never_undone_by_more_decisions(cast: list[Vote]) -> None:
    for more in range(len(cast)):
        if tally(TWO, cast[:more]).outcome == "rejected":
            assert tally(TWO, cast).outcome == "rejected"
