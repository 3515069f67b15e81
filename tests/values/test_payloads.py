"""Secrets of payloads are found by their JSON schema, wherever it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, SecretBytes, SecretStr

from approvals import payloads
from approvals.errors import InvalidInput
from approvals.workflows.values import codec_for, mask

HIDDEN = "hunter2"


class Leaf(BaseModel):
    secret: SecretStr
    open: str = "open"


class Tree(BaseModel):
    leaf: Leaf | None = None
    below: list[Tree] = []
    by_name: dict[str, Tree] = {}


class Cat(BaseModel):
    kind: Literal["cat"]
    name: SecretStr


class Dog(BaseModel):
    kind: Literal["dog"]
    tag: Annotated[int, Field(json_schema_extra={"writeOnly": True})]


class Root(RootModel[list[SecretStr]]):
    pass


@dataclass
class Plain:
    secret: SecretBytes


TREE = {"leaf": {"secret": HIDDEN}, "below": [{"leaf": {"secret": HIDDEN}}], "by_name": {"a": {"below": []}}}


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [
        (Leaf, {"secret": HIDDEN, "open": "x"}),
        (Tree, TREE),
        (list[Tree], [TREE]),
        (SecretStr, HIDDEN),
        (Root, [HIDDEN, HIDDEN]),
        (Plain, {"secret": HIDDEN}),
        (tuple[int, SecretStr], [1, HIDDEN]),
        (tuple[SecretStr, ...], [HIDDEN]),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "cat", "name": HIDDEN}),
        (dict[str, SecretStr | list[SecretStr]], {"a": HIDDEN, "b": [HIDDEN], "$secret": HIDDEN}),
        (dict[str, SecretStr], {"$secret": HIDDEN}),
    ],
)
def test_sealed_where_the_schema_says_so(annotation: Any, sent: Any) -> None:
    codec = codec_for(annotation)
    tree = payloads.fitted(payloads.tree_of(sent, what="m"), codec.schema(), told="no")
    text = payloads.at_rest(tree)
    assert HIDDEN not in text and HIDDEN not in str(mask(text))
    assert payloads.read(text) == sent == payloads.opened(payloads.read_whole(payloads.sealed_whole(tree)))
    value = codec.accept(payloads.read(text), what="m")
    assert codec.accept(sent, what="m") == value
    assert payloads.opened(payloads.tree_of(value, what="m")) is not None
    assert HIDDEN not in payloads.at_rest(payloads.tree_of(value, what="m"))


def test_a_plain_field_may_be_marked_too() -> None:
    codec = codec_for(Dog)
    tree = payloads.fitted({"kind": "dog", "tag": 12345}, codec.schema(), told="no")
    assert "12345" not in payloads.at_rest(tree)
    assert codec.accept(payloads.read(payloads.at_rest(tree)), what="m").tag == 12345


def test_what_is_no_secret_stays_readable() -> None:
    tree = payloads.fitted({"secret": HIDDEN, "open": "x"}, codec_for(Leaf).schema(), told="no")
    assert mask(payloads.at_rest(tree))["open"] == "x"
    with pytest.raises(InvalidInput, match="no"):
        payloads.fitted({"open": "x"}, codec_for(Leaf).schema(), told="no")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["$secret", "$$bytes"]), inner)
    ),
    max_leaves=8,
)


@given(plain)
def test_everything_comes_back_as_it_was_sent(sent: Any) -> None:
    tree = payloads.tree_of(sent, what="m")
    assert payloads.read(payloads.at_rest(tree)) == sent
    assert payloads.read_whole(payloads.sealed_whole(tree)) == sent
