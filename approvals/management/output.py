"""How every command answers: one JSON document or text for a person, and an exit code.

0 done, 1 the thing asked for failed, 2 the call was wrong (CONTRACT section 4).
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    OutputWrapper,
    handle_default_options,
)
from django.db import Error as AnyDatabaseError
from django.db import connections

from approvals.errors import ApprovalsError
from approvals.management.text import clean, fields


def _started_as() -> str:
    """The words before a command's name, to be pasted where this process was started."""
    python, script = sys.executable, sys.argv[0] if sys.argv[0].endswith("manage.py") else "manage.py"
    with suppress(OSError):  # the working directory may be gone
        python = min(os.path.relpath(python), python, key=len)
    return f"{shlex.quote(python)} {shlex.quote(script)}"


MANAGE = _started_as()
FAILED, WRONG = 1, 2
INTERRUPTED = 130

# What to do next, by an error's code; one that needs a value which the error does not have is left out.
_NEXT = {
    "not_found": "{command} {overview}",
    "stale_digest": "{command} show {wait}",
    "decision_refused": "{command} show {wait}",
    "already_decided": "{command} show {wait}",
    "wait_closed": "{command} show {wait}",
    "run_conflict": "runs show {run}",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has to say. The lines are made only if a person reads them."""

    document: Mapping[str, Any]
    lines: Iterable[str] = ()
    code: int = 0


class Told(CommandError):
    """An error in the form of CONTRACT section 4; as text it says what was tried, found and needed."""

    def __init__(
        self, message: str, /, *, code: str, kind: str = "", returncode: int = FAILED, **values: Any
    ) -> None:
        super().__init__(message, returncode=returncode)
        self.values = values
        self.document = {
            "error": {**values, "type": kind or type(self).__name__, "code": code, "message": message}
        }
        self.headline = message  # without what `values` says again
        self.is_shown = False

    def lines(self, tried: str) -> list[str]:
        """For a person: what was tried and what came of it, the values, one problem per line."""
        problems = [str(each) for each in self.values.get("problems", ())]
        message = self.headline.removesuffix("; ".join(problems)).rstrip(": ")
        told = {k: v for k, v in self.values.items() if k != "problems" and str(v) not in message}
        rows = [(name.replace("_", " "), clean(value)) for name, value in told.items()]
        rows += [("problem", clean(each)) for each in problems]
        return [f"{tried}: {clean(message)}", *fields(rows)]


class WrongCall(Told):
    """The call itself was wrong: nothing was tried."""

    def __init__(self, message: str, **values: Any) -> None:
        super().__init__(message, code="wrong_call", returncode=WRONG, **values)


class Command(BaseCommand):
    """A command that says what it has to say by an `Answer`, also with `--json`."""

    requires_system_checks = ()  # `doctor` and `check` look at the settings; a decision need not
    name: ClassVar[str]
    overview: ClassVar[str] = "list"  # the verb that shows what there is

    def answer(self, options: Namespace) -> Answer:
        """Does it. Raises ApprovalsError, Told or a database error, each shown as such."""
        raise NotImplementedError

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            answer = self.answer(Namespace(**options))
            lines = [dump(answer.document)] if options["json"] else answer.lines
            for line in lines:
                self.stdout.write(line)
            self.stdout.flush()
        except (ApprovalsError, AnyDatabaseError, Told) as error:
            told = _told(error, command=self.name, overview=self.overview)
            if options["json"]:
                self.stdout.write(dump(told.document))
                told.is_shown = True
            raise told from error
        if answer.code:
            raise SystemExit(answer.code)

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        """As Django's, but an error is told in the form that was asked for, a wrong call too."""
        code = 0
        try:
            self._call(argv)
        except Told as error:
            code = error.returncode
            self._tell(error, argv)
        except BrokenPipeError:  # whoever read has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            connections.close_all()
        sys.exit(code)

    def _call(self, argv: list[str]) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError):  # a terminal that cannot show a letter shows its number
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        parser = self.create_parser(argv[0], argv[1])  # its errors are raised, since no one told it otherwise
        try:
            "\0".join(argv).encode()
            options = parser.parse_args(argv[2:])
            handle_default_options(options)
            self.execute(**vars(options))
        except UnicodeEncodeError as error:
            raise WrongCall("An argument is not UTF-8 text") from error
        except Told:
            raise
        except CommandError as error:
            help_ = " ".join([MANAGE, self.name, *_verb(argv), "--help"])
            raise WrongCall(str(error).removeprefix("Error: "), next=help_) from error

    def _tell(self, error: Told, argv: list[str]) -> None:
        if error.is_shown:
            return
        if "--json" in argv[2:]:
            self.stdout.write(dump(error.document))
            return
        for line in error.lines(" ".join([self.name, *_verb(argv)])):
            self.stderr.write(line)


class VerbCommand(Command):
    """A command with verbs: `runs list`, `runs show ID`."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

        def add(verb: str, do: Callable[[Namespace], Answer], help_: str) -> CommandParser:
            made: CommandParser = verbs.add_parser(verb, help=help_, description=help_)
            made.add_argument("--json", action="store_true", default=SUPPRESS, help="one JSON document")
            made.set_defaults(do=do)
            return made

        self.add_verbs(add)

    def add_verbs(self, add: Callable[[str, Callable[[Namespace], Answer], str], CommandParser]) -> None:
        """Calls `add(verb, method, help)` for each verb, and adds its arguments."""
        raise NotImplementedError

    def answer(self, options: Namespace) -> Answer:
        done: Answer = options.do(options)
        return done


def dump(document: Mapping[str, Any]) -> str:
    """One JSON document, in ASCII: no terminal and no locale can spoil it."""
    return json.dumps(document, indent=2, default=_plain)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _told(error: ApprovalsError | AnyDatabaseError | Told, **words: str) -> Told:
    if isinstance(error, Told):
        return error
    if isinstance(error, AnyDatabaseError):
        found = (str(error).splitlines() or [""])[0]
        next_ = f"{MANAGE} doctor; after an update, {MANAGE} migrate"
        return Told(
            "The database cannot be used", code="database", kind="DatabaseError", found=found, next=next_
        )
    values = dict(error.values)
    with suppress(KeyError):
        if error.code in _NEXT:
            next_ = _NEXT[error.code].format_map({**values, **words})
            values.setdefault("next", f"{MANAGE} {next_}")
    values = {name: value for name, value in values.items() if name not in ("code", "kind", "returncode")}
    told = Told(str(error), code=error.code, kind=type(error).__name__, **values)
    if str(error) == type(error)._default(error.values):
        told.headline = type(error)._default({})
    return told


def _verb(argv: list[str]) -> list[str]:
    return [argv[2]] if len(argv) > 2 and not argv[2].startswith("-") else []


class Progress:
    """One line on a terminal that says how far it is; nothing in a pipe."""

    def __init__(self, stream: OutputWrapper) -> None:
        self._stream = stream if stream.isatty() else None

    def say(self, what: str) -> None:
        """Replaces the line; an empty one removes it."""
        if self._stream is not None:
            self._stream.write(f"\r\033[K{what}", ending="")
            self._stream.flush()
