"""What all commands share: forms, words, pipes."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper

from approvals.management.output import Progress
from approvals.management.text import clean, fields, span, table, when
from approvals.services import runs
from tests.commands.conftest import Manage, shared
from tests.commands.flows import doubling

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_times_are_relative_and_have_a_zone() -> None:
    assert when((NOW - timedelta(seconds=90)).isoformat(), NOW) == "1 min 30 s ago (2026-03-01 11:58:30 UTC)"
    assert when((NOW + timedelta(days=2)).isoformat(), NOW) == "in 2 d (2026-03-03 12:00:00 UTC)"
    assert when(None, NOW) == ""


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3_661, "1 h 1 min"), (90_000, "1 d 1 h")],
)
def test_a_length_of_time(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_words_are_aligned_and_harmless() -> None:
    assert list(table(("a", "b"), [("1", None), ("long", "2")])) == ["a     b", "1", "long  2"]
    assert list(fields([("a", "1\n2"), ("none", ""), ("long", 0)])) == ["  a     1", "        2", "  long  0"]
    assert clean("a\x1b[31m\u202eb\nc\ud800") == r"a\x1b[31m\u202eb c\ud800"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        Progress(OutputWrapper(stream)).say("3 runs to move")
    assert "3 runs to move" in terminal.getvalue() and pipe.getvalue() == ""


def test_called_from_code_an_error_is_raised_as_djangos(engine: object) -> None:
    out = io.StringIO()
    with pytest.raises(CommandError, match="no such object") as refused:
        call_command("runs", "show", "0190f5c4-7d3a-7000-8000-00000000abcd", "--json", stdout=out)
    assert refused.value.returncode == 1 and '"code": "not_found"' in out.getvalue()
    with pytest.raises(CommandError, match="needs an id in full"):
        call_command("runs", "show", "x")


def test_help_is_no_error(manage: Manage) -> None:
    shown = manage("approvals", "decide", "--help")
    assert shown.code == 0 and "--digest" in shown.out and shown.err == ""


def test_without_an_input_and_into_a_pipe_that_closes(engine: object, shell: Manage, tmp_path: Path) -> None:
    for number in range(3):
        runs.start(doubling, number)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = shell("runs", "list", env=shared(tmp_path), stdout=writer, preexec_fn=lambda: os.close(0))
    finally:
        os.close(writer)
    assert ended.code == 0 and ended.err == ""
