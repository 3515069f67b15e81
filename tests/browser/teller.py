"""`manage.py … --json`, command after command, in a process that has started Django once.

Reads a JSON list of arguments per line, and answers each with a line: `{"code": …, "out": …, "err": …}`.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout

import django
from django.core.management import load_command_class


def call(arguments: list[str]) -> dict[str, object]:
    """One command, as a shell would call it."""
    code = 0
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            load_command_class("approvals", arguments[0]).run_from_argv(["manage.py", *arguments, "--json"])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def main() -> None:
    """Until standard input ends, which also happens when the test runner is gone."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "durable_app.settings"
    django.setup()
    for line in sys.stdin:
        print(json.dumps(call(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
