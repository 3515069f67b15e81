"""Conditions in CEL over plain JSON values.

The evaluator is native code. It holds the interpreter lock, has no budget of its own, and overflows
the stack (ending the process) on values or expressions nested thousands deep: hence the limits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import cel

MAX_CONDITION: Final = 1000  # characters
_MAX_DEPTH, _MAX_NODES, _MAX_STEPS = 64, 100_000, 4_000_000
_FUNCTIONS: Final = frozenset(
    {
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "string",
        "int",
        "uint",
        "double",
        "duration",
        "timestamp",
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    }
)
_LITERAL: Final = re.compile(r"""[rR](?:'[^']*'|"[^"]*")|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_MACRO: Final = re.compile(r"\b(?:all|exists|exists_one|filter)\s*\(\s*(\w+)\s*,")
_PARENS: Final = re.compile(_MACRO.pattern + r"|\(|\)")


class ConditionError(Exception):
    """A condition cannot be evaluated over these values; the text reads after "because"."""


def show(value: Any) -> str:
    """A value as a problem quotes it."""
    if value is None:
        return "nothing"
    text = ""
    try:
        for part in json.JSONEncoder().iterencode(value):
            text += part
            if len(text) > 60:  # YAML's aliases may make a few lines into more than any memory holds
                break
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def condition_problems(text: Any, names: Collection[str]) -> list[str]:
    """What is wrong with a condition over these names, before it ever runs."""
    if not isinstance(text, str) or not text.strip():
        return [f"found {show(text)}; needs a CEL condition (text)"]
    if len(text) > MAX_CONDITION:
        return [f"found {len(text)} characters; at most {MAX_CONDITION}"]
    if not all(c.isprintable() or c in "\n\t" for c in text):
        return ["found characters that cannot be seen; remove them"]
    bare = _LITERAL.sub("''", text)
    if "//" in bare or any(quotes in text for quotes in ("'''", '"""')):
        return ["found a comment or triple quotes; comment in YAML (#) and quote once"]
    try:
        program = _compile(text)
    except ConditionError as error:
        return [f"found {show(text)}; {error}"]
    bound = {match.group(1) for match in _MACRO.finditer(bare)}
    unknown = sorted({*program.variables()} - bound - {*names})
    problems = [f"unknown name {name}; known: {', '.join(names)}" for name in unknown]
    unknown = sorted({name for name in program.functions() if name.isidentifier()} - _FUNCTIONS)
    known = ", ".join(sorted(_FUNCTIONS))
    problems += [f"unknown function {name}; known: {known}" for name in unknown]
    if re.search(r"\bmap\s*\(", bare):
        problems.append("map is not available here; use all, exists, exists_one or filter")
    if _nesting(text) > 2:
        problems.append("tests lists within lists within lists; at most two levels")
    return problems


def condition_holds(text: str, values: Mapping[str, Any]) -> bool:
    """Evaluate a condition; whatever is not a clear true or false is a ConditionError."""
    program, budget = _compile(text), [_MAX_NODES]
    plain = {name: _plain(value, budget, _MAX_DEPTH) for name, value in values.items()}
    size = _MAX_NODES - budget[0] + len(text) // 2
    if size ** _nesting(text) > _MAX_STEPS:
        raise ConditionError("the values are too large for a test of lists within lists")
    try:
        result = program.execute(plain)
    except BaseException as error:
        if not _from_evaluator(error):
            raise
        raise ConditionError(_explain(error, text)) from None
    if not isinstance(result, bool):
        raise ConditionError(f"its result is a {type(result).__name__}, not true or false")
    return result


def _from_evaluator(error: BaseException) -> bool:
    """Its panics are no Exceptions; an interrupt, or the engine leaving, is none of our business."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@lru_cache(maxsize=512)
def _compile(text: str) -> cel.Program:
    if len(text) > MAX_CONDITION:
        raise ConditionError(f"it has {len(text)} characters, at most {MAX_CONDITION}")
    import cel  # brings half a second of imports that most processes never need

    try:
        return cel.compile(text)
    except BaseException as error:
        if not _from_evaluator(error):
            raise
        found = str(error).partition("ERROR: <input>:")[2].splitlines()
        raise ConditionError(
            f"it is not valid CEL: {found[0][:160] if found else 'it cannot be read'}"
        ) from error


@lru_cache(maxsize=512)
def _nesting(text: str) -> int:
    """How deep tests of lists are nested within each other."""
    opened: list[bool] = []
    deepest = 0
    for match in _PARENS.finditer(_LITERAL.sub("''", text)):
        if match.group() == ")":
            if opened:
                opened.pop()
            continue
        opened.append(match.group() != "(")
        deepest = max(deepest, sum(opened))
    return deepest


def _plain(value: Any, budget: list[int], depth: int) -> Any:
    """Plain JSON within limits. Integers beyond 64 bits would silently become floats: they are
    wrapped so that equality stays exact and anything else is an error."""
    budget[0] -= 1 + (len(value) // 100 if isinstance(value, str) else 0)
    if budget[0] < 0 or depth < 0:
        raise ConditionError("the values are too large or too deeply nested")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ConditionError("a key is not text")
        return {key: _plain(item, budget, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, budget, depth - 1) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return {"integer beyond 64 bits": hex(value)}
    if value is None or isinstance(value, str | int | float):
        return value
    raise ConditionError(f"a value is a {type(value).__name__}, not plain JSON")


def _explain(error: BaseException, text: str) -> str:
    """Never the evaluator's own text: it may quote values that are masked elsewhere."""
    match error:
        case KeyError(args=(str(name),)) if re.search(rf"\b{re.escape(name)}\b", text):
            return f"there is no field {name}"
        case KeyError():
            return "there is no such field"
        case TypeError():
            return "it compares or combines values of different kinds"
        case ZeroDivisionError():
            return "it divides by zero"
        case OverflowError():
            return "a number is too large"
        case IndexError():
            return "a list is too short"
        case _:
            return "it failed on these values"
