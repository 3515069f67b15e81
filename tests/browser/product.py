"""The real product as a process of its own, talked to as people and scripts do: by HTTP and by `manage.py`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from approvals.testing import wait_for
from durable_app.environment import BASE_DIR
from tests.browser import teller

FLOWS = "tests.browser.flows"
READY_SECONDS, END_SECONDS = 300, 60
# Ends the product when its standard input closes, so also when the test runner was killed and can end nothing.
KEEPER = (
    'exec 3<&0; "$@" </dev/null 3<&- & site=$!; (cat <&3 >/dev/null; kill "$site" 2>/dev/null) & wait "$site"'
)


class SiteFailed(Exception):
    """The product did not come up, or a command of it failed."""


@dataclass(frozen=True, eq=False)
class Site:
    """A running installation."""

    address: str
    data_dir: Path
    log: Path
    teller: subprocess.Popen[str]

    @property
    def host(self) -> str:
        """Its name and port."""
        return urlsplit(self.address).netloc

    def passwords(self) -> dict[str, str]:
        """The log-ins that `up` has made, by name."""
        made: dict[str, str] = json.loads((self.data_dir / "people.json").read_text())
        return made

    def manage(self, *arguments: str) -> Any:
        """The JSON document of `manage.py … --json`. Raises SiteFailed with what it said."""
        assert self.teller.stdin
        assert self.teller.stdout
        self.teller.stdin.write(json.dumps(arguments) + "\n")
        self.teller.stdin.flush()
        told = json.loads(self.teller.stdout.readline() or '{"code": "no answer", "out": "", "err": ""}')
        if told["code"]:
            raise SiteFailed(f"{' '.join(arguments)}: {told['code']}: {told['out']}{told['err']}")
        return json.loads(told["out"])

    def start(self, workflow: str, given: Any, *, requester: str = "rita") -> str:
        """Starts a run; its id."""
        run = self.manage("runs", "start", workflow, "--input", json.dumps(given), "--as", requester)
        return str(run["id"])

    def approval(self, run_id: str) -> dict[str, Any]:
        """The open approval of a run, once it has asked for one."""
        return dict(wait_for(lambda: self._approval(run_id), seconds=30))

    def ask(self, workflow: str, given: Any, *, requester: str = "rita") -> dict[str, Any]:
        """Starts a run that asks people; the approval that it then waits for."""
        return self.approval(self.start(workflow, given, requester=requester))

    def decide(self, approval: Mapping[str, Any], outcome: str, *, reviewer: str, comment: str = "") -> None:
        """Decides from elsewhere than a browser."""
        who = ("--as", reviewer, "--outcome", outcome, "--digest", approval["digest"], "--comment", comment)
        self.manage("approvals", "decide", approval["id"], *who)

    def approval_now(self, approval: Mapping[str, Any]) -> dict[str, Any]:
        """An approval as it is now."""
        return dict(self.manage("approvals", "show", approval["id"]))

    def ended(self, run_id: str) -> dict[str, Any]:
        """A run, once it is completed."""
        return dict(wait_for(lambda: run if (run := self.run(run_id))["status"] == "completed" else None))

    def stopped(self, run_id: str) -> dict[str, Any]:
        """The case of a run that needs an operator, once it has one."""

        def case() -> Any:
            return next(
                (wait for wait in self.run(run_id)["waits"] if wait["kind"] == "reconciliation"), None
            )

        return dict(wait_for(case))

    def run(self, run_id: str) -> Any:
        """A run as it is now."""
        return self.manage("runs", "show", run_id)

    def _approval(self, run_id: str) -> dict[str, Any] | None:
        waits = self.run(run_id)["waits"]
        open_ones = [wait for wait in waits if wait["kind"] == "approval" and wait["status"] == "open"]
        return dict(self.manage("approvals", "show", open_ones[0]["id"])) if open_ones else None


@contextmanager
def running(base: Path, *, beside: str = "") -> Iterator[Site]:
    """`manage.py up`, from nothing, with data of its own, on a port that is free.

    `beside` names this test process where there are several. Raises SiteFailed if it does not come up or does
    not end well.
    """
    log, data_dir = base / "site.log", base / "data"
    environment = _environment(data_dir, beside)
    command = ["sh", "-c", KEEPER, "site", sys.executable, str(BASE_DIR / "manage.py"), "up", "--port", "0"]
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        address = wait_for(lambda: _address(process, log), seconds=READY_SECONDS)
        wait_for(lambda: _is_ready(process, log, address), seconds=READY_SECONDS)
        with _telling(environment, log) as told:
            site = Site(address, data_dir, log, told)
            site.manage(
                "policies", "load", str(Path(__file__).with_name("two-reviewers.yaml")), "--as", "olaf"
            )
            yield site
        assert process.stdin
        process.stdin.close()
        if code := process.wait(END_SECONDS):
            raise SiteFailed(f"up ended with {code}:\n{log.read_text()}")
    except (TimeoutError, subprocess.TimeoutExpired) as late:
        raise SiteFailed(f"{late}\n{log.read_text()}") from late
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _telling(environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", teller.__name__]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        open(log, "ab") as errors,
        subprocess.Popen(command, env=environment, stderr=errors, **pipes) as process,
    ):
        yield process


def _address(process: subprocess.Popen[bytes], log: Path) -> str | None:
    """Where it says that it listens."""
    _check(process, log)
    said = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
    return said[0] if said else None


def _is_ready(process: subprocess.Popen[bytes], log: Path, address: str) -> bool:
    _check(process, log)
    with suppress(URLError), urlopen(f"{address}/readyz", timeout=10) as answer:
        return bool(answer.status == 200)
    return False


def _check(process: subprocess.Popen[bytes], log: Path) -> None:
    if (code := process.poll()) is not None:
        raise SiteFailed(f"up ended at once, with {code}:\n{log.read_text()}")


def _environment(data_dir: Path, beside: str) -> dict[str, str]:
    """As in production; nothing of the tests' own settings, and a database of its own beside theirs."""
    ours = ("APPROVALS_", "PYTEST", "DURABLE_", "DJANGO_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kept = {name: value for name, value in kept.items() if name not in {"SECRET_KEY", "PUBLIC_URL", "DEBUG"}}
    if "DATABASE_URL" in kept:
        kept["DATABASE_URL"] = _database_of_its_own(kept["DATABASE_URL"], f"browser_{beside or 'main'}")
    if "REDIS_URL" in kept:
        server, _, taken = kept["REDIS_URL"].partition("?db=")
        kept["REDIS_URL"] = f"{server}?db={15 - int(taken or 0)}"  # a server has sixteen; tests count from 0
    mine = {"DATA_DIR": str(data_dir), "WORKFLOW_MODULES": FLOWS, "PYTHONPATH": str(BASE_DIR)}
    return {**kept, **mine, "PYTHONUNBUFFERED": "1", "LOG_LEVEL": "WARNING"}


def _database_of_its_own(url: str, name: str) -> str:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')
    return urlsplit(url)._replace(path=f"/{name}").geturl()
