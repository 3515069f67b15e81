"""What decisions come to: needs, stages, rejections; and that matching them to people is exact."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.policy import Need, Parties, Person, Rule, Stage, Tally, Vote, says_something, tally
from approvals.policy.matching import assign
from tests.policy.make import id_of, person, policy

GROUPS = "abc"
EVERYBODY = {p.id: p for p in (person(n, *GROUPS) for n in "pqrstu")}
ANY = policy()


def rule(*stages: Sequence[tuple[int, str]], **keys: Any) -> Rule:
    """Each stage by its needs, as how many of which groups."""
    made = tuple(
        Stage(f"stage {i}", tuple(Need(n, tuple(f"group:{g}" for g in groups)) for n, groups in needs))
        for i, needs in enumerate(stages)
    )
    return Rule(None, False, made, **keys)


def yes(*names: str, **keys: Any) -> list[Vote]:
    return [Vote(id_of(name), "approved", **keys) for name in names]


def no(*names: str) -> list[Vote]:
    return [Vote(id_of(name), "rejected") for name in names]


def changes(name: str) -> list[Vote]:
    return [Vote(id_of(name), "changes_requested")]


def count(rule: Rule, votes: Iterable[Vote], people: Iterable[Person] = EVERYBODY.values()) -> Tally:
    return tally(ANY, rule, votes, {p.id: p for p in people}, Parties())


TWO = rule([(2, "a")])


@pytest.mark.parametrize(
    ("votes", "got", "outcome"),
    [
        ([], 0, None),
        (yes("p"), 1, None),
        (yes("p", "p"), 1, None),
        (yes("p", "q"), 2, "approved"),
        (yes("p", "q", "r"), 2, "approved"),
        (yes("p") + yes("q", counted=False), 1, None),
        (yes("p") + no("q"), 1, "rejected"),
        (no("q"), 0, "rejected"),
        (changes("q"), 0, "changes_requested"),
        (changes("q") + no("r"), 0, "rejected"),
        (yes("p", "q") + no("r"), 2, "rejected"),
        (yes("p", "q") + changes("r"), 2, "changes_requested"),
        (yes("p", "nobody"), 1, None),
        ([Vote(id_of("q"), "rejected", counted=False)], 0, None),
    ],
)
def test_one_stage(votes: list[Vote], got: int, outcome: Any) -> None:
    expected = Tally(2, got, outcome, 0 if outcome is None else None, ((got,),))
    assert count(TWO, votes) == expected
    assert count(TWO, votes[::-1]) == expected


def test_without_a_stage_nothing_is_approved() -> None:
    assert count(rule(), yes("p")).outcome is None


def test_stages_are_met_in_order() -> None:
    both = rule([(1, "a")], [(1, "b")])
    people = (person("ann", "a"), person("bob", "b"), person("cyd", "a", "b"))
    assert count(both, yes("ann"), people) == Tally(2, 1, None, 1, ((1,), (0,)))
    assert count(both, yes("bob"), people) == Tally(2, 1, None, 0, ((0,), (1,)))
    assert count(both, yes("cyd"), people) == Tally(2, 1, None, 1, ((1,), (0,)))
    assert count(both, yes("ann", "bob"), people).outcome == "approved"
    for pair in (("cyd", "ann"), ("ann", "cyd"), ("cyd", "bob"), ("bob", "cyd")):
        assert count(both, yes(*pair), people).outcome == "approved", pair


def test_one_person_serves_two_stages_only_where_they_are_not_separate() -> None:
    both = rule([(1, "a")], [(1, "b")])
    assert count(both, yes("p")).outcome is None
    assert count(replace(both, separate_stages=False), yes("p")).outcome == "approved"
    twice = rule([(2, "a")], separate_stages=False)
    assert count(twice, yes("p")).outcome is None


def test_needs_of_a_stage_are_met_by_different_people_always() -> None:
    for separate in (True, False):
        both = rule([(1, "a"), (1, "b")], separate_stages=separate)
        assert count(both, yes("p")) == Tally(2, 1, None, 0, ((1, 0),))
        assert count(both, yes("p", "q")).outcome == "approved"


def test_overlapping_needs_are_matched_and_not_greedily_filled() -> None:
    """CASE 38: two of a and one of b; one person is in both."""
    overlap = rule([(2, "a"), (1, "b")])
    people = (person("ann", "a"), person("bob", "a", "b"), person("cyd", "a"))
    for order in itertools.permutations(("ann", "bob", "cyd")):
        assert count(overlap, yes(*order), people).outcome == "approved"
    assert count(overlap, yes("ann", "bob"), people).outcome is None


@pytest.mark.parametrize("quorum", [1, 2, 3])
def test_so_many_must_reject(quorum: int) -> None:
    strict = rule([(1, "a")], reject_after=quorum)
    names = "pqrs"[:quorum]
    assert count(strict, no(*names)).outcome == "rejected"
    assert count(strict, no(*names[1:])).outcome is None
    assert count(strict, no(*names[1:], *names[1:])).outcome is None
    assert count(strict, no(*names[1:]) + yes("u")).outcome == "approved"


def test_who_rejects_approves_nothing() -> None:
    assert count(rule([(1, "a")], reject_after=2), yes("p") + no("p")).outcome is None


def test_an_approval_counts_while_its_reviewer_may_decide_and_a_no_stays() -> None:
    left = {"group": person("p"), "disabled": person("p", "a", active=False)}
    for who in left.values():
        assert count(TWO, yes("p", "q"), [who, EVERYBODY[id_of("q")]]).got == 1
        assert count(TWO, no("p"), [who]).outcome == "rejected"
    assert count(TWO, no("p"), []).outcome == "rejected"
    by = Parties(requester=id_of("p"), starter=id_of("q"), editors=frozenset({id_of("r")}))
    assert tally(ANY, TWO, yes("p", "q", "r"), EVERYBODY, by).got == 0
    lenient = replace(ANY, exclude=frozenset())
    assert tally(lenient, TWO, yes("p", "q", "r"), EVERYBODY, by).outcome == "approved"


def test_an_approval_without_the_comment_it_needs_does_not_count() -> None:
    careful = rule([(1, "a")], comment_required=frozenset({"approved", "rejected"}))
    assert count(careful, yes("p", commented=False)).got == 0
    assert count(careful, yes("p")).outcome == "approved"
    assert count(careful, [Vote(id_of("p"), "rejected", commented=False)]).outcome == "rejected"


@pytest.mark.parametrize(
    ("comment", "says"),
    [("", False), (" \n\t", False), ("\u200b\u202e", False), ("a", True), ("👍", True), (".", True)],
)
def test_a_comment_that_nobody_can_see_says_nothing(comment: str, says: bool) -> None:
    assert says_something(comment) is says


# --- matching ---------------------------------------------------------------------------------------


type Met = frozenset[frozenset[int]]


@cache
def after(before: Met, wanted_by: frozenset[int]) -> Met:
    """By trying everything: which wants can be met together, once one more person is there whom these want."""
    return before | {done | {want} for done in before for want in wanted_by - done}


def met(wants: Sequence[frozenset[str]]) -> Met:
    found: Met = frozenset({frozenset()})
    for name in sorted(frozenset[str]().union(*wants)):
        found = after(found, frozenset(i for i, want in enumerate(wants) if name in want))
    return found


SIX = "pqrstu"


def test_matching_is_brute_force_for_six_people_and_four_needs() -> None:
    """A world says which of four needs each of six people may serve. All there are, up to the people's names."""
    columns = [frozenset(c) for n in range(5) for c in itertools.combinations(range(4), n)]
    worlds = 0
    for world in itertools.combinations_with_replacement(columns, 6):
        wants = [frozenset(p for p, column in zip(SIX, world, strict=True) if i in column) for i in range(4)]
        served = assign(wants)
        chosen = [p for p in served if p is not None]
        assert len(set(chosen)) == len(chosen)
        assert all(p is None or p in want for p, want in zip(served, wants, strict=True))
        done = frozenset(i for i, p in enumerate(served) if p is not None)
        assert done == best(met(wants)), world
        worlds += 1
    assert worlds == 54_264


@cache
def best(possible: Met) -> frozenset[int]:
    """The most wants that can be met together; of several such, earlier ones first."""
    return max(possible, key=lambda done: (len(done), [i in done for i in range(4)]))


def test_who_is_met_does_not_depend_on_names() -> None:
    """The same world under other names meets the same needs."""
    wants = [frozenset("pq"), frozenset("p"), frozenset("qr"), frozenset("q")]
    for order in itertools.permutations("pqr"):
        names = dict(zip("pqr", order, strict=True))
        served = assign([frozenset(names[p] for p in want) for want in wants])
        assert [p is not None for p in served] == [True, True, True, False]


def test_a_long_chain_of_needs() -> None:
    """A need that moves a hundred others along."""
    wants = [frozenset({f"{i:03}", f"{i + 1:03}"}) for i in range(99)] + [frozenset({"000"})]
    assert None not in assign(wants)


# --- properties -------------------------------------------------------------------------------------

crowds = st.lists(st.sets(st.sampled_from(GROUPS)), min_size=6, max_size=6).map(
    lambda groups: {p.id: p for p in (person(n, *g) for n, g in zip(SIX, groups, strict=True))}
)
ballots = st.lists(
    st.builds(
        Vote,
        st.sampled_from([id_of(n) for n in SIX]),
        st.sampled_from(["approved"] * 6 + ["rejected", "changes_requested"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)
single = st.tuples(st.integers(1, 3), st.text(GROUPS, min_size=1, max_size=2))
plans = st.lists(st.lists(single, min_size=1, max_size=2), max_size=3)
rules = st.builds(
    lambda plan, comments, after, separate: rule(
        *plan, comment_required=frozenset(comments), reject_after=after, separate_stages=separate
    ),
    plans,
    st.sets(st.sampled_from(["approved", "rejected"])),
    st.integers(1, 3),
    st.booleans(),
)


@given(rules, ballots, crowds, st.randoms(use_true_random=False))
def test_order_never_matters(asked: Rule, cast: list[Vote], people: dict[str, Person], rng: Any) -> None:
    mixed, others = list(cast), list(people.items())
    rng.shuffle(mixed)
    rng.shuffle(others)
    assert tally(ANY, asked, mixed, dict(others), Parties()) == tally(ANY, asked, cast, people, Parties())


@given(rules, ballots, crowds)
def test_a_person_never_counts_twice(asked: Rule, cast: list[Vote], people: dict[str, Person]) -> None:
    found = tally(ANY, asked, cast, people, Parties())
    assert tally(ANY, asked, cast + cast, people, Parties()) == found
    voters = {v.reviewer for v in cast if v.counted and v.outcome == "approved"}
    assert all(sum(stage) <= len(voters) for stage in found.progress)
    if asked.separate_stages:
        assert found.got <= len(voters)
    if found.outcome == "approved":
        assert found.got == found.needed > 0


@given(rules, ballots, crowds)
def test_uncounted_decisions_are_as_if_never_taken(
    asked: Rule, cast: list[Vote], people: dict[str, Person]
) -> None:
    counted = [v for v in cast if v.counted]
    assert tally(ANY, asked, counted, people, Parties()) == tally(ANY, asked, cast, people, Parties())


def stricter(asked: Rule) -> list[Rule]:
    """Each way to make a rule stricter by one."""
    found = [
        replace(asked, reject_after=max(1, asked.reject_after - 1)),
        replace(asked, separate_stages=True),
        replace(asked, comment_required=asked.comment_required | {"approved"}),
        replace(asked, stages=(*asked.stages, Stage("more", (Need(1, ("group:a",)),)))),
        replace(asked, stages=(Stage("more", (Need(1, ("group:a",)),)), *asked.stages)),
    ]
    for i, stage in enumerate(asked.stages):
        need = stage.needs[0]
        for other in (replace(need, needed=need.needed + 1), replace(need, sources=need.sources[:1])):
            tighter = replace(stage, needs=(other, *stage.needs[1:]))
            found.append(replace(asked, stages=(*asked.stages[:i], tighter, *asked.stages[i + 1 :])))
        added = replace(stage, needs=(*stage.needs, Need(1, ("group:b",))))
        found.append(replace(asked, stages=(*asked.stages[:i], added, *asked.stages[i + 1 :])))
    return found


@given(rules.filter(lambda r: bool(r.stages)), ballots, crowds)
def test_a_stricter_rule_never_approves_more(
    asked: Rule, cast: list[Vote], people: dict[str, Person]
) -> None:
    if tally(ANY, asked, cast, people, Parties()).outcome != "approved":
        for tighter in stricter(asked):
            assert tally(ANY, tighter, cast, people, Parties()).outcome != "approved"


@given(rules, ballots, crowds)
def test_more_noes_never_approve_more(asked: Rule, cast: list[Vote], people: dict[str, Person]) -> None:
    if tally(ANY, asked, cast, people, Parties()).outcome != "approved":
        for name in SIX:
            more = tally(ANY, asked, cast + no(name), people, Parties())
            assert more.outcome != "approved"


@given(rules, ballots, crowds)
def test_a_leaver_never_approves(asked: Rule, cast: list[Vote], people: dict[str, Person]) -> None:
    if tally(ANY, asked, cast, people, Parties()).outcome != "approved":
        for gone in people:
            rest = {i: p for i, p in people.items() if i != gone}
            assert tally(ANY, asked, cast, rest, Parties()).outcome != "approved"


@given(rules, ballots, crowds)
def test_approved_means_that_people_can_be_given_out(
    asked: Rule, cast: list[Vote], people: dict[str, Person]
) -> None:
    """Against brute force: each slot of each stage a person of its own."""
    found = tally(ANY, asked, cast, people, Parties())
    if found.outcome in ("rejected", "changes_requested") or not asked.stages:
        return
    noes = {v.reviewer for v in cast if v.counted and v.outcome == "rejected"}
    voters = {
        v.reviewer
        for v in cast
        if v.counted and v.outcome == "approved" and (v.commented or "approved" not in asked.comment_required)
    } - noes
    wants = [
        [
            frozenset(i for i in voters if not people[i].groups.isdisjoint(s[6:] for s in need.sources))
            for need in stage.needs
            for _ in range(need.needed)
        ]
        for stage in asked.stages
    ]
    together = [[want for stage in wants for want in stage]] if asked.separate_stages else wants
    possible = all(frozenset(range(len(group))) in met(group) for group in together)
    assert (found.outcome == "approved") is possible
