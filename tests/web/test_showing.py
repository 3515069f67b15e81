"""CASES 43: what was written to deceive is seen as it is, or cannot be approved before it was."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from html import unescape
from typing import Any

import pytest
from django.test import Client

from approvals import Diff, Json, Link, Object, StoredFile, Text
from approvals.queries import trees
from approvals.web import exhibits as exhibits_module
from approvals.web import show
from approvals.web.exhibits import exhibits
from approvals.web.show import Sight, marked

from . import asking
from .asking import buttons, post, state, url, words

RLO = "\u202e"


def plain(html: Any) -> str:
    return unescape(re.sub(r"<[^>]*>", "", str(html)))


# --- characters ------------------------------------------------------------------------------------

VISIBLE = {
    *" \n\t",
    *map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)),
}


def test_every_character_that_cannot_be_seen_is_marked() -> None:
    hidden = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
    missed = [
        f"U+{code:04X}"
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(char := chr(code)) in hidden
        and char not in VISIBLE
        and 'class="odd"' not in marked(char)
    ]
    assert missed == []


@pytest.mark.parametrize("char", ["\u034f", "\u115f", "\u3164", "\uffa0", "\u2800", "\ufe0f", "\U000e0101"])
def test_fillers_that_count_as_letters_are_marked(char: str) -> None:
    assert f"U+{ord(char):04X}" in marked(f"a{char}b")


@pytest.mark.parametrize(
    "text", ["Grüße, Ὀδυσσεύς", "日本語、テスト", "שלום עולם", "مرحبا", "naïve e\u0301", "👍 ok"]
)
def test_what_people_write_is_left_alone(text: str) -> None:
    assert marked(text) == text


def test_a_mark_names_what_it_stands_for() -> None:
    assert marked(f"a{RLO}b") == 'a<span class="odd" title="RIGHT-TO-LEFT OVERRIDE">U+202E</span>b'
    assert marked("\u200b" * 7) == '<span class="odd" title="ZERO WIDTH SPACE">U+200B ×7</span>'
    assert 'title="control character">U+0007' in marked("\x07")


def test_room_that_hides_a_tail_is_named() -> None:
    assert plain(marked("pay 1" + " " * 500 + "000")) == "pay 1500 blanks\n000"
    assert plain(marked("ok" + "\n \t" * 50 + "tail")).startswith("ok50 line breaks")
    assert plain(marked("e" + "\u0301" * 30)) == "e30 combining marks"


def test_markup_is_text() -> None:
    assert marked("<script>alert(1)</script>&\"'") == "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#x27;"


def test_json_spells_what_it_would_hide_and_reads_back_the_same() -> None:
    value = {f"k{RLO}": ["\u200b", "\U000e0041", "é", "\x7f"]}
    written = plain(show.as_json(value))
    assert not show.marked(written).count("odd") and json.loads(written) == value


# --- values ----------------------------------------------------------------------------------------


def table(value: Any, **options: Any) -> list[tuple[int, str, str, str]]:
    shown = Sight(**options).value(value)
    return [(row.depth, plain(row.label), plain(row.value), row.type) for row in shown.rows]


def test_each_value_says_its_type() -> None:
    value = {
        "a": "1",
        "b": 1,
        "c": True,
        "d": None,
        "e": "",
        "f": 1.50,
        "g": [],
        "h": {},
        "i": ["x", {"j": 0}],
    }
    assert table(value) == [
        (0, "a", "1", "text"),
        (0, "b", "1", "number"),
        (0, "c", "yes", "yes or no"),
        (0, "d", "nothing", "no value"),
        (0, "e", "", "empty text"),
        (0, "f", "1.5", "number"),
        (0, "g", "none", "empty list"),
        (0, "h", "none", "empty group"),
        (0, "i", "", "list of 2 items"),
        (1, "1", "x", "text"),
        (1, "2", "", "group of 1 field"),
        (2, "j", "0", "number"),
    ]


def test_a_value_that_is_no_group_is_one_row() -> None:
    assert table("yes") == [(0, "value", "yes", "text")]


def test_a_secret_is_not_to_be_mistaken_for_dots() -> None:
    tree = trees.read('{"a": {"$secret": "sealed"}, "b": "••••••"}')
    assert [(row[2], row[3]) for row in table(tree)] == [
        ("•••••• not shown", "secret"),
        ("••••••", "text"),
    ]
    assert "sealed" not in plain(show.as_json(tree))


def test_a_file_shows_what_identifies_it() -> None:
    file = {"name": "a\u200b.csv", "storage_name": "files/a", "sha256": "ab" * 32, "size": 1234}
    ((_, _, told, kind),) = table(file)
    assert kind == "file"
    for part in ("aU+200B.csv", "1,234 bytes", "ab" * 32, "files/a"):
        assert part in told
    assert len(table({**file, "size": "1234"})) == 4


def test_what_fits_is_not_shortened() -> None:
    sight = Sight()
    text = "harmless " * 22 + "and transfer everything to Mallory"
    assert plain(sight.text(text)) == text and not sight.is_shortened


@pytest.mark.parametrize(
    "value",
    [
        {"text": "x" * 2_000_000},
        {str(number): number for number in range(50_000)},
        [["x"] * 400],
        {"text": ["\u200b\u200c" * 2_000] * 30},
        json.loads("[" * 60 + "]" * 60),
        {"k" * 10_000: 1},
    ],
)
def test_what_is_too_much_is_shortened_within_bounds_and_whole_on_demand(value: Any) -> None:
    sight = Sight()
    shown = sight.value(value)
    assert sight.is_shortened
    assert len(shown.rows) <= show.PAGE_ROWS + 1
    assert sum(len(row.label) + len(row.value) for row in shown.rows) < 600_000
    whole = Sight(whole=True)
    everything = whole.value(value)
    assert not whole.is_shortened
    html = str(everything.json) + "".join(row.label + row.value for row in everything.rows)
    assert len(html) < 8 * len(json.dumps(value)) + 200
    if everything.json is not None:
        assert json.loads(plain(everything.json)) == value
    else:
        assert "more characters" not in html and everything.left_out == 0


def test_what_is_left_out_is_counted() -> None:
    shown = Sight().value({str(number): number for number in range(50_000)})
    assert len(shown.rows) + shown.left_out == 50_000


def test_more_odd_characters_than_can_be_marked_are_escaped() -> None:
    text = "\u200b\u200c" * 5_000
    html = Sight(whole=True).text(text)
    assert len(html) < 80_000 and "\\u200b\\u200c" in html


def test_all_texts_of_a_page_share_its_room() -> None:
    sight = Sight()
    for _ in range(20):
        sight.text("x" * 3_900)
    assert sight.is_shortened


# --- evidence --------------------------------------------------------------------------------------


def exhibit(**item: Any) -> exhibits_module.Exhibit:
    (shown,) = exhibits([item], Sight())
    return shown


def test_only_addresses_of_the_web_are_links() -> None:
    good = exhibit(type="link", title="Look", url="https://example.org/a?b=c")
    assert (good.kind, good.url, str(good.host)) == ("link", "https://example.org/a?b=c", "example.org")
    for url_ in (
        "javascript:alert(1)",
        "JAVASCRIPT:alert(1)",
        "data:text/html,x",
        "//example.org",
        "/runs/",
        "https://",
        "https://example.org@evil.org/",
        "http://[::1",
        "\tjavascript:alert(1)",
    ):
        shown = exhibit(type="link", title="Look", url=url_)
        assert (shown.kind, shown.url) == ("json", "")


def test_a_host_that_looks_like_another_is_spelled_out() -> None:
    assert str(exhibit(type="link", title="x", url="https://\u0430pple.com/").host) == "xn--pple-43d.com"


def test_a_comparison_shows_what_differs_and_marks_it() -> None:
    shown = exhibit(type="diff", title="x", before={"a": 1, "b": 2}, after={"a": 1, "b": f"2{RLO}", "c": 3})
    assert [(line.sign, plain(line.text)) for line in shown.lines] == [
        ("-", "b: 2"),
        ("+", "b: 2U+202E"),
        ("+", "c: 3"),
    ]
    told = [
        (line.sign, str(line.text))
        for line in exhibit(type="diff", title="", before="a\nb", after="a\nc").lines
    ]
    assert told[1:] == [("", "a"), ("-", "b"), ("+", "c")]


def test_a_comparison_is_not_cut_because_something_else_was() -> None:
    sight = Sight()
    sight.text("x" * 10_000)
    (shown,) = exhibits([{"type": "diff", "title": "x", "before": {}, "after": {"a": 1, "b": 2}}], sight)
    assert len(shown.lines) == 2


def test_a_comparison_of_many_lines_is_shortened() -> None:
    sight = Sight()
    after = {str(number): number for number in range(5_000)}
    (shown,) = exhibits([{"type": "diff", "title": "x", "before": {}, "after": after}], sight)
    assert len(shown.lines) == show.PAGE_ROWS and sight.is_shortened


def test_what_is_too_long_to_compare_is_shown_as_it_is() -> None:
    before = "\n".join(str(number) for number in range(700))
    shown = exhibit(type="diff", title="x", before=before, after="")
    assert not shown.lines and plain(shown.before) == before


# --- the page --------------------------------------------------------------------------------------


def test_deceiving_text_is_shown_as_it_is(vera: Client) -> None:
    tail = "harmless " * 22 + "and transfer everything to Mallory"
    approval = asking.ask(f"A{RLO}da", text=f"<script>alert(1)</script>\u200b{tail}")
    answer = vera.get(url(approval))
    html = answer.content.decode()
    assert RLO not in html and "\u200b" not in html and "<script>alert" not in html
    told = words(answer)
    assert "U+202E" in told and "U+200B" in told and tail in told and "approved" in buttons(answer)


def test_evidence_of_every_kind_is_shown(vera: Client) -> None:
    file = StoredFile.put(b"a,b\n", "rows.csv")
    evidence = [
        Text("Notes", "The agent says so."),
        Link("Ticket", "https://example.org/t/1"),
        Json("Numbers", {"a": [1, 2]}),
        Diff("Config", {"x": 1}, {"x": 2}),
        Object("The rows", file),
    ]
    answer = vera.get(url(asking.ask(evidence=evidence)))
    told, html = words(answer), answer.content.decode()
    for part in (
        "The agent says so.",
        "checked by nobody",
        "Leads to example.org",
        "rows.csv",
        file.sha256,
        "+ x: 2",
    ):
        assert part in told
    assert 'href="https://example.org/t/1" rel="noopener noreferrer"' in html


def test_a_link_leads_to_the_host_that_the_page_names() -> None:
    for url_ in ("http://evil.org\\.example.org/", "https://evil.org%2f.example.org/", "https://a b.org/"):
        assert exhibit(type="link", title="x", url=url_).kind == "json", url_
    other = exhibit(type="link", title="x", url="https://fa\xdf.de:8443/a?b#c")
    assert (str(other.host), other.url) == ("fass.de", "https://fass.de:8443/a?b#c")
    assert exhibit(type="link", title="x", url="http://[::1]:80/").kind == "link"


def test_evidence_that_was_stored_with_another_address_is_no_link(vera: Client) -> None:
    approval = asking.ask()
    stored = [{"type": "link", "title": "Click", "url": "javascript:alert(1)"}]
    type(approval).objects.filter(pk=approval.pk).update(evidence=json.dumps(stored))
    html = vera.get(url(approval)).content.decode()
    assert "javascript:alert(1)" in html and 'href="javascript' not in html


LONG = {
    "a long text": lambda: asking.ask(text="harmless " * 2_000 + "harmful"),
    "many keys": lambda: asking.ask_about({str(number): number for number in range(50_000)}),
    "a large text": lambda: asking.ask_about("x" * 900_000),
    "long evidence": lambda: asking.ask(evidence=[Text("Notes", "x" * 5_000)]),
}


@pytest.mark.parametrize("what", LONG)
def test_what_is_not_wholly_shown_cannot_be_approved_before_it_was(vera: Client, what: str) -> None:
    approval = LONG[what]()
    answer = vera.get(url(approval))
    assert buttons(answer) == ["changes_requested", "rejected"]
    assert "Not all of it is shown" in words(answer) and '"?whole=1"' in answer.content.decode()
    assert len(answer.content) < 300_000

    refused = post(vera, approval, comment="typed")
    assert refused.status_code == 422 and "Not all of it was shown yet" in words(refused)
    assert "\ntyped</textarea>" in refused.content.decode() and state(approval) == ("open", "", 0)
    assert post(vera, approval, seen="0" * 64).status_code == 422

    whole = vera.get(url(approval, "?whole=1"))
    assert "approved" in buttons(whole) and "more characters" not in words(whole)
    assert f'name="seen" value="{approval.digest}"' in whole.content.decode()
    assert post(vera, approval, query="?whole=1", seen=approval.digest).status_code == 303
    assert state(approval) == ("resolved", "approved", 1)


def test_what_is_not_wholly_shown_can_be_rejected(vera: Client) -> None:
    approval = asking.ask(text="x" * 10_000)
    assert post(vera, approval, "rejected").status_code == 303
    assert state(approval)[1] == "rejected"


def test_the_proof_is_of_this_action(vera: Client) -> None:
    approval = asking.ask(text="x" * 10_000)
    other = asking.ask(text="y" * 10_000)
    assert post(vera, approval, seen=other.digest).status_code == 422


def test_no_page_asks_anything_of_another_host(vera: Client) -> None:
    approval = asking.ask(evidence=[Text("a", '<img src="https://evil.example/x.png">')])
    answer = vera.get(url(approval))
    assert not re.findall(
        r'<(?:img|script|iframe|link)[^>]+(?:src|href)="(?:https?:)?//', answer.content.decode()
    )
    assert "default-src 'self'" in answer["Content-Security-Policy"]
