"""What a JSON schema asks for, as things that a form can show: one shape per field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import quote

type Kind = Literal[
    "nothing",
    "text",
    "line",
    "moment",
    "duration",
    "integer",
    "number",
    "decimal",
    "check",
    "choice",
    "secret",
    "file",
    "json",
    "group",
    "rows",
]

type Schema = Mapping[str, Any]

_SIMPLE: Mapping[str, Kind] = {
    "integer": "integer",
    "number": "number",
    "boolean": "check",
    "null": "nothing",
}

DEEPEST = 6
"""Groups and lists within each other; what lies deeper is written as JSON."""


class Absent:
    """No value at all, which None is not."""


ABSENT: Final = Absent()

_ANNOTATIONS = ("title", "description", "default")
_STRINGS: Mapping[str, Kind] = {
    "date-time": "moment",
    "duration": "duration",
    "binary": "text",
    "decimal": "decimal",
    "stored-file": "file",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One value that is asked for; `name` is its field's name in the posted form."""

    kind: Kind
    spec: Schema
    """Its schema with references and `or null` taken away."""
    root: Schema
    name: str
    label: str
    required: bool
    nullable: bool
    within: tuple[str, ...] = ()
    """The definitions that it lies in, itself included."""
    depth: int = 0

    @property
    def default(self) -> Any:
        """What is taken if nothing is said; ABSENT if the schema tells none."""
        return self.spec.get("default", ABSENT)

    @property
    def optional(self) -> bool:
        """May be left out altogether, in a way that no value of its own can express."""
        return self.nullable or (not self.required and self.default is ABSENT)

    @property
    def text(self) -> bool:
        """Whether an empty text is a value of it."""
        return self.kind == "text"

    def children(self) -> Iterator[tuple[str, Shape]]:
        """The fields of a group, by key."""
        required = self.spec.get("required", ())
        for key, schema in self.spec.get("properties", {}).items():
            name = f"{self.name}.{quote(key, safe='').replace('.', '%2E')}"
            yield key, self._below(schema, name, _label(key, schema), required=key in required)

    def item(self, index: str) -> Shape:
        """What one row of a list asks for."""
        schema = self.spec.get("items", {})
        return self._below(schema, f"{self.name}.{index}", self.label, required=True)

    def recurses(self) -> bool:
        """Whether its rows are of a kind that it lies in itself."""
        return bool({*_named(self.spec.get("items", {}), self.root)} & {*self.within})

    def _below(self, schema: Any, name: str, label: str, *, required: bool) -> Shape:
        below = shape(schema, self.root, name, label, required=required)
        again = self.kind != "rows" and bool({*below.within} & {*self.within})
        deep = self.depth + 1 >= DEEPEST
        if below.kind in ("group", "rows") and (again or deep):
            below = replace(below, kind="json")
        return replace(below, within=(*self.within, *below.within), depth=self.depth + 1)


def shape(schema: Any, root: Schema, name: str, label: str, *, required: bool = True) -> Shape:
    """The shape of one schema; `root` is the document that its references point into."""
    spec, names = _resolved(schema, root)
    branches = spec.get("anyOf")
    nullable = False
    if isinstance(branches, list) and any(_is_null(branch) for branch in branches):
        nullable = True
        rest = [branch for branch in branches if not _is_null(branch)]
        if len(rest) == 1 and isinstance(rest[0], Mapping):
            around = {key: value for key, value in spec.items() if key in _ANNOTATIONS}
            spec, more = _resolved({**rest[0], **around}, root)
            names = (*names, *more)
    kind = _kind(spec)
    if kind == "nothing" or (kind == "json" and not {*spec} - {*_ANNOTATIONS}):
        nullable = True  # anything at all: none, too
    return Shape(kind, spec, root, name, label, required, nullable, within=names)


def whole(shape: Shape) -> dict[str, Any]:
    """The schema of one shape with every definition that it refers to, to be read by itself."""
    found: dict[str, Any] = {}
    pending: list[Any] = [shape.spec]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            ref = part.get("$ref")
            if isinstance(ref, str) and ref.startswith("#/$defs/") and (word := ref[8:]) not in found:
                found[word] = shape.root.get("$defs", {}).get(word, {})
                pending.append(found[word])
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)
    own = {key: value for key, value in shape.spec.items() if key not in ("$defs", "default")}
    return {**own, "$defs": found} if found else own


def _resolved(schema: Any, root: Schema) -> tuple[Schema, tuple[str, ...]]:
    """The schema that references lead to, what stands beside them laid over it, and their names."""
    spec: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
    names: list[str] = []
    while True:
        alone = spec.get("allOf")
        if isinstance(alone, list) and len(alone) == 1 and isinstance(alone[0], Mapping):
            spec = {**alone[0], **{key: value for key, value in spec.items() if key != "allOf"}}
        ref = spec.get("$ref")
        if not isinstance(ref, str) or ref in names:
            return spec, tuple(names)
        names.append(ref)
        target = root.get("$defs", {}).get(ref.removeprefix("#/$defs/"), {})
        spec = {**target, **{key: value for key, value in spec.items() if key != "$ref"}}


def _named(schema: Any, root: Schema) -> tuple[str, ...]:
    return shape(schema, root, "", "").within


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _kind(spec: Schema) -> Kind:
    if spec.get("writeOnly") is True or spec.get("format") == "password":
        return "secret"
    if "const" in spec or "enum" in spec:
        return "choice"
    if (special := spec.get("format")) in ("decimal", "stored-file"):
        return _STRINGS[special]
    match spec.get("type"):
        case "object" if _is_closed(spec):
            return "group"
        case "array" if "items" in spec and "prefixItems" not in spec:
            return "rows"
        case "string":
            return _STRINGS.get(spec["format"], "line") if "format" in spec else "text"
        case str() as word:
            return _SIMPLE.get(word, "json")
    return "json"


def _is_closed(spec: Schema) -> bool:
    """Whether an object's keys are those it names, so that one field each will do."""
    return "properties" in spec and not any(
        spec.get(word) for word in ("additionalProperties", "patternProperties", "propertyNames")
    )


def _label(key: str, schema: Any) -> str:
    """An author's own title, else the key in plain words: pydantic's titles Say It Like This."""
    title = schema.get("title") if isinstance(schema, Mapping) else None
    if isinstance(title, str) and title and title.lower() != key.replace("_", " ").strip().lower():
        return title
    return worded(key)


def worded(key: str) -> str:
    """`amount_minor` as `Amount minor`."""
    words = key.replace("_", " ").strip() or key
    return words[:1].upper() + words[1:]
