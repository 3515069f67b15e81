"""At dispatch: the policy as it was and as it is, over reviewers as they are now."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.policy import ONE_REVIEWER, Person, Policy, Revalidation, Vote, parse, revalidate
from tests.policy.make import asking, facts, id_of, parties, person, policy

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
ANN, BOB = person("ann", "finance"), person("bob", "finance")


def vote(name: str, outcome: Any = "approved", *, counted: bool = True, commented: bool = True) -> Vote:
    return Vote(id_of(name), outcome, counted=counted, commented=commented, username=name)


ANN_SAID_YES = (vote("ann"),)
BOTH_SAID_YES = (vote("ann"), vote("bob"))

ONE = asking(1, "group:finance")
TWO = asking(2, "group:finance")
AUTOMATIC = policy(rules=[{"automatic": True}])
DENY = policy(rules=[{"when": "false", "automatic": True}])


def check(
    pinned: Policy,
    current: Policy | None = None,
    *,
    votes: tuple[Vote, ...] = ANN_SAID_YES,
    people: tuple[Person, ...] = (ANN, BOB),
    now: datetime = AT,
    **keys: Any,
) -> Revalidation:
    excluded = {name: keys.pop(name) for name in ("requester", "starter", "editors") if name in keys}
    values: dict[str, Any] = {"parties": parties(**excluded), "approved_at": AT}
    return revalidate(
        pinned,
        current or pinned,
        keys.pop("about", facts()),
        votes=votes,
        people={p.id: p for p in people},
        now=now,
        **(values | keys),
    )


def refused(found: Revalidation) -> str:
    assert not found.ok
    assert not found.denied
    return found.reason


def test_holds() -> None:
    assert check(ONE) == Revalidation(True, "The approval holds.", False)
    assert check(TWO, votes=BOTH_SAID_YES).ok


@pytest.mark.parametrize(
    ("bob", "told"),
    [
        (None, "bob is no longer known"),
        (person("bob", "finance", active=False), "bob is disabled"),
        (person("bob", "support"), "bob is not in group:finance"),
    ],
)
def test_a_reviewer_who_may_no_longer_decide(bob: Person | None, told: str) -> None:
    people = (ANN,) if bob is None else (ANN, bob)
    found = check(TWO, votes=BOTH_SAID_YES, people=people)
    assert refused(found) == (
        "The approval does not hold under policy refunds as it was when this was asked:"
        f" 1 of 2 needed approvals still count ({told})."
    )
    assert check(ONE, votes=BOTH_SAID_YES, people=people).ok


def test_a_reviewer_whose_name_another_account_has_now_is_gone() -> None:
    found = check(ONE, people=(replace(person("new", "finance"), username="ann"),))
    assert "0 of 1 needed approvals still count (ann is no longer known)" in refused(found)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"requester": id_of("ann")}, "ann asked for it"),
        ({"starter": id_of("ann")}, "ann started the run"),
        ({"editors": frozenset({id_of("ann")})}, "ann edited it"),
    ],
)
def test_exclusions_hold_at_dispatch(keys: dict[str, Any], told: str) -> None:
    assert f"0 of 1 needed approvals still count ({told})" in refused(check(ONE, **keys))
    assert check(asking(1, "group:finance", exclude=[]), **keys).ok


def test_a_policy_that_was_loaded_since_asks_for_itself() -> None:
    found = refused(check(TWO, votes=(), approved_at=None, loaded_since=True))
    assert found == "Policy refunds, loaded since, asks for 2 of group:finance; nobody was asked yet."
    denied = check(DENY, votes=(), approved_at=None, loaded_since=True)
    assert denied.denied and denied.reason.endswith("(The policy was loaded since.)")


def test_stricter_now() -> None:
    assert "policy refunds as it is now: it has 1 of 2 needed approvals." in refused(check(ONE, TWO))
    assert check(ONE, TWO, votes=BOTH_SAID_YES).ok
    other = asking(1, "group:heads")
    assert "as it is now: 0 of 1 needed approvals still count (ann is not in group:heads)." in refused(
        check(ONE, other)
    )
    assert not check(asking(1, "group:finance", exclude=[]), ONE, requester=id_of("ann")).ok


def test_looser_now_does_not_help() -> None:
    assert "as it was when this was asked: it has 1 of 2" in refused(check(TWO, ONE))
    assert "as it was when this was asked" in refused(check(ONE, AUTOMATIC, votes=()))
    assert not check(ONE, asking(1, "group:finance", exclude=[]), requester=id_of("ann")).ok
    assert check(ONE, AUTOMATIC).ok


def test_automatic() -> None:
    alone = check(AUTOMATIC, votes=(), people=(), approved_at=None)
    assert alone.ok
    assert "without a person" in alone.reason
    assert "as it is now: it has 0 of 1" in refused(check(AUTOMATIC, ONE, votes=(), approved_at=None))
    assert check(AUTOMATIC, ONE).ok
    high = check(AUTOMATIC, about=facts(risk="high"))
    assert high.denied
    assert not high.ok
    assert "risk is high" in high.reason


def test_denied_by_either() -> None:
    for pinned, current, label in (
        (DENY, ONE, "as it was when this was asked"),
        (ONE, DENY, "as it is now"),
        (AUTOMATIC, DENY, "as it is now"),
        (DENY, DENY, "as it was when this was asked"),
    ):
        found = check(pinned, current, votes=BOTH_SAID_YES)
        assert found.denied
        assert not found.ok
        assert found.reason == (
            f"Policy refunds: none of its 1 rules matches; so it denies. (The policy {label}.)"
        )


def test_each_version_chooses_its_own_rule() -> None:
    small = {"when": "action.amount_minor < 5000", "automatic": True}
    tiers = policy(rules=[small, {"stages": [{"needed": 2, "from": ["group:finance"]}]}])
    assert check(tiers, ONE, about=facts({"amount_minor": 10})).ok
    assert "1 of 2" in refused(check(tiers, ONE, about=facts({"amount_minor": 5_000})))
    assert check(tiers, ONE, about=facts({})).denied


@pytest.mark.parametrize("outcome", ["rejected", "changes_requested"])
def test_a_no_stays_a_no(outcome: Any) -> None:
    votes = (*BOTH_SAID_YES, vote("carol", outcome))
    told = refused(check(ONE, votes=votes))
    assert told.endswith(f"the decision was {outcome.replace('_', ' ')}.")
    assert check(ONE, votes=(*ANN_SAID_YES, vote("carol", outcome, counted=False))).ok


def test_withdrawn_approvals_do_not_count() -> None:
    found = check(ONE, votes=(vote("ann", counted=False),))
    assert refused(found).endswith("it has 0 of 1 needed approvals.")


def test_validity() -> None:
    def limited(text: str) -> Policy:
        return asking(1, "group:finance", valid_for=text)

    four, one = limited("4h"), limited("1h")
    tick = timedelta(microseconds=1)
    assert check(four, now=AT + timedelta(hours=4) - tick).ok
    assert refused(check(four, now=AT + timedelta(hours=4))) == (
        "The approval was given at 2030-01-01T12:00:00+00:00 and is valid for 4h; that time is over."
    )
    for pinned, current in ((four, one), (one, four), (one, ONE), (ONE, one)):
        assert check(pinned, current, now=AT + timedelta(hours=1) - tick).ok
        assert "valid for 1h" in refused(check(pinned, current, now=AT + timedelta(hours=1)))
    assert check(ONE, now=AT + timedelta(days=9999)).ok


def test_never_approved() -> None:
    assert refused(check(ONE, approved_at=None)) == "Nobody has approved this yet."


def test_one_reviewer() -> None:
    one = parse(ONE_REVIEWER)
    ann = person("ann", permissions=("approvals.review",))
    assert check(one, people=(ann,)).ok
    assert "does not have permission:approvals.review" in refused(check(one, people=(ANN,)))
    assert "ann asked for it" in refused(check(one, people=(ann,), requester=id_of("ann")))


versions = st.sampled_from([ONE, TWO, AUTOMATIC, DENY, asking(1, "user:bob", valid_for="1h")])
crowds = st.lists(
    st.builds(
        person,
        st.sampled_from(["ann", "bob", "cyd", "rita"]),
        st.sampled_from(["finance", "support"]),
        active=st.booleans(),
    ),
    unique_by=lambda p: p.username,
).map(tuple)
ballots = st.lists(st.builds(vote, st.sampled_from(["ann", "bob", "cyd", "rita"]))).map(tuple)


@given(versions, versions, crowds, ballots, st.integers(0, 7200))
def test_both_must_hold(
    pinned: Policy, current: Policy, people: tuple[Person, ...], votes: tuple[Vote, ...], late: int
) -> None:
    now = AT + timedelta(seconds=late)
    both = check(pinned, current, people=people, votes=votes, now=now)
    first = check(pinned, people=people, votes=votes, now=now)
    second = check(current, people=people, votes=votes, now=now)
    assert both.ok == (first.ok and second.ok)
    assert both.denied == (first.denied or second.denied)
    assert both.ok == check(current, pinned, people=people, votes=votes, now=now).ok


@given(versions, versions, crowds, ballots)
def test_a_leaver_never_makes_it_hold(
    pinned: Policy, current: Policy, people: tuple[Person, ...], votes: tuple[Vote, ...]
) -> None:
    if not check(pinned, current, people=people, votes=votes).ok:
        for index in range(len(people)):
            rest = people[:index] + people[index + 1 :]
            assert not check(pinned, current, people=rest, votes=votes).ok
