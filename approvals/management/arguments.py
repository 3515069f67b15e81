"""What an argument may be; anything else is a wrong call, which ends before it begins."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID


def identifier(text: str) -> UUID:
    """An id in full, as every list and every document shows it."""
    try:
        return UUID(text)
    except ValueError:
        message = f"found {text[:60]!r}; needs an id in full, such as 0190f5c4-7d3a-7000-8000-00000000abcd"
        raise ArgumentTypeError(message) from None


def json_value(text: str) -> Any:
    """JSON, or @FILE with JSON in it."""
    source = file(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
    try:
        return json.loads(source, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        told = f"found {source[:60]!r}; needs JSON, or @FILE with JSON in it ({error})"
        raise ArgumentTypeError(told) from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def file(text: str) -> Path:
    """A file of UTF-8 text that can be read."""
    path = Path(text)
    try:
        path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ArgumentTypeError(f"found {text!r}; needs a file of UTF-8 text ({error})") from None
    return path


def positive(text: str) -> int:
    """A whole number from 1."""
    if text.isascii() and text.isdigit() and 0 < int(text) <= 10_000:
        return int(text)
    raise ArgumentTypeError(f"found {text[:60]!r}; needs a whole number from 1 to 10000")


def add_paging(parser: ArgumentParser) -> None:
    """`--limit N --cursor NEXT`: a page, and where the one before ended."""
    parser.add_argument("--limit", type=positive, default=50, metavar="N", help="at most so many (50)")
    parser.add_argument("--cursor", type=identifier, help="go on after this: `next` of the page before")


def page(options: Any) -> dict[str, Any]:
    """What `queries` takes of `add_paging`."""
    return {"limit": options.limit, "cursor": str(options.cursor) if options.cursor else None}


def add_person(parser: ArgumentParser, *, required: bool = False) -> None:
    """`--as USER`."""
    who = "in whose name" if required else "in whose name; without it, the installation's"
    parser.add_argument("--as", dest="person", metavar="USER", required=required, help=who)
