"""Policy files: what is read, what is refused, and that every problem is named."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from approvals.errors import InvalidPolicy
from approvals.policy import (
    ONE_REVIEWER,
    Match,
    Need,
    Policy,
    Rule,
    Rung,
    Stage,
    body,
    check,
    duration_text,
    parse,
)
from tests.policy.make import FINANCE, policy, problems, rule_problems, stage_problems, the_one

SAMPLE = """
slug: refunds
effects: [refund.create]          # kinds that can never run without it, besides those that name it
rules:                            # first match wins; an error in `when`, or no match, denies
  - when: action.amount_minor < 5000          # CEL over action, effect, run, requester
    automatic: true
  - when: action.amount_minor > 100000
    stages: [{name: finance, needed: 2, from: ["group:finance", "user:cfo"]}]
  - stages: [{needed: 1, from: ["group:support"]}]
exclude: [requester, starter, editor]
edit: [/amount_minor]             # what a reviewer may edit; absent: nothing
respond_within: 2d
on_expiry: reject                 # or cancel, escalate
escalate: [{after: 1d, to: ["group:heads"]}]
valid_for: 4h                     # from quorum to dispatch
"""


# --- the sample of CONTRACT -------------------------------------------------------------------


def test_sample_names_every_key_that_is_not_supported_yet() -> None:
    with pytest.raises(InvalidPolicy) as caught:
        check(yaml.safe_load(SAMPLE))
    assert [p.split(":")[0] for p in caught.value.problems] == ["edit", "escalate"]
    assert all("not supported yet" in p for p in caught.value.problems)
    assert "edit: not supported yet" in str(caught.value)
    assert "refunds" in str(caught.value)


def test_sample_is_read_whole() -> None:
    assert parse(yaml.safe_load(SAMPLE)) == Policy(
        slug="refunds",
        effects=("refund.create",),
        rules=(
            Rule("action.amount_minor < 5000", True, ()),
            Rule("action.amount_minor > 100000", False, (stage("finance", 2, "group:finance", "user:cfo"),)),
            Rule(None, False, (stage("review", 1, "group:support"),)),
        ),
        exclude=frozenset({"requester", "starter", "editor"}),
        respond_within=timedelta(days=2),
        on_expiry="reject",
        valid_for=timedelta(hours=4),
        edit=("/amount_minor",),
        escalate=(Rung(timedelta(days=1), ("group:heads",)),),
    )


def stage(name: str, needed: int, *sources: str) -> Stage:
    return Stage(name, (Need(needed, sources),))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enforcement", "soft"),
        ("enforcement", "advisory"),
        ("edit", ["/a"]),
        ("remind", ["1h"]),
        ("escalate", [{"after": "1h", "to": ["group:heads"]}]),
        ("fresh_sign_in", "15m"),
    ],
)
def test_what_nothing_obeys_yet_is_read_and_not_loaded(key: str, value: Any) -> None:
    assert policy(**{key: value}) != policy()
    assert the_one(problems(**{key: value})) == (
        f"{key}: not supported yet; remove it, it is never silently ignored"
    )


def test_escalation_at_expiry_is_not_supported_yet() -> None:
    keys = {"on_expiry": "escalate", "escalate": [{"after": "1d", "to": ["group:heads"]}]}
    assert "on_expiry: escalate is not supported yet" in problems(**keys)[-1]


# --- defaults and the canonical form ----------------------------------------------------------


def test_defaults_are_safe() -> None:
    plain = policy()
    assert plain.exclude == {"requester", "starter", "editor"}
    assert (plain.effects, plain.on_expiry) == ((), "reject")
    assert (plain.respond_within, plain.valid_for) == (None, None)
    assert policy(exclude=[]).exclude == frozenset()


def test_one_reviewer() -> None:
    one = parse(ONE_REVIEWER)
    assert one.slug == "one-reviewer"
    assert one.exclude == {"requester", "starter"}
    assert one.rules == (Rule(None, False, (stage("review", 1, "permission:approvals.review"),)),)


seconds = st.integers(1, 3650 * 86_400)
names = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=20)
sources = st.builds(lambda kind, n: f"{kind}:{n}", st.sampled_from(["group", "user"]), names)
needs = st.builds(Need, st.integers(1, 9), st.lists(sources, min_size=1, max_size=4, unique=True).map(tuple))
stages = st.builds(Stage, names, st.lists(needs, min_size=1, max_size=3).map(tuple))
lists = st.lists(names, max_size=2, unique=True).map(tuple)
risks = st.lists(st.sampled_from(["low", "medium", "high"]), max_size=3, unique=True)
matches = st.builds(Match, lists, lists, risks.map(tuple))
asking = st.builds(
    Rule,
    when=st.none() | st.just("action.amount_minor < 5000"),
    automatic=st.just(False),
    stages=st.lists(stages, min_size=1, max_size=3, unique_by=lambda s: s.name).map(tuple),
    match=matches,
    comment_required=st.frozensets(st.sampled_from(["approved", "rejected", "changes_requested"])),
    reject_after=st.integers(1, 100),
    separate_stages=st.booleans(),
)
by_itself = st.builds(
    lambda match, deny: Rule(None, not deny, (), match=match, deny=deny), matches, st.booleans()
)
moments = st.lists(seconds, max_size=3, unique=True).map(sorted)
spans = seconds.map(lambda s: timedelta(seconds=s))
policies = st.builds(
    Policy,
    slug=st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True),
    effects=st.lists(names, max_size=3, unique=True).map(tuple),
    rules=st.lists(asking | by_itself, min_size=1, max_size=3).map(tuple),
    exclude=st.frozensets(st.sampled_from(["requester", "starter", "editor"])),
    respond_within=st.none() | spans,
    on_expiry=st.sampled_from(["reject", "cancel", "escalate"]),
    valid_for=st.none() | spans,
    match=matches,
    enforcement=st.sampled_from(["hard", "soft", "advisory"]),
    edit=lists.map(lambda found: tuple(f"/{name}" for name in found)),
    remind=moments.map(lambda found: tuple(timedelta(seconds=s) for s in found)),
    escalate=moments.map(
        lambda found: tuple(Rung(timedelta(seconds=s), ("group:heads", "user:cfo")) for s in found)
    ),
    fresh_sign_in=st.lists(spans, max_size=3).map(
        lambda s: tuple(zip(("low", "medium", "high"), s, strict=False))
    ),
)


@given(policies)
def test_canonical_form_reads_back_equal(original: Policy) -> None:
    stored = json.loads(json.dumps(body(original)))
    assert parse(stored) == original
    assert body(parse(stored)) == body(original)


def test_equal_policies_have_one_canonical_form() -> None:
    short = policy(exclude=["starter", "requester", "editor"], respond_within="1w")
    long = policy(respond_within="6d24h", on_expiry="reject", effects=[])
    assert body(short) == body(long)


# --- durations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3d", timedelta(days=3)),
        ("4h", timedelta(hours=4)),
        ("30m", timedelta(minutes=30)),
        ("90s", timedelta(seconds=90)),
        ("1w", timedelta(weeks=1)),
        ("1d12h", timedelta(hours=36)),
        ("1w2d3h4m5s", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
        ("3650d", timedelta(days=3650)),
    ],
)
def test_durations(text: str, value: timedelta) -> None:
    found = policy(respond_within=text, valid_for=text)
    assert (found.respond_within, found.valid_for) == (value, value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "3",
        "d",
        "3 d",
        " 3d",
        "-3d",
        "3d4",
        "12h1d",
        "1.5h",
        "3days",
        "3D",
        "0s",
        "0d0h",
        "P3D",
        "3651d",
        "999999999w",
        "9" * 5000 + "s",
        "1d1d",
        "٣d",
        "3d\n",
        3,
        90,
        5400.0,
        True,
        None,
        timedelta(days=3),
        ["3d"],
        {},
    ],
)
@pytest.mark.parametrize("key", ["respond_within", "valid_for"])
def test_bad_durations(key: str, value: Any) -> None:
    found = the_one(problems(**{key: value}))
    assert found.startswith(f"{key}: found ")
    assert "needs a duration such as 3d" in found
    assert len(found) < 250


@given(seconds)
def test_duration_text_reads_back(count: int) -> None:
    value = timedelta(seconds=count)
    assert policy(valid_for=duration_text(value)).valid_for == value


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, [], "slug: x", 3, [{"slug": "x"}]])
def test_not_a_mapping(value: Any) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        parse(value)
    assert "a policy is a mapping" in the_one(caught.value.problems)


def test_nothing_in_it() -> None:
    with pytest.raises(InvalidPolicy) as caught:
        parse({})
    assert caught.value.problems == ("slug: missing", "rules: missing")


def test_every_problem_is_named_at_once() -> None:
    found = problems(
        slug="Refunds!",
        effects="refund.create",
        exclude=["boss"],
        respond_within="soon",
        on_expiry="explode",
        valid_for=4,
        edit=["x"],
        rules=[{"when": "action.x <", "stages": [{"needed": 0, "from": ["team:a", "group:"]}]}, {}],
    )
    starts = ["slug:", "effects:", "exclude:", "respond_within:", "on_expiry:", "valid_for:"]
    starts += ["edit:", "rules[0].when:", "rules[0].stages[0].needed:", "rules[1]:"]
    starts += ["rules[0].stages[0].from:"]
    assert all(any(p.startswith(s) for p in found) for s in starts), found
    assert sum(p.startswith("rules[0].stages[0].from:") for p in found) == 2


@pytest.mark.parametrize(
    "slug", ["", "Refunds", "-a", "_a", "a b", "a/b", "ä", "a" * 65, "a\n", None, 123, True, ["a"]]
)
def test_bad_slugs(slug: Any) -> None:
    assert the_one(problems(slug=slug)).startswith("slug: found ")


@pytest.mark.parametrize("slug", ["a", "one-reviewer", "2-of-3", "a_b", "a" * 64])
def test_good_slugs(slug: str) -> None:
    assert policy(slug=slug).slug == slug


def test_unknown_keys_at_every_level() -> None:
    assert "did you mean respond_within?" in the_one(problems(respond_witin="2d"))
    assert "unknown key; known here: slug" in the_one(problems(zzz=1))
    assert "unknown key" in the_one(problems(enforcements="soft"))
    found = the_one(rule_problems({"stages": [FINANCE], "wen": "true"}))
    assert found.startswith("rules[0].wen: unknown key; did you mean when?")
    found = the_one(stage_problems(form="x"))
    assert found.startswith("rules[0].stages[0].form: ")
    assert "did you mean from?" in found
    assert "edit: unknown key" in the_one(rule_problems({"stages": [FINANCE], "edit": []}))


def test_keys_that_yaml_read_as_something_else() -> None:
    found = yaml.safe_load("slug: a\nrules: [{stages: [{needed: 1, from: ['group:a']}]}]\non: 1\n2: x")
    with pytest.raises(InvalidPolicy) as caught:
        parse(found)
    assert [p.split(":")[0] for p in caught.value.problems] == ["true", "2"]


@pytest.mark.parametrize("key", ["effects", "exclude", "rules", "slug", "on_expiry"])
def test_a_key_with_nothing_behind_it_is_not_the_default(key: str) -> None:
    assert the_one(problems(**{key: None})).startswith(f"{key}: found nothing; needs ")


@pytest.mark.parametrize("value", ["a", {"a": 1}, 3, True])
def test_lists_must_be_lists(value: Any) -> None:
    for key in ("effects", "exclude", "rules"):
        assert "needs a list" in the_one(problems(**{key: value}))


@pytest.mark.parametrize(
    "item", ["", " a", "a ", "a\u202eb", "a\0b", "a\ud800", None, 3, True, {}, "x" * 201]
)
def test_bad_effects(item: Any) -> None:
    assert the_one(problems(effects=["ok", item])).startswith("effects[1]: found ")


def test_names_are_given_once() -> None:
    assert "effects[2]: " in the_one(problems(effects=["a", "b", "a"]))
    assert "a second time" in the_one(problems(exclude=["starter", "starter"]))
    assert "a second time" in the_one(stage_problems(**{"from": ["group:a", "group:a"]}))
    assert "at most 100" in the_one(problems(effects=[str(i) for i in range(101)]))


@pytest.mark.parametrize("name", ["reviewer", "Requester", "group:a", "editors"])
def test_bad_excludes(name: str) -> None:
    found = the_one(problems(exclude=["requester", name]))
    assert "needs one of requester, starter, editor" in found


@pytest.mark.parametrize("value", ["", "approve", "Reject", True, 1, [], {}])
def test_bad_on_expiry(value: Any) -> None:
    assert "needs reject, cancel or escalate" in the_one(problems(on_expiry=value))
    assert policy(on_expiry="cancel").on_expiry == "cancel"
