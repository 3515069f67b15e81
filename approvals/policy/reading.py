"""Reading policy files: strict, every problem named at once; and the canonical form."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn

from approvals.errors import InvalidPolicy
from approvals.policy.conditions import condition_problems, show
from approvals.policy.values import EXCLUDABLE, ROOTS, OnExpiry, Policy, Rule, Stage

_LATER: Final = ("edit", "escalate")  # keys of CONTRACT that a later issue brings
_POLICY_KEYS: Final = (
    "slug",
    "effects",
    "rules",
    "exclude",
    "respond_within",
    "on_expiry",
    "valid_for",
)
_RULE_KEYS: Final = ("when", "automatic", "stages")
_STAGE_KEYS: Final = ("name", "needed", "from")
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SOURCE: Final = re.compile(r"(?:group|user):\S(?:.{0,148}\S)?|permission:\w+\.\w+")
_UNITS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION: Final = re.compile("".join(rf"(?:([0-9]{{1,9}}){unit})?" for unit in _UNITS))
_MAX_SECONDS: Final = 3650 * 86_400
_MAX_ITEMS: Final = 100


def parse(body: Mapping[str, Any]) -> Policy:
    """Read a policy file; every problem is named at once."""
    problems: list[str] = []
    if not isinstance(body, Mapping):
        _refuse("", [f"found {show(body)}; a policy is a mapping of keys"])
    _check_keys(problems, "", body, _POLICY_KEYS, required=("slug", "rules"))
    policy = Policy(
        slug=_slug(problems, body),
        effects=_texts(problems, "effects", body.get("effects", ())),
        rules=_rules(problems, body),
        exclude=_exclude(problems, body.get("exclude", EXCLUDABLE)),
        respond_within=_duration(problems, "respond_within", body),
        on_expiry=_on_expiry(problems, body.get("on_expiry", "reject")),
        valid_for=_duration(problems, "valid_for", body),
    )
    if problems:
        _refuse(policy.slug, problems)
    return policy


def body(policy: Policy) -> dict[str, Any]:
    """The canonical form: JSON-able, every default written out, and `parse` reads it back equal."""
    written: dict[str, Any] = {
        "slug": policy.slug,
        "effects": list(policy.effects),
        "rules": [_rule_body(rule) for rule in policy.rules],
        "exclude": sorted(policy.exclude),
        "on_expiry": policy.on_expiry,
    }
    if policy.respond_within is not None:
        written["respond_within"] = duration_text(policy.respond_within)
    if policy.valid_for is not None:
        written["valid_for"] = duration_text(policy.valid_for)
    return written


def duration_text(value: timedelta) -> str:
    """A duration as the policy file writes it: 1d12h."""
    seconds, parts = int(value.total_seconds()), []
    for unit, size in list(_UNITS.items())[1:]:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _rule_body(rule: Rule) -> dict[str, Any]:
    written: dict[str, Any] = {} if rule.when is None else {"when": rule.when}
    if rule.automatic:
        return written | {"automatic": True}
    stages = [{"name": s.name, "needed": s.needed, "from": list(s.sources)} for s in rule.stages]
    return written | {"stages": stages}


def _refuse(slug: str, problems: Sequence[str]) -> NoReturn:
    raise InvalidPolicy(
        f"Policy {slug or '(no slug)'} cannot be loaded: " + "; ".join(problems),
        problems=tuple(problems),
    )


def _check_keys(
    problems: list[str],
    path: str,
    found: Mapping[Any, Any],
    known: Sequence[str],
    *,
    required: Collection[str] = (),
) -> None:
    for key in found:
        where = f"{path}{key}" if isinstance(key, str) else f"{path}{show(key)}"
        near = difflib.get_close_matches(str(key), known, n=1)
        if key in known:
            continue
        if not path and key in _LATER:
            problems.append(f"{where}: not supported yet; remove it, it is never silently ignored")
        elif near:
            problems.append(f"{where}: unknown key; did you mean {near[0]}?")
        else:
            problems.append(f"{where}: unknown key; known here: {', '.join(known)}")
    problems += [f"{path}{key}: missing" for key in required if key not in found]


def _slug(problems: list[str], found: Mapping[str, Any]) -> str:
    value = found.get("slug")
    if isinstance(value, str) and _SLUG.fullmatch(value):
        return value
    if "slug" in found:
        needs = "needs small letters, digits, - and _, starting with a letter or digit, at most 64"
        problems.append(f"slug: found {show(value)}; {needs}")
    return ""


def _texts(problems: list[str], path: str, value: Any) -> tuple[str, ...]:
    """A list of different, visible names."""
    if not isinstance(value, list | tuple):
        problems.append(f"{path}: found {show(value)}; needs a list")
        return ()
    if len(value) > _MAX_ITEMS:
        problems.append(f"{path}: found {len(value)} entries; at most {_MAX_ITEMS}")
        return ()
    good: list[str] = []
    for index, item in enumerate(value):
        if not _is_name(item):
            problems.append(f"{path}[{index}]: found {show(item)}; needs a name (text)")
        elif item in good:
            problems.append(f"{path}[{index}]: found {show(item)} a second time; name it once")
        else:
            good.append(item)
    return tuple(good)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value == value.strip()


def _exclude(problems: list[str], value: Any) -> frozenset[str]:
    names = _texts(problems, "exclude", value)
    needs = f"needs one of {', '.join(EXCLUDABLE)}"
    problems += [f"exclude: found {show(n)}; {needs}" for n in names if n not in EXCLUDABLE]
    return frozenset(names)


def _on_expiry(problems: list[str], value: Any) -> OnExpiry:
    if value == "reject" or value == "cancel":
        return "cancel" if value == "cancel" else "reject"
    if value == "escalate":
        problems.append("on_expiry: escalate is not supported yet; needs reject or cancel")
    else:
        problems.append(f"on_expiry: found {show(value)}; needs reject or cancel")
    return "reject"


def _duration(problems: list[str], key: str, found: Mapping[str, Any]) -> timedelta | None:
    if key not in found:
        return None
    value = found[key]
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    sizes = zip(match.groups(), _UNITS.values(), strict=True) if match else ()
    seconds = sum(int(count) * size for count, size in sizes if count)
    if 0 < seconds <= _MAX_SECONDS:
        return timedelta(seconds=seconds)
    needs = "needs a duration such as 3d, 4h, 30m, 90s, 1w or 1d12h, at most 3650d"
    problems.append(f"{key}: found {show(value)}; {needs}")
    return None


def _rules(problems: list[str], found: Mapping[str, Any]) -> tuple[Rule, ...]:
    value = found.get("rules")
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MAX_ITEMS:
        if "rules" in found:
            needs = f"needs a list of 1 to {_MAX_ITEMS} rules"
            problems.append(f"rules: found {show(value)}; {needs}")
        return ()
    always = next((i for i, r in enumerate(value) if isinstance(r, Mapping) and "when" not in r), len(value))
    problems += [
        f"rules[{i}]: can never match, because rules[{always}] has no `when` and always matches"
        for i in range(always + 1, len(value))
    ]
    return tuple(_rule(problems, f"rules[{i}]", rule) for i, rule in enumerate(value))


def _rule(problems: list[str], path: str, value: Any) -> Rule:
    if not isinstance(value, Mapping):
        problems.append(f"{path}: found {show(value)}; needs a mapping with stages or automatic")
        return Rule(None, False, ())
    _check_keys(problems, f"{path}.", value, _RULE_KEYS)
    when, automatic = value.get("when"), value.get("automatic", False)
    if "when" in value:
        problems += [f"{path}.when: {p}" for p in condition_problems(when, ROOTS)]
    if not isinstance(automatic, bool):
        problems.append(f"{path}.automatic: found {show(automatic)}; needs true (or leave it out)")
    elif automatic and "stages" in value:
        problems.append(f"{path}: has both automatic and stages; needs one of them")
    elif not automatic and "stages" not in value:
        problems.append(f"{path}: has neither automatic: true nor stages; needs one of them")
    stages = _stages(problems, f"{path}.stages", value["stages"]) if "stages" in value else ()
    return Rule(when if isinstance(when, str) else None, automatic is True, stages)


def _stages(problems: list[str], path: str, value: Any) -> tuple[Stage, ...]:
    if not isinstance(value, list | tuple) or not value:
        problems.append(f"{path}: found {show(value)}; needs a list with one stage")
        return ()
    if len(value) > 1:
        problems.append(f"{path}: found {len(value)} stages; more than one is not supported yet")
    return tuple(_stage(problems, f"{path}[{i}]", stage) for i, stage in enumerate(value))


def _stage(problems: list[str], path: str, value: Any) -> Stage:
    if not isinstance(value, Mapping):
        problems.append(f"{path}: found {show(value)}; needs a mapping with needed and from")
        return Stage("", 1, ())
    _check_keys(problems, f"{path}.", value, _STAGE_KEYS, required=("needed", "from"))
    name, needed = value.get("name", "review"), value.get("needed", 1)
    if not _is_name(name):
        problems.append(f"{path}.name: found {show(name)}; needs a name (text)")
    if isinstance(needed, bool) or not isinstance(needed, int) or not 0 < needed <= _MAX_ITEMS:
        needs = f"needs a whole number from 1 to {_MAX_ITEMS}"
        problems.append(f"{path}.needed: found {show(needed)}; {needs}")
        needed = 1
    sources = _sources(problems, f"{path}.from", value["from"]) if "from" in value else ()
    if sources and len(sources) < needed and all(s.startswith("user:") for s in sources):
        problems.append(
            f"{path}.needed: found {needed}, but from names only {len(sources)} different users;"
            " this can never be satisfied"
        )
    return Stage(str(name), needed, sources)


def _sources(problems: list[str], path: str, value: Any) -> tuple[str, ...]:
    before = len(problems)
    sources = _texts(problems, path, value)
    if not sources and len(problems) == before:
        problems.append(f"{path}: found an empty list; needs at least one source")
    needs = "needs group:NAME, user:NAME or permission:APP.CODENAME"
    problems += [
        f"{path}: found {show(source)}; {needs}" for source in sources if not _SOURCE.fullmatch(source)
    ]
    return sources
