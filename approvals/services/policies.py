"""Loading policies: immutable versions, one current."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from django.db import transaction

from approvals import facts, policy
from approvals.errors import InvalidPolicy
from approvals.services.actors import require


@dataclass(frozen=True, slots=True)
class Loaded:
    """Which version holds now, and whether this load made it."""

    slug: str
    version: int
    changed: bool


def load(source: Mapping[str, Any] | Path | str, *, actor: Any = None) -> Loaded:
    """Stores a policy as its next version (the same text again changes nothing).

    `source`: a mapping, a path to a YAML or JSON file, or its text. Raises InvalidPolicy with every
    problem, PermissionRefused.
    """
    require(actor, "approvals.change_policy")
    parsed = read(source)
    if parsed.slug == policy.ONE_REVIEWER["slug"]:
        problem = "slug: this policy is built in and always the same; take another name"
        raise InvalidPolicy("This name is reserved", policy=parsed.slug, problems=(problem,))
    with transaction.atomic():
        version, changed = facts.publish(parsed, author=actor)
    return Loaded(version.slug, version.version, changed)


def warnings(read: policy.Policy) -> list[str]:
    """What cannot be satisfied by the people there are now: it may be loaded, and they may still come."""
    there, people = facts.staff(read)
    asked = {source for rule in read.rules for stage in rule.stages for source in stage.sources}
    gone = sorted(asked - there)
    told = [f"{source} does not exist here: nobody can decide for it" for source in gone]
    return told + policy.understaffed(read, people, gone)


class _Strict(yaml.SafeLoader):
    """A key that stands twice is refused; YAML's own loader would silently take the last."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        seen = set()
        for key, _ in node.value:
            known = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
            if known in seen:
                problem = f"the key {key.value!r} stands twice in one mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(known or id(key))
        super().flatten_mapping(node)


def read(source: Mapping[str, Any] | Path | str) -> policy.Policy:
    """A policy from where `load` takes it, checked and not stored. Raises InvalidPolicy."""
    if isinstance(source, Mapping):
        return policy.check(source)
    text, name = _text(source)
    try:
        found = yaml.load(text, Loader=_Strict)  # noqa: S506 -- a SafeLoader
    except yaml.YAMLError as error:
        raise InvalidPolicy("This cannot be read as YAML", source=name, problems=(str(error),)) from error
    if not isinstance(found, Mapping):
        problem = f"found {type(found).__name__}, needed a mapping with slug and rules"
        raise InvalidPolicy("This is no policy", source=name, problems=(problem,))
    return policy.check(found)


def _text(source: Path | str) -> tuple[str, str]:
    if isinstance(source, str) and "\n" in source:
        return source, "text"
    path = Path(source)
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPolicy(
            "The policy file cannot be read", source=str(path), problems=(str(error),)
        ) from error
