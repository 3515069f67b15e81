"""What comes from outside while a run waits, messages and forms: checked, and kept with its secrets sealed.

Between its coming and its rest it is a *tree*: plain JSON, with a `Secret` wherever something is secret. What
is secret the schema says (`writeOnly`, or the format `password`), or the sender, who gave a model. What comes
before anybody knows its schema is sealed whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
from pydantic import Secret, TypeAdapter
from pydantic_core import from_json, to_json

from approvals.errors import RAISED_BY_AUTHORS, InvalidInput, NotSerializable, PayloadTooLarge, words_of
from approvals.limits import limits
from approvals.sealing import SECRETS, Sealer, count_secrets, unseal

type Schema = Mapping[str, Any] | bool

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def is_word(text: str) -> bool:
    """Whether a message may have this name or id."""
    return 0 < len(text) <= 200 and text.isprintable()


def tree_of(payload: Any, *, what: str) -> Any:
    """Its tree; models by the names that their schema shows.

    Raises NotSerializable, or PayloadTooLarge (what, found, limit).
    """
    try:
        shown = from_json(to_json(payload, inf_nan_mode="constants"), allow_inf_nan=False)
        tree = _with_secrets(shown, _ANY.dump_python(payload, by_alias=True, warnings=False))
        if count_secrets(tree) < count_secrets(payload):
            raise ValueError("a serializer of the type itself leaves out a secret or writes it in clear text")
        found = len(to_json(opened(tree)))
    except RAISED_BY_AUTHORS as error:  # an author's serializers may raise anything
        told = f"{type(error).__name__}: {words_of(error).partition(chr(10))[0]}"
        raise NotSerializable(what=what, type=type(payload).__name__, reason=told) from None
    if found > limits().payload_bytes:
        raise PayloadTooLarge(what=what, found=found, limit=limits().payload_bytes)
    return tree


def _with_secrets(shown: Any, given: Any) -> Any:
    """The JSON form, in which secrets are stars, with the secrets of the Python form in their places."""
    if isinstance(given, SECRETS):
        return Secret(from_json(to_json(given.get_secret_value())))
    if isinstance(shown, dict) and isinstance(given, Mapping):
        if len(shown) == len(given):
            pairs = zip(shown.items(), given.values(), strict=True)
            return {key: _with_secrets(item, other) for (key, item), other in pairs}
        if any(not isinstance(key, str) for key in given):
            raise ValueError("two keys of one object are written alike")
    if isinstance(shown, list) and not isinstance(given, str | bytes | Mapping):
        others = list(given)
        if len(others) == len(shown):
            return [_with_secrets(item, other) for item, other in zip(shown, others, strict=True)]
    return shown


def opened(tree: Any) -> Any:
    """Plain JSON, the secrets in clear text."""
    if isinstance(tree, Secret):
        return tree.get_secret_value()
    if isinstance(tree, dict):
        return {key: opened(item) for key, item in tree.items()}
    return [opened(item) for item in tree] if isinstance(tree, list) else tree


def fitted(tree: Any, schema: Schema, *, told: str) -> Any:
    """The tree, with a `Secret` also wherever the schema marks one.

    Raises InvalidInput (`told`, field, problem) if it does not fit; the problem quotes no secret.
    """
    marked = _marked(tree, schema, schema) if _marks(schema) else tree
    try:
        jsonschema.validate(opened(tree), schema)
    except jsonschema.ValidationError as error:
        quotes = error.message[:200] if not count_secrets(marked) else f"it fails {error.validator!r}"
        raise InvalidInput(told, field=error.json_path, problem=quotes) from None
    except (
        jsonschema.SchemaError
    ) as error:  # an author's pattern may be in a dialect that only pydantic reads
        problem = f"nothing can fit, because its schema is not valid: {error.message[:200]}"
        raise InvalidInput(told, field="$", problem=problem) from None
    return marked


def at_rest(tree: Any) -> str:
    """The text that is stored, and masked wherever it is shown."""
    return to_json(Sealer().seal(tree)).decode()


def read(text: str, *, keep: bool = False) -> Any:
    """What `at_rest` was given, the secrets in clear text; `keep`: as it was. Raises SealBroken."""
    return unseal(from_json(text), keep=keep)


def sealed_whole(tree: Any) -> str:
    """The text that is stored of what nobody knows the schema of yet."""
    return at_rest(Secret(at_rest(tree)))


def read_whole(text: str) -> Any:
    """The tree that `sealed_whole` was given. Raises SealBroken."""
    return read(read(text), keep=True)


# --- where the secrets are -------------------------------------------------------------------------


def _marks(schema: Schema) -> bool:
    text = json.dumps(schema)
    return '"writeOnly"' in text or '"password"' in text


def _marked(tree: Any, schema: Schema, root: Schema) -> Any:
    if tree is None or isinstance(tree, Secret):
        return tree
    apply = list(_applicable(schema, root, set()))
    if any(part.get("writeOnly") is True or part.get("format") == "password" for part in apply):
        return Secret(opened(tree))
    if isinstance(tree, dict):
        return {key: _all_marked(item, apply, key, root) for key, item in tree.items()}
    if isinstance(tree, list):
        return [_all_marked(item, apply, index, root) for index, item in enumerate(tree)]
    return tree


def _all_marked(item: Any, apply: list[Mapping[str, Any]], place: str | int, root: Schema) -> Any:
    for part in apply:
        for below in _below(part, place):
            item = _marked(item, below, root)
    return item


def _below(part: Mapping[str, Any], place: str | int) -> Iterator[Schema]:
    """The schemas that may speak of this place; rather one too many."""
    if isinstance(place, str):
        known = part.get("properties", {})
        if place in known:
            yield known[place]
        yield from part.get("patternProperties", {}).values()
        if place not in known:
            yield from (part[word] for word in _OTHERS if word in part)
        return
    first = part.get("prefixItems", [])
    yield from first[place : place + 1]
    yield from (part[word] for word in ("items", "contains", "unevaluatedItems") if word in part)


_OTHERS = ("additionalProperties", "unevaluatedProperties")
_BRANCHES = ("allOf", "anyOf", "oneOf")
_SINGLE = ("if", "then", "else")


def _applicable(schema: Any, root: Schema, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """This schema, what it refers to, and every branch of it."""
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return
    seen.add(id(schema))
    yield schema
    parts = [branch for word in _BRANCHES for branch in schema.get(word, [])]
    parts += [schema[word] for word in _SINGLE if word in schema]
    parts += schema.get("dependentSchemas", {}).values()
    if "$ref" in schema:
        parts.append(_referred(schema["$ref"], root))
    for part in parts:
        yield from _applicable(part, root, seen)


def _referred(ref: str, root: Any) -> Any:
    """What a reference within the document points at; pydantic writes no other."""
    for part in ref.removeprefix("#").split("/")[1:]:
        word = part.replace("~1", "/").replace("~0", "~")
        root = root.get(word, {}) if isinstance(root, Mapping) else {}
    return root
