"""Secrets and raw bytes inside stored values.

A secret is stored as `{"$secret": "<token>"}`: Fernet under a key that HKDF derives from Django's
SECRET_KEY; SECRET_KEY_FALLBACKS still read, so the key may be rotated. Bytes are stored as
`{"$bytes": "<base64>"}`. A plain one-key object that looks like either gets a second `$`, and loses it
when read.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import from_json, to_json

MASKED = "••••••"
SECRETS = (SecretStr, SecretBytes, Secret)
PURPOSE = b"approvals: secrets in stored values, 1"

_TAGS = ("$secret", "$bytes")


class SealBroken(ValueError):
    """A stored secret cannot be read with today's SECRET_KEY or SECRET_KEY_FALLBACKS."""


class Sealer:
    """Writes one value; `sealed` counts the secrets that were encrypted on the way."""

    def __init__(self) -> None:
        self.sealed = 0

    def seal(self, value: Any) -> Any:
        """The same tree with secrets and bytes tagged; everything else is left to pydantic."""
        if isinstance(value, SECRETS):
            self.sealed += 1
            return {"$secret": _encrypt(value)}
        if isinstance(value, bytes | bytearray):
            return {"$bytes": b64encode(value).decode()}
        if isinstance(value, Mapping):
            escape = len(value) == 1
            return {_escaped(key) if escape else key: self.seal(item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset | deque):
            return [self.seal(item) for item in value]
        return value


def unseal(value: Any, *, keep: bool = False) -> Any:
    """What `Sealer.seal` was given, for pydantic to validate; `keep`: every secret still in a `Secret`.

    Raises `SealBroken`, or `ValueError` for bad base64.
    """
    if isinstance(value, list):
        return [unseal(item, keep=keep) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        return {key: unseal(item, keep=keep) for key, item in value.items()}
    ((key, item),) = value.items()
    if key == "$secret":
        return Secret(_decrypt(item)) if keep else _decrypt(item)
    if key == "$bytes":
        return b64decode(item, validate=True)
    return {_unescaped(key): unseal(item, keep=keep)}


def mask(text_or_obj: Any) -> Any:
    """A plain object for pages and JSON: every stored secret is shown as dots.

    Takes the stored text, or what was read from it. Raises `ValueError` for a text that is no JSON.
    """
    return masked(json.loads(text_or_obj) if isinstance(text_or_obj, str) else text_or_obj)


def masked(value: Any) -> Any:
    """The same of what was read already: a text is a text, whatever it looks like."""
    if isinstance(value, SECRETS):
        return MASKED
    if isinstance(value, Mapping):
        if len(value) == 1 and "$secret" in value:
            return MASKED
        return {key: masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value


def unmasked(edited: Any, stored: Any) -> Any:
    """An edited object whose dots are replaced by what is stored at the same place.

    Places are keys and positions; in a list whose length changed nothing can be placed. Raises `ValueError`
    for dots that stand for no stored secret.
    """
    if edited == MASKED:
        if isinstance(stored, dict) and len(stored) == 1 and "$secret" in stored:
            return stored
        raise ValueError("dots that stand for no stored secret; type the secret anew")
    if isinstance(edited, dict):
        known = stored if isinstance(stored, dict) else {}
        return {key: unmasked(item, known.get(key)) for key, item in edited.items()}
    if isinstance(edited, list):
        others = stored if isinstance(stored, list) and len(stored) == len(edited) else [None] * len(edited)
        return [unmasked(item, other) for item, other in zip(edited, others, strict=True)]
    return edited


def count_secrets(value: Any) -> int:
    """How many secrets a value holds, whatever its own serializers make of them."""
    if isinstance(value, SECRETS):
        return 1
    if isinstance(value, BaseModel):
        return count_secrets([*value.__dict__.values(), *(value.__pydantic_extra__ or {}).values()])
    if is_dataclass(value) and not isinstance(value, type):
        return sum(count_secrets(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return count_secrets(list(value.values()))
    if isinstance(value, list | tuple | set | frozenset | deque):
        return sum(count_secrets(item) for item in value)
    return 0


# The first byte of the clear text says what comes back: an instance (S, B) where the secret is exactly of
# pydantic's class, else what its validator takes: text (s), bytes (b) or JSON (j).


def _encrypt(secret: Any) -> str:
    inner = secret.get_secret_value()
    exact = type(secret) in (SecretStr, SecretBytes)
    if isinstance(inner, str):
        clear = (b"S" if exact else b"s") + inner.encode()
    elif isinstance(inner, bytes):
        clear = (b"B" if exact else b"b") + inner
    else:
        clear = b"j" + to_json(inner)
    return _fernet().encrypt(clear).decode()


def _decrypt(token: Any) -> Any:
    try:
        clear = _fernet().decrypt(str(token))
    except InvalidToken:
        raise SealBroken(
            "a stored secret cannot be read; keep the former SECRET_KEY in SECRET_KEY_FALLBACKS"
        ) from None
    form, inner = clear[:1], clear[1:]
    if form == b"j":
        return from_json(inner)
    if form in b"Ss":
        return SecretStr(inner.decode()) if form == b"S" else inner.decode()
    return SecretBytes(inner) if form == b"B" else inner


def _fernet() -> MultiFernet:
    return _fernet_of((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=8)
def _fernet_of(secret_keys: tuple[str | bytes, ...]) -> MultiFernet:
    return MultiFernet([Fernet(urlsafe_b64encode(_derived(key))) for key in secret_keys])


def _derived(secret_key: str | bytes) -> bytes:
    raw = secret_key if isinstance(secret_key, bytes) else secret_key.encode()
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=PURPOSE).derive(raw)


def _escaped(key: Any) -> Any:
    return (
        "$" + key if isinstance(key, str) and key.startswith("$") and "$" + key.lstrip("$") in _TAGS else key
    )


def _unescaped(key: str) -> str:
    return key[1:] if key.startswith("$$") and "$" + key.lstrip("$") in _TAGS else key
