"""The size habits of ARCHITECTURE.md that are hard limits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from durable_app.environment import BASE_DIR

FUNCTION_LINES, FILE_LINES = 70, 400


def _sources() -> Iterator[Path]:
    for package in ("approvals", "durable_app"):
        yield from (path for path in (BASE_DIR / package).rglob("*.py") if "migrations" not in path.parts)


def test_no_file_and_no_function_is_too_long():
    too_long = []
    for path in _sources():
        text = path.read_text()
        if text.count("\n") > FILE_LINES:
            too_long.append(f"{path.relative_to(BASE_DIR)}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    too_long.append(f"{path.relative_to(BASE_DIR)}: {node.name} has {lines} lines")
    assert too_long == []
