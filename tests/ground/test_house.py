"""The habits of ARCHITECTURE.md that are hard limits: sizes, and no test that sleeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from durable_app.environment import BASE_DIR

FUNCTION_LINES, FILE_LINES = 70, 400
CLOCKS = frozenset({"time", "asyncio"})
SERVERS = Path("tests/services.py")  # a program that starts servers: it may wait for them


def _files(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from (path for path in (BASE_DIR / package).rglob("*.py") if "migrations" not in path.parts)


def test_no_file_and_no_function_is_too_long():
    too_long = []
    for path in _files("approvals", "durable_app", "tests"):
        text = path.read_text()
        if text.count("\n") > FILE_LINES:
            too_long.append(f"{path.relative_to(BASE_DIR)}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    too_long.append(f"{path.relative_to(BASE_DIR)}: {node.name} has {lines} lines")
    assert too_long == []


def _sleeps(source: str) -> list[int]:
    """The lines that call, or take, `sleep` from `time` or `asyncio`, under whatever name."""
    nodes = list(ast.walk(ast.parse(source)))
    modules = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in CLOCKS
    }
    found = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr == "sleep"
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
    ]
    return found + [
        node.lineno
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        and node.module in CLOCKS
        and any(alias.name == "sleep" for alias in node.names)
    ]


def test_no_test_sleeps():
    paths = [path for path in _files("tests") if path.relative_to(BASE_DIR) != SERVERS]
    assert [f"{p.relative_to(BASE_DIR)}:{n}" for p in paths for n in _sleeps(p.read_text())] == []


def test_a_sleep_is_found_under_any_name_and_a_run_s_is_none():
    assert _sleeps("import time\nimport asyncio as a\ntime.sleep(1)\na.sleep(0)") == [3, 4]
    assert _sleeps("from time import sleep as rest") == [1]
    assert _sleeps("ctx.sleep('a while', 5)\nimport time\ntime.monotonic()") == []
