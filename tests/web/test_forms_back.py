"""Values, shown as a form and sent back by a browser that nobody touched, are the same values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import NaiveDatetime, TypeAdapter

from approvals.web import forms
from approvals.workflows.values import codec_for
from tests.web.asked import Any_, Colour, Level, Line, Loose, Nested, Plain, Times, Tree, schema_of, shown

quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)

odd = st.sampled_from("\n\r\t\0\x7f\x0b\u2028\ufeff \"'<>&{}%\\ab01")
texts = st.text(odd | st.characters(codec="utf-8"), max_size=12)
whole = st.integers(-(10**20), 10**20)
shares = st.floats(allow_nan=False, allow_infinity=False)
zones = st.sampled_from([UTC, timezone(timedelta(hours=2)), timezone(-timedelta(hours=3, minutes=30))])
moments = st.datetimes(timezones=zones).filter(lambda at: 2 < at.toordinal() < date.max.toordinal() - 2)
spans = st.timedeltas(timedelta(days=-1000), timedelta(days=1000))
lines = st.builds(Line, sku=texts, quantity=st.integers(1, 99), note=st.none() | texts)
trees = st.recursive(
    st.builds(Tree, value=whole),
    lambda below: st.builds(Tree, value=whole, below=st.lists(below, max_size=3), next=st.none() | below),
    max_leaves=12,
)
json_values = st.recursive(
    st.none() | st.booleans() | whole | texts,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3),
    max_leaves=6,
)
loose = st.fixed_dictionaries(
    {"name": texts},
    optional={
        "nick": texts,
        "lines": st.lists(lines, max_size=2),
        "best": st.none() | lines,
        "sure": st.booleans(),
    },
)
ALL: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: whole,
    bool: st.booleans(),
    int | None: st.none() | whole,
    list[int]: st.lists(whole, max_size=3),
    list[str]: st.lists(texts, max_size=3),
    list[str | None]: st.lists(st.none() | texts, max_size=3),
    list[list[bool]]: st.lists(st.lists(st.booleans(), max_size=2), max_size=2),
    dict[str, Any]: st.dictionaries(texts, json_values, max_size=3),
    Colour: st.sampled_from(Colour),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    datetime: moments,
    NaiveDatetime: st.datetimes(),
    timedelta: spans,
    Plain: st.builds(
        Plain,
        text=texts,
        body=texts,
        maybe=st.none() | texts,
        whole=whole,
        share=shares,
        price=st.decimals(allow_nan=False, allow_infinity=False),
        flag=st.booleans(),
        on_by_default=st.booleans(),
        tri=st.none() | st.booleans(),
        colour=st.sampled_from(Colour),
        level=st.sampled_from(Level),
        odd=st.sampled_from(["1", 1, True]),
        fixed=st.just("EUR"),
        number=st.none() | whole,
    ),
    Times: st.builds(
        Times,
        at=moments,
        aware=st.none() | moments,
        day=st.dates(),
        clock=st.times(),
        lasts=spans,
        id=st.uuids(),
    ),
    Loose: loose,
    Nested: st.builds(
        Nested,
        line=lines,
        maybe=st.none() | lines,
        given=lines,
        lines=st.lists(lines, max_size=3),
        more=st.none() | st.lists(st.lists(whole, max_size=2), max_size=2),
        tags=st.sets(texts, max_size=3),
        made=st.lists(whole, max_size=3),
        loose=loose,
    ),
    Tree: trees,
    Any_: st.builds(
        Any_,
        counts=st.dictionaries(texts, whole, max_size=3),
        either=whole | texts,
        both=shares | texts,
        pair=st.tuples(whole, texts),
        anything=json_values,
        tagged=st.none() | lines | trees,
    ),
}


@quick
@given(st.data())
@pytest.mark.parametrize("annotation", ALL, ids=str)
def test_a_form_sent_back_untouched_means_the_values_that_it_showed(annotation: Any, data: Any) -> None:
    value = data.draw(ALL[annotation])
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    values = adapter.dump_python(value, mode="json")
    sent = shown(annotation, values).data()
    filled = forms.tree(schema_of(annotation), sent)
    assert filled.problems == {}
    again = codec_for(annotation).accept(filled.tree, what="the form")
    assert adapter.dump_json(again) == adapter.dump_json(adapter.validate_json(adapter.dump_json(value)))
