"""Reading one value of a policy file. What is wrong is added to `problems`, by its path; reading goes on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from approvals.policy.conditions import show
from approvals.policy.durations import duration_of

MAX_ITEMS: Final = 100
_SOURCE: Final = re.compile(r"(?:group|user):\S(?:.{0,148}\S)?|permission:\w+\.\w+")
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)+")


def keys(
    problems: list[str],
    path: str,
    found: Mapping[Any, Any],
    known: Sequence[str],
    *,
    required: Collection[str] = (),
) -> None:
    """Names each key that nobody would read, and each that is missing."""
    for key in found:
        if key in known:
            continue
        where = f"{path}{key}" if isinstance(key, str) else f"{path}{show(key)}"
        near = difflib.get_close_matches(str(key), known, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        problems.append(f"{where}: unknown key; {meant}known here: {', '.join(known)}")
    problems += [f"{path}{key}: missing" for key in required if key not in found]


def mapping(problems: list[str], path: str, value: Any, of: str) -> Mapping[Any, Any]:
    """A mapping; an empty one for what is none."""
    if isinstance(value, Mapping):
        return value
    problems.append(f"{path}: found {show(value)}; needs a mapping with {of}")
    return {}


def items(problems: list[str], path: str, value: Any, of: str) -> Sequence[Any]:
    """A list with something in it."""
    if isinstance(value, list | tuple) and 0 < len(value) <= MAX_ITEMS:
        return value
    problems.append(f"{path}: found {show(value)}; needs a list of 1 to {MAX_ITEMS} {of}")
    return ()


def is_name(value: Any) -> bool:
    """Whether it is a visible text in one line."""
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value == value.strip()


def names(problems: list[str], path: str, value: Any) -> tuple[str, ...]:
    """A list of different, visible names; it may be empty."""
    if not isinstance(value, list | tuple):
        problems.append(f"{path}: found {show(value)}; needs a list")
        return ()
    if len(value) > MAX_ITEMS:
        problems.append(f"{path}: found {len(value)} entries; at most {MAX_ITEMS}")
        return ()
    good: list[str] = []
    for index, item in enumerate(value):
        if not is_name(item):
            problems.append(f"{path}[{index}]: found {show(item)}; needs a name (text)")
        elif item in good:
            problems.append(f"{path}[{index}]: found {show(item)} a second time; name it once")
        else:
            good.append(item)
    return tuple(good)


def some_names(problems: list[str], path: str, value: Any, of: str) -> tuple[str, ...]:
    """The same, with something in it; a single one may stand without its list."""
    before = len(problems)
    found = names(problems, path, [value] if isinstance(value, str) else value)
    if not found and len(problems) == before:
        problems.append(f"{path}: found an empty list; needs at least one {of}")
    return found


def among(problems: list[str], path: str, found: Sequence[str], known: Sequence[str]) -> None:
    """Names each that is not one of these."""
    needs = f"needs one of {', '.join(known)}"
    problems += [f"{path}: found {show(name)}; {needs}" for name in found if name not in known]


def sources(problems: list[str], path: str, value: Any) -> tuple[str, ...]:
    """Who is asked."""
    if isinstance(value, str):
        problems.append(f"{path}: found {show(value)}; needs a list")
        return ()
    found = some_names(problems, path, value, "source")
    needs = "needs group:NAME, user:NAME or permission:APP.CODENAME"
    problems += [
        f"{path}: found {show(source)}; {needs}" for source in found if not _SOURCE.fullmatch(source)
    ]
    return found


def pointers(problems: list[str], path: str, value: Any) -> tuple[str, ...]:
    """JSON pointers to parts of the action."""
    found = names(problems, path, value)
    needs = "needs a JSON pointer such as /amount_minor or /lines/0 (in a key, ~1 is / and ~0 is ~)"
    problems += [f"{path}: found {show(p)}; {needs}" for p in found if not _POINTER.fullmatch(p)]
    return found


def flag(problems: list[str], path: str, found: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """True or false."""
    value = found.get(key, default)
    if isinstance(value, bool):
        return value
    other = "false" if default else "true"
    problems.append(f"{path}{key}: found {show(value)}; needs {other} (or leave it out)")
    return default


def count(problems: list[str], path: str, value: Any) -> int:
    """A number of people."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_ITEMS:
        problems.append(f"{path}: found {show(value)}; needs a whole number from 1 to {MAX_ITEMS}")
        return 1
    return value


def duration(problems: list[str], path: str, value: Any) -> timedelta | None:
    """How long."""
    found = duration_of(value)
    if found is None:
        needs = "needs a duration such as 3d, 4h, 30m, 90s, 1w or 1d12h, at most 3650d"
        problems.append(f"{path}: found {show(value)}; {needs}")
    return found
