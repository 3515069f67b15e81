"""pydantic's side of the codecs: adapters, what is in them, and keys by which annotations are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from approvals.sealing import SECRETS


def needs_sealing(adapter: TypeAdapter[Any]) -> bool:
    """Whether values of this type may hold bytes or secrets, which JSON and pydantic's own JSON do not keep."""
    return any(_seals(node) for node in _nodes(adapter.core_schema))


def schema_of(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The JSON schema of values from outside; `{}` (anything) where pydantic has none."""
    try:
        return adapter.json_schema(schema_generator=_Marking)
    except Exception:  # an author's schema hooks may raise anything; a form without a schema still works
        return {}


class _Marking(GenerateJsonSchema):
    """Says what pydantic's own schemas leave open, and forms must know.

    Every secret is marked as one (pydantic does so for SecretStr and SecretBytes, and not for Secret[T]); a
    Decimal is told from `float | str` by the format `decimal`; a moment without a zone has `"zone": "none"`.
    """

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().decimal_schema(schema), "format": "decimal"}

    def datetime_schema(self, schema: Any) -> dict[str, Any]:
        zone = {"zone": "none"} if schema.get("tz_constraint") == "naive" else {}
        return {**super().datetime_schema(schema), **zone}

    def json_or_python_schema(self, schema: Any) -> dict[str, Any]:
        found = super().json_or_python_schema(schema)
        return {**found, "writeOnly": True} if _is_generic_secret(schema) else found


def key_of(annotation: Any) -> Any:
    """Hashable, and equal only for annotations that pydantic treats alike: unions keep their order."""
    arguments = get_args(annotation)
    if not arguments:
        return _Same(annotation)
    if get_origin(annotation) is Annotated:
        return (Annotated, key_of(annotation.__origin__), *map(_Same, annotation.__metadata__))
    return (get_origin(annotation), *map(key_of, arguments))


class _Same:
    """A key for what may have no hash: equal to the same object, and to an equal one that looks alike."""

    __slots__ = ("hash", "item", "look")

    def __init__(self, item: Any) -> None:
        self.item = item
        # For a class its identity decides; anything else must look alike too: 1 and True are equal.
        self.look = "" if isinstance(item, type) else f"{type(item).__qualname__} {item!r}"
        self.hash = hash(item) if isinstance(item, type) else hash(self.look)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or self.look != other.look:
            return False
        return self.item is other.item or bool(self.item == other.item)


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every node of a core schema."""
    if isinstance(schema, dict):
        yield schema
        schema = schema.values()
    elif not isinstance(schema, list | tuple):
        return
    for part in schema:
        yield from _nodes(part)


def _seals(node: dict[str, Any]) -> bool:
    """Whether this node is of bytes or of a secret; sealing keeps what is neither too, only more slowly."""
    kind = node.get("cls")
    if node.get("type") == "bytes" or (isinstance(kind, type) and issubclass(kind, SECRETS)):
        return True
    return _is_generic_secret(node)


def _is_generic_secret(node: Any) -> bool:
    """Secret[T] names no class; like every type of pydantic's own it is known by where its serializer is."""
    writer = node.get("serialization")
    function = writer.get("function") if isinstance(writer, dict) else None
    return getattr(function, "__module__", "") == "pydantic.types"
