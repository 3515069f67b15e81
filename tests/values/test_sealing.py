"""Secrets are encrypted at rest and masked where they are shown."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from approvals.canonical import canonical_bytes
from approvals.errors import InvalidInput, NotSerializable
from approvals.workflows.values import MASKED, codec_for, mask
from tests.values.models import Login, Shows, ShowsAlways, Strict

HIDDEN = "hunter2-Ünique"


class Payment(BaseModel):
    login: Login
    by_name: dict[str, SecretStr]
    either: SecretStr | None


class Special(SecretStr):
    pass


def login() -> Login:
    return Login(
        user="ann", password=SecretStr(HIDDEN), born=Secret[date](date(2000, 1, 2)), more=[SecretStr(HIDDEN)]
    )


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (SecretStr, SecretStr(HIDDEN)),
        (SecretBytes, SecretBytes(b"\xff" + HIDDEN.encode())),
        (Secret[str], Secret[str](HIDDEN)),
        (Special, Special(HIDDEN)),
        (Login, login()),
        (list[Login], [login()]),
        (Payment, Payment(login=login(), by_name={"$secret": SecretStr(HIDDEN)}, either=SecretStr(HIDDEN))),
        (Strict, Strict(day=date(2026, 1, 1), raw=b"\xff", secret=SecretStr(HIDDEN))),
        (Shows, Shows(password=SecretStr(HIDDEN))),
        (dict[str, str | SecretStr], {"$secret": "clear", "$$secret": SecretStr(HIDDEN)}),
    ],
)
def test_encrypted_at_rest(annotation: Any, value: Any) -> None:
    text, again = codec_for(annotation).roundtrip(value, what="input")
    assert HIDDEN not in text
    assert HIDDEN not in json.dumps(mask(text), ensure_ascii=False)
    assert "hunter2" not in canonical_bytes(value).decode()
    assert again == value
    assert codec_for(annotation).decode(text, what="input") == value


def test_masked() -> None:
    codec = codec_for(Login)
    shown = mask(codec.encode(login(), what="input"))
    assert shown == {"user": "ann", "password": MASKED, "key": MASKED, "born": MASKED, "more": [MASKED]}
    assert mask(["a", {"b": SecretStr("x")}, {"$secret": "token"}]) == ["a", {"b": MASKED}, MASKED]


def test_a_secret_that_a_serializer_would_show_is_refused() -> None:
    with pytest.raises(NotSerializable, match="clear text") as caught:
        codec_for(ShowsAlways).encode(ShowsAlways(password=SecretStr(HIDDEN)), what="input")
    assert HIDDEN not in str(caught.value)


@pytest.mark.parametrize("annotation", [dict[str, Any], Any], ids=["dict", "none"])
def test_a_secret_where_nobody_declared_one_is_refused(annotation: Any) -> None:
    codec = codec_for(annotation)
    with pytest.raises(NotSerializable, match="SecretStr"):
        codec.roundtrip({"password": SecretStr(HIDDEN)}, what="input")


def test_errors_do_not_tell() -> None:
    class Positive(BaseModel):
        secret: SecretStr
        count: int

    codec = codec_for(Positive)
    for bad in ({"secret": 5, "count": HIDDEN}, {"secret": SecretStr(HIDDEN), "count": HIDDEN}):
        with pytest.raises(NotSerializable) as caught:
            codec.roundtrip(bad, what="input")
        assert HIDDEN not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises(NotSerializable):
        codec_for(SecretStr).encode(SecretStr("\ud800"), what="input")


def test_the_key_may_be_rotated(settings: Any) -> None:
    codec = codec_for(SecretStr)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "the first key", []
    text = codec.encode(SecretStr(HIDDEN), what="input")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "the second key", ["the first key"]
    assert codec.decode(text, what="input") == SecretStr(HIDDEN)
    newer = codec.encode(SecretStr(HIDDEN), what="input")
    settings.SECRET_KEY_FALLBACKS = []
    assert codec.decode(newer, what="input") == SecretStr(HIDDEN)
    with pytest.raises(NotSerializable, match="SECRET_KEY_FALLBACKS"):
        codec.decode(text, what="input")


def test_an_edit_keeps_the_secrets_that_were_shown_as_dots() -> None:
    codec = codec_for(Login)
    text = codec.encode(login(), what="action")
    edited = {**mask(text), "user": "bob", "password": "new"}
    expected = login().model_copy(update={"user": "bob", "password": SecretStr("new")})
    assert codec.accept(edited, what="action", stored=text) == expected
    for bad in (
        {**edited, "more": [MASKED, MASKED]},
        {**edited, "user": MASKED},
        {**edited, "key": {"$secret": "x"}},
    ):
        with pytest.raises(InvalidInput):
            codec.accept(bad, what="action", stored=text)


@given(
    st.dictionaries(
        st.sampled_from(["$secret", "$$secret", "$bytes", "$$$bytes", "$", "a"]), st.binary() | st.text()
    )
)
def test_plain_objects_never_pass_for_sealed_ones(value: dict[str, Any]) -> None:
    assert codec_for(dict[str, str | bytes]).roundtrip(value, what="input")[1] == value
