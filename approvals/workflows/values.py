"""The codecs: how authors' values become JSON text and come back, or are refused by name.

One codec per annotation, built once. Types without a secret or bytes in them are written and read by
pydantic's fast path alone; the others by way of `approvals.sealing`. Without an annotation only
plain JSON is taken.
"""

from __future__ import annotations

import inspect
from typing import Any, Never, NoReturn, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from approvals.errors import RAISED_BY_AUTHORS, InvalidInput, NotSerializable, PayloadTooLarge, words_of
from approvals.limits import limits
from approvals.sealing import MASKED, Sealer, count_secrets, mask, masked, unmasked, unseal
from approvals.workflows.adapters import key_of, needs_sealing, schema_of
from approvals.workflows.annotations import (
    effect_request_type,
    input_annotation,
    return_annotation,
    workflow_annotations,
)
from approvals.workflows.comparison import Changed, ensure_same

__all__ = [
    "MASKED",
    "Codec",
    "codec_for",
    "effect_request_type",
    "input_annotation",
    "mask",
    "masked",
    "return_annotation",
    "workflow_annotations",
]

PLAIN = (Any, object, inspect.Parameter.empty, NoReturn, Never)
CACHED_CODECS = 4096
ANNOTATE = "without an annotation only plain JSON is kept; annotate the return type"


class Codec[T]:
    """Writes and reads values of one annotation. `what` names the step, input or message in errors."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        self.plain = any(annotation is plain for plain in PLAIN)
        self._adapter: TypeAdapter[Any] | None = None
        self._sealing = False

    @property
    def name(self) -> str:
        """The annotation, as an author would recognise it."""
        return "no annotation" if self.plain else inspect.formatannotation(self.annotation)

    def check(self, *, what: str) -> None:
        """Nothing, if values of this annotation can be kept at all; raises `NotSerializable` (what, type, reason)."""
        if self.plain or self._adapter is not None:
            return
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self.annotation)
            self._sealing = needs_sealing(adapter)
        except (
            RAISED_BY_AUTHORS
        ) as error:  # whatever pydantic or an author's schema hooks raise, it names this type
            reason = f"pydantic cannot keep this type ({_told(error)})"
            raise NotSerializable(what=what, type=self.name, reason=reason) from None
        self._adapter = adapter

    def encode(self, value: T, *, what: str) -> str:
        """JSON text, fit for a text column.

        Raises `NotSerializable` for what cannot be written, and `PayloadTooLarge` (what, found, limit).
        That it comes back the same is for `roundtrip` to say.
        """
        self.check(what=what)
        try:
            data = self._dump(value)
        except RAISED_BY_AUTHORS as error:  # an author's serializers may raise anything
            kind, cause = type(value).__name__, _cause(error)
            raise NotSerializable(what=what, type=kind, reason=_told(error)) from cause
        limit = limits().payload_bytes
        if len(data) > limit:
            raise PayloadTooLarge(what=what, found=len(data), limit=limit)
        return data.decode()

    def decode(self, text: str, *, what: str) -> T:
        """The value that this text stands for. Raises `NotSerializable` if it does not fit the annotation."""
        self.check(what=what)
        try:
            value: T = self._load(text)
        except RAISED_BY_AUTHORS as error:  # an author's validators may raise anything
            raise NotSerializable(what=what, type=self.name, reason=_told(error)) from _cause(error)
        return value

    def roundtrip(self, value: T, *, what: str) -> tuple[str, T]:
        """The text and what it reads back as: what the author is given, on the first run too.

        Raises `NotSerializable` (what, type, path, reason) if value or type changed on the way, and as
        `encode` does.
        """
        text = self.encode(value, what=what)
        try:
            again = self.decode(text, what=what)
        except NotSerializable as error:
            raise NotSerializable(
                what=what, type=type(value).__name__, annotation=self.name, reason=error.values["reason"]
            ) from error.__cause__
        try:
            ensure_same(value, again)
        except Changed as changed:
            reason = f"{changed.reason}; {ANNOTATE}" if self.plain else changed.reason
            raise NotSerializable(what=what, type=changed.kind, path=changed.path, reason=reason) from None
        except RAISED_BY_AUTHORS as error:  # an author's __eq__ may raise anything
            reason = f"it cannot be compared with what came back ({_told(error)})"
            raise NotSerializable(what=what, type=type(value).__name__, reason=reason) from _cause(error)
        return text, again

    def accept(self, value: Any, *, what: str, stored: str | None = None) -> T:
        """A JSON value from outside (a message, a form, a start by API) as this type; aliases and names both fit.

        `stored` is the text of the value that this one is an edit of: dots that were shown for a secret
        stand for that secret. Raises `InvalidInput` (what; problems: a line per field, without values; `located`).
        """
        self.check(what=what)
        try:
            accepted: T = self._accepted(value, stored)
        except RAISED_BY_AUTHORS as error:  # an author's validators may raise anything
            refusal = InvalidInput(what=what, problems=_problems(error))
            refusal.located = tuple(_located(error))
            raise refusal from _cause(error)
        return accepted

    def schema(self) -> dict[str, Any]:
        """The JSON schema of values from outside; `{}` (anything) where pydantic has none.

        Raises `NotSerializable` as `check` does.
        """
        self.check(what=f"schema of {self.name}")
        return {} if self._adapter is None else schema_of(self._adapter)

    def _accepted(self, value: Any, stored: str | None) -> Any:
        data = to_json(value)
        if self._adapter is None:
            return from_json(data, allow_inf_nan=False)
        if stored is None or not self._sealing:
            return self._adapter.validate_json(data, by_alias=True, by_name=True)
        tree = unseal(unmasked(from_json(data), from_json(stored)))
        return self._adapter.validate_python(tree, strict=False, by_alias=True, by_name=True)

    def _dump(self, value: T) -> bytes:
        if self._adapter is None:
            return to_json(value, inf_nan_mode="null")
        if not self._sealing:
            return self._adapter.dump_json(value, round_trip=True, by_alias=False, warnings="none")
        sealer = Sealer()
        tree = sealer.seal(self._adapter.dump_python(value, round_trip=True, by_alias=False, warnings="none"))
        if sealer.sealed < count_secrets(value):
            raise ValueError("a serializer of the type itself leaves out a secret or writes it in clear text")
        return to_json(tree, inf_nan_mode="null")

    def _load(self, text: str) -> Any:
        if self._adapter is None:
            return from_json(text, allow_inf_nan=False)
        if not self._sealing:
            return self._adapter.validate_json(text, by_alias=False, by_name=True)
        tree = unseal(from_json(text, allow_inf_nan=False))
        return self._adapter.validate_python(tree, strict=False, by_alias=False, by_name=True)


def codec_for(annotation: Any) -> Codec[Any]:
    """The codec of this annotation, one per process. A type that cannot be kept is refused when it is used."""
    key = annotation if isinstance(annotation, type) and not get_args(annotation) else key_of(annotation)
    codec = _codecs.get(key)
    if codec is None:
        if len(_codecs) >= CACHED_CODECS:
            _codecs.clear()
        codec = _codecs.setdefault(key, Codec(annotation))
    return codec


_codecs: dict[Any, Codec[Any]] = {}


def _told(error: BaseException) -> str:
    return "; ".join(_problems(error)[:3])


def _problems(error: BaseException) -> list[str]:
    """What is wrong, without the values: an input may hold a secret."""
    if not isinstance(error, ValidationError):
        return [message for _, message in _located(error)]
    return [f"{'.'.join(map(str, place)) or '$'}: {message}" for place, message in _located(error)]


def _located(error: BaseException) -> list[tuple[tuple[str | int, ...], str]]:
    if not isinstance(error, ValidationError):
        return [((), f"{type(error).__name__}: {words_of(error).partition(chr(10))[0]}")]
    told = error.errors(include_url=False, include_context=False, include_input=False)
    return [(item["loc"], item["msg"]) for item in told]


def _cause(error: BaseException) -> BaseException | None:
    """The error to chain, unless it shows what it was given."""
    return None if isinstance(error, ValidationError | UnicodeError) else error
