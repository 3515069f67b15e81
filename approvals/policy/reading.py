"""Reading policy files: strict, every problem named at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, NoReturn, cast

from approvals.errors import InvalidPolicy
from approvals.policy import fields
from approvals.policy.conditions import condition_problems, show
from approvals.policy.values import (
    ENFORCEMENTS,
    EXCLUDABLE,
    OUTCOMES,
    RISKS,
    ROOTS,
    Match,
    Need,
    OnExpiry,
    Policy,
    Rule,
    Rung,
    Stage,
)

POLICY_KEYS: Final = (
    "slug",
    "effects",
    "match",
    "rules",
    "enforcement",
    "exclude",
    "edit",
    "respond_within",
    "remind",
    "escalate",
    "on_expiry",
    "valid_for",
    "fresh_sign_in",
)
RULE_KEYS: Final = (
    "when",
    "match",
    "automatic",
    "deny",
    "stages",
    "separate_stages",
    "comment_required",
    "reject_after",
)
STAGE_KEYS: Final = ("name", "needed", "from", "all")
MATCH_KEYS: Final = ("kind", "target", "risk")
KEYS: Final = tuple(dict.fromkeys((*POLICY_KEYS, *RULE_KEYS, *STAGE_KEYS, *MATCH_KEYS)))
"""Of a policy file at any level, in the order in which people write them."""
_ON_EXPIRY: Final[tuple[OnExpiry, ...]] = ("reject", "cancel", "escalate")
_OF_STAGES: Final = ("separate_stages", "comment_required", "reject_after")
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def parse(body: Mapping[str, Any]) -> Policy:
    """Read a policy as it is stored. Raises InvalidPolicy with every problem.

    What can be read may still make no sense: see `check`.
    """
    problems: list[str] = []
    if not isinstance(body, Mapping):
        refuse("", [f"found {show(body)}; a policy is a mapping of keys"])
    fields.keys(problems, "", body, POLICY_KEYS, required=("slug", "rules"))
    policy = Policy(
        slug=_slug(problems, body),
        effects=fields.names(problems, "effects", body.get("effects", ())),
        rules=_rules(problems, body),
        exclude=_exclude(problems, body),
        respond_within=_duration(problems, body, "respond_within"),
        on_expiry=_one_of(problems, body, "on_expiry", _ON_EXPIRY),
        valid_for=_duration(problems, body, "valid_for"),
        match=_match(problems, "match", body),
        enforcement=_one_of(problems, body, "enforcement", ENFORCEMENTS),
        edit=fields.pointers(problems, "edit", body.get("edit", ())),
        remind=_remind(problems, body),
        escalate=_escalate(problems, body),
        fresh_sign_in=_fresh_sign_in(problems, body),
    )
    if problems:
        refuse(policy.slug, problems)
    return policy


def refuse(slug: str, problems: Sequence[str]) -> NoReturn:
    """Raises InvalidPolicy."""
    raise InvalidPolicy(
        f"Policy {slug or '(no slug)'} cannot be loaded: " + "; ".join(problems),
        problems=tuple(problems),
    )


def _slug(problems: list[str], body: Mapping[str, Any]) -> str:
    value = body.get("slug")
    if isinstance(value, str) and _SLUG.fullmatch(value):
        return value
    if "slug" in body:
        needs = "needs small letters, digits, - and _, starting with a letter or digit, at most 64"
        problems.append(f"slug: found {show(value)}; {needs}")
    return ""


def _exclude(problems: list[str], body: Mapping[str, Any]) -> frozenset[str]:
    found = fields.names(problems, "exclude", body.get("exclude", EXCLUDABLE))
    fields.among(problems, "exclude", found, EXCLUDABLE)
    return frozenset(found)


def _one_of[T: str](problems: list[str], body: Mapping[str, Any], key: str, known: Sequence[T]) -> T:
    """One of these words; the first where none is said."""
    value = body.get(key, known[0])
    if isinstance(value, str) and value in known:
        return cast(T, value)
    problems.append(f"{key}: found {show(value)}; needs {', '.join(known[:-1])} or {known[-1]}")
    return known[0]


def _duration(problems: list[str], body: Mapping[str, Any], key: str) -> timedelta | None:
    return fields.duration(problems, key, body[key]) if key in body else None


def _match(problems: list[str], path: str, found: Mapping[str, Any]) -> Match:
    if "match" not in found:
        return Match()
    value = fields.mapping(problems, path, found["match"], "kind, target or risk")
    fields.keys(problems, f"{path}.", value, MATCH_KEYS)
    if isinstance(found["match"], Mapping) and not value:
        problems.append(f"{path}: found nothing in it; needs kind, target or risk (or leave it out)")
    named = {
        key: fields.some_names(problems, f"{path}.{key}", value[key], key)
        for key in MATCH_KEYS
        if key in value
    }
    fields.among(problems, f"{path}.risk", named.get("risk", ()), RISKS)
    return Match(named.get("kind", ()), named.get("target", ()), named.get("risk", ()))


def _remind(problems: list[str], body: Mapping[str, Any]) -> tuple[timedelta, ...]:
    value = fields.items(problems, "remind", body["remind"], "durations") if "remind" in body else ()
    found = [fields.duration(problems, f"remind[{i}]", item) for i, item in enumerate(value)]
    good = tuple(item for item in found if item is not None)
    if any(later <= earlier for earlier, later in pairwise(good)):
        problems.append("remind: needs durations in ascending order, each once")
    return good


def _escalate(problems: list[str], body: Mapping[str, Any]) -> tuple[Rung, ...]:
    value = fields.items(problems, "escalate", body["escalate"], "rungs") if "escalate" in body else ()
    rungs = []
    for index, item in enumerate(value):
        path = f"escalate[{index}]"
        rung = fields.mapping(problems, path, item, "after and to")
        if rung is not item:
            continue
        fields.keys(problems, f"{path}.", rung, ("after", "to"), required=("after", "to"))
        after = fields.duration(problems, f"{path}.after", rung["after"]) if "after" in rung else None
        to = fields.sources(problems, f"{path}.to", rung["to"]) if "to" in rung else ()
        if after is not None:
            rungs.append(Rung(after, to))
    if any(later.after <= earlier.after for earlier, later in pairwise(rungs)):
        problems.append("escalate: needs rungs in ascending order of after, each at a time of its own")
    return tuple(rungs)


def _fresh_sign_in(problems: list[str], body: Mapping[str, Any]) -> tuple[tuple[str, timedelta], ...]:
    """A duration for every risk, or one by risk."""
    value = body.get("fresh_sign_in", {})
    if isinstance(value, str):
        within = fields.duration(problems, "fresh_sign_in", value)
        return tuple((risk, within) for risk in RISKS) if within is not None else ()
    if not isinstance(value, Mapping) or ("fresh_sign_in" in body and not value):
        needs = "needs a duration, or a mapping of risks to durations"
        problems.append(f"fresh_sign_in: found {show(value)}; {needs}")
        return ()
    fields.keys(problems, "fresh_sign_in.", value, RISKS)
    found = {r: fields.duration(problems, f"fresh_sign_in.{r}", value[r]) for r in RISKS if r in value}
    return tuple((risk, within) for risk, within in found.items() if within is not None)


# --- rules -----------------------------------------------------------------------------------------


def _rules(problems: list[str], body: Mapping[str, Any]) -> tuple[Rule, ...]:
    value = fields.items(problems, "rules", body["rules"], "rules") if "rules" in body else ()
    return tuple(_rule(problems, f"rules[{i}]", rule) for i, rule in enumerate(value))


def _rule(problems: list[str], path: str, value: Any) -> Rule:
    if not isinstance(value, Mapping):
        problems.append(f"{path}: found {show(value)}; needs a mapping with stages, automatic or deny")
        return Rule(None, False, ())
    fields.keys(problems, f"{path}.", value, RULE_KEYS)
    when = value.get("when")
    if "when" in value:
        problems += [f"{path}.when: {p}" for p in condition_problems(when, ROOTS)]
    before = len(problems)
    automatic = fields.flag(problems, f"{path}.", value, "automatic", default=False)
    deny = fields.flag(problems, f"{path}.", value, "deny", default=False)
    if len(problems) == before:
        _answers_once(problems, path, value, automatic=automatic, deny=deny)
    comment = value.get("comment_required", ())
    comment_required = fields.names(problems, f"{path}.comment_required", comment)
    fields.among(problems, f"{path}.comment_required", comment_required, OUTCOMES)
    return Rule(
        when=when if isinstance(when, str) else None,
        automatic=automatic,
        stages=_stages(problems, f"{path}.stages", value["stages"]) if "stages" in value else (),
        match=_match(problems, f"{path}.match", value),
        deny=deny,
        comment_required=frozenset(comment_required),
        reject_after=fields.count(problems, f"{path}.reject_after", value.get("reject_after", 1)),
        separate_stages=fields.flag(problems, f"{path}.", value, "separate_stages", default=True),
    )


def _answers_once(
    problems: list[str], path: str, value: Mapping[str, Any], *, automatic: bool, deny: bool
) -> None:
    given = [
        name
        for name, is_given in (("automatic", automatic), ("deny", deny), ("stages", "stages" in value))
        if is_given
    ]
    if not given:
        problems.append(f"{path}: has neither automatic: true nor stages nor deny: true; needs one of them")
    if len(given) > 1:
        problems.append(f"{path}: has both {' and '.join(given)}; needs one of them")
    if given and "stages" not in value:
        problems += [
            f"{path}.{key}: says how people decide, but this rule asks nobody; remove it"
            for key in _OF_STAGES
            if key in value
        ]


def _stages(problems: list[str], path: str, value: Any) -> tuple[Stage, ...]:
    found = fields.items(problems, path, value, "stages")
    stages = []
    for index, stage in enumerate(found):
        name = "review" if len(found) == 1 else f"stage {index + 1}"
        stages.append(_stage(problems, f"{path}[{index}]", stage, name))
    seen: set[str] = set()
    for index, stage in enumerate(stages):
        if stage.name in seen:
            problems.append(f"{path}[{index}].name: found {show(stage.name)} a second time; name it once")
        seen.add(stage.name)
    total = sum(stage.needed for stage in stages)
    if total > fields.MAX_ITEMS:
        problems.append(f"{path}: asks for {total} approvals; at most {fields.MAX_ITEMS}")
    return tuple(stages)


def _stage(problems: list[str], path: str, value: Any, default: str) -> Stage:
    if not isinstance(value, Mapping):
        problems.append(f"{path}: found {show(value)}; needs a mapping with needed and from, or all")
        return Stage(default, ())
    name = value.get("name", default)
    if not fields.is_name(name):
        problems.append(f"{path}.name: found {show(name)}; needs a name (text)")
    if "all" not in value:
        fields.keys(problems, f"{path}.", value, STAGE_KEYS, required=("needed", "from"))
        return Stage(str(name), (_need(problems, path, value),))
    fields.keys(problems, f"{path}.", value, STAGE_KEYS)
    if "needed" in value or "from" in value:
        problems.append(f"{path}: has both all and needed or from; needs one of them")
    needs = []
    for index, item in enumerate(fields.items(problems, f"{path}.all", value["all"], "needs")):
        where = f"{path}.all[{index}]"
        need = fields.mapping(problems, where, item, "needed and from")
        if need is item:
            fields.keys(problems, f"{where}.", need, ("needed", "from"), required=("needed", "from"))
            needs.append(_need(problems, where, need))
    return Stage(str(name), tuple(needs))


def _need(problems: list[str], path: str, value: Mapping[str, Any]) -> Need:
    needed = fields.count(problems, f"{path}.needed", value.get("needed", 1))
    return Need(needed, fields.sources(problems, f"{path}.from", value["from"]) if "from" in value else ())
