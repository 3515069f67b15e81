"""`manage.py demo`: the main job on real input, headless, with its worker killed at the worst instant.

One worker dies by SIGKILL after it stored the draft and before it stored the receipt. Another notices by
itself, looks the draft up and goes on; the run then waits for a person with nothing running for it, is
approved from the command line, and ends. Everything is counted in the world, not only in the journal.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.core.management.base import OutputWrapper
from django.db import DatabaseError, connection, transaction

from approvals import clock
from approvals.management.timeline import timeline
from approvals.models import Worker
from approvals.services import runs
from durable_app.up import MANAGE, end, prepare
from durable_app.workflows import objects
from durable_app.workflows.publishing import MakePublic, UploadDraft
from durable_app.workflows.research import ResearchRequest, research_and_publish

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
FAULT = {"APPROVALS_FAULT": "performed:1", "APPROVALS_ALLOW_FAULTS": "1"}


class DemoFailed(Exception):
    """Something did not hold, or took too long; the message says what."""


def run_elsewhere(say: Callable[[str], object]) -> int:
    """Runs the demo in an installation of its own, thrown away unless something failed; its exit code."""
    workspace = tempfile.mkdtemp(prefix="durable-demo-")
    environment = {**os.environ, "DATA_DIR": workspace}
    demo: list[str | Path] = [sys.executable, MANAGE, "demo", "--here"]
    child = subprocess.Popen(demo, env=environment, start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # the child tidies up and ends; only then do we
        signal.signal(number, lambda *_: child.terminate())
    if (code := child.wait()) == 0:
        shutil.rmtree(workspace)
        return 0
    say(f"What happened is kept in {workspace}")
    return code if code > 0 else 128 - code  # as a shell says it


def run_here(out: OutputWrapper) -> None:
    """Runs the demo in this installation. Raises DemoFailed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as cleanup:
        Demo(out, cleanup).run()


class Demo:
    """One run of the demo: what is seen is told, what does not hold raises DemoFailed."""

    def __init__(self, out: OutputWrapper, cleanup: contextlib.ExitStack) -> None:
        self.out, self.cleanup = out, cleanup
        self.started = time.monotonic()
        self.logs = Path(tempfile.mkdtemp(prefix="demo-", dir=_data_dir()))
        self.run_id = ""

    def run(self) -> None:
        """The whole of it."""
        self.tell(f"data in {settings.DATA_DIR}, database {connection.settings_dict['NAME']}")
        prepare()
        self.tell("database migrated, people and policies are there")
        first, second = self.start_workers()
        self.start_run(first, second)
        died_at = self.see_it_die(first)
        approval = self.see_it_suspended(died_at)
        self.approve(approval)
        self.see_it_completed()
        end(second)
        self.conclude()

    # --- the acts -------------------------------------------------------------------------------------

    def start_workers(self) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
        """Two workers, both ready; the first will kill itself."""
        if others := [worker.name for worker in _alive()]:
            raise DemoFailed(f"Other workers use this database and would take the run: {', '.join(others)}")
        first, second = self.worker("A", **FAULT), self.worker("B")
        for process in (first, second):
            self.until("the workers are ready", lambda pid=process.pid: _ready(pid))  # type: ignore[misc]
        self.tell("workers A and B are ready; A will kill itself once the draft is stored")
        return first, second

    def start_run(self, first: subprocess.Popen[bytes], second: subprocess.Popen[bytes]) -> None:
        """Rita starts the run, and A takes it: B is held still for just as long."""
        rita = User.objects.get(username="rita")
        with _held_still(second):
            run = runs.start(research_and_publish, ResearchRequest(), requester=rita)
            self.run_id = str(run.id)
            self.tell(f"run {self.run_id} started by rita")
            claimed = self.until("worker A takes the run", lambda: self.entry("run.claim"))
        if f":{first.pid}:" not in json.dumps(claimed):
            raise DemoFailed(f"Another worker than A took the run: {claimed}")
        self.tell("worker A has it; worker B is idle")

    def see_it_die(self, first: subprocess.Popen[bytes]) -> datetime:
        """When A was killed: the peer has acted, no receipt is stored."""
        self.until("worker A kills itself", lambda: first.poll() is not None)
        died_at = clock.now()
        if first.returncode != -signal.SIGKILL:
            raise DemoFailed(f"Worker A ended with {first.returncode} instead of SIGKILL.{self.tail()}")
        self.tell("worker A is gone by SIGKILL: the draft is stored, its receipt is not")
        return died_at

    def see_it_suspended(self, died_at: datetime) -> dict[str, Any]:
        """B noticed, looked the draft up and went on to the question to people; the open approval."""
        lost = self.until("worker B notices", lambda: self.entry("run.lose_lease"))
        seconds = max(0.0, (_at(lost) - died_at).total_seconds())
        self.tell(f"worker lost, noticed by B after {seconds:.1f} s")
        self.until("worker B looks the draft up", lambda: self.entry("effect.confirm"))
        self.tell("worker B looked the draft up: it is there, so nothing is sent again")
        wait = self.until("the run asks for approval", self.open_approval)
        self.until("the run is suspended", lambda: self.show()["status"] == "suspended")
        if worker := self.show()["worker"]:
            raise DemoFailed(f"The run waits for people, and worker {worker} still holds it.")
        self.tell("suspended for approval: no worker, thread or connection is held for it")
        return _command("approvals", "show", wait["id"])

    def approve(self, approval: dict[str, Any]) -> None:
        """Vera decides from the command line, on what she is shown."""
        for line in (approval["title"], approval["summary"], f"digest {approval['digest']}"):
            self.out.write(f"           {line}")
        arguments = ["--as", "vera", "--outcome", "approved", "--digest", approval["digest"]]
        decided = subprocess.run(
            [sys.executable, MANAGE, "approvals", "decide", approval["id"], *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        if decided.returncode:
            raise DemoFailed(
                f"approvals decide: exit {decided.returncode}\n{decided.stderr or decided.stdout}"
            )
        self.tell("vera approved it from the command line")

    def see_it_completed(self) -> None:
        """The run went on to its end, and what it says is true of the world."""
        run = self.until("the run ends", lambda: self.show()["finished_at"] and self.show())
        if run["status"] != "completed" or run["output"]["outcome"] != "published":
            raise DemoFailed(f"The run ended otherwise: {run['status']} {run['error'] or run['output']}")
        address, checksum = run["output"]["address"], run["output"]["sha256"]
        if (found := objects.checksum(address)) != checksum:
            raise DemoFailed(f"{address} should hold {checksum}; it holds {found}")
        self.tell(
            f"completed: {run['output']['records']} records public at {address}, read back and verified"
        )

    def conclude(self) -> None:
        """The timeline, and what was done how often. Raises DemoFailed if anything was done twice."""
        run = self.show()
        self.out.write("\nTimeline\n")
        self.out.write("\n".join(timeline(run["entries"])))
        self.out.write("\nEffects\n")
        repeated = sum(self.repeats(effect) for effect in run["effects"])
        self.out.write(f"\nrepeated effects: {repeated}")
        if repeated:
            raise DemoFailed("Something was done twice.")
        shutil.rmtree(self.logs)

    def repeats(self, effect: dict[str, Any]) -> int:
        """How often too often this effect was sent, or is found in the world. Raises DemoFailed if it is not."""
        sent, found = effect["attempts"], self.times_in_the_world(effect)
        self.out.write(
            f"  {effect['name']:<14} {effect['status']:<10} sent {sent}x, found in the world {found}x"
        )
        if not found:
            raise DemoFailed(f"{effect['name']} is {effect['status']}, and nothing of it is in the world.")
        return int(max(sent, found)) - 1

    def times_in_the_world(self, effect: dict[str, Any]) -> int:
        """Drafts under its key, the public object with its checksum, or mails with its Message-ID."""
        receipt = effect["receipt"]
        match effect["kind"]:
            case UploadDraft.kind:
                folder, name = os.path.split(receipt["external_id"])
                return sum(each.startswith(Path(name).stem) for each in default_storage.listdir(folder)[1])
            case MakePublic.kind:
                return int(objects.checksum(receipt["external_id"]) == receipt["checksum"])
        told = f"Message-ID: {receipt['external_id']}"
        return sum(log.read_text().count(told) for log in self.logs.iterdir())

    # --- looking --------------------------------------------------------------------------------------

    def show(self) -> dict[str, Any]:
        """The run, as `manage.py runs show --json` says it."""
        return _command("runs", "show", self.run_id)

    def entry(self, kind: str) -> dict[str, Any] | None:
        """The run's first entry of this kind."""
        return next((entry for entry in self.show()["entries"] if entry["kind"] == kind), None)

    def open_approval(self) -> dict[str, Any] | None:
        """The approval that the run waits for. Raises DemoFailed if it waits for an operator instead."""
        waits = {wait["kind"]: wait for wait in self.show()["waits"] if wait["status"] == "open"}
        if case := waits.get("reconciliation"):
            raise DemoFailed(f"The run stopped for an operator: {case}")
        return waits.get("approval")

    def until(self, what: str, look: Callable[[], T | None]) -> T:
        """What `look` finds, as soon as it finds something. Raises DemoFailed after two minutes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        shown = self.out.isatty()
        while not (found := look()):
            if time.monotonic() > deadline:
                told = f"Waited {PATIENCE_SECONDS:.0f} s in vain until {what}.{self.standing()}{self.tail()}"
                raise DemoFailed(told)
            if shown:
                self.out.write(f"\r  … until {what}\033[K", ending="")
                self.out.flush()
            time.sleep(0.02)
        if shown:
            self.out.write("\r\033[K", ending="")
        return found

    def tell(self, what: str) -> None:
        """One line, with the seconds since the start."""
        self.out.write(f"  {time.monotonic() - self.started:5.1f} s  {what}")
        self.out.flush()

    def standing(self) -> str:
        """Where the run stands."""
        if not self.run_id:
            return ""
        run = self.show()
        waits = [f"{wait['kind']} {wait['name']}" for wait in run["waits"] if wait["status"] == "open"]
        return f" The run is {run['status']}; it waits for: {', '.join(waits) or 'nothing'}."

    def tail(self) -> str:
        """The last words of each worker."""
        ends = ((log, log.read_text().splitlines()[-15:]) for log in sorted(self.logs.iterdir()))
        return "".join("\n\n" + "\n".join([f"The end of {log}:", *lines]) for log, lines in ends)

    def worker(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        """A real `manage.py worker`, ended with the demo; its output goes to a file."""
        with open(self.logs / f"worker-{name}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, MANAGE, "worker", "--threads", "1"],
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.cleanup.callback(end, process, seconds=5)
        return process


def _data_dir() -> Path:
    settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
    return Path(settings.DATA_DIR)


def _command(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command(*arguments, "--json", stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def _at(entry: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(entry["at"])


def _alive() -> list[Worker]:
    return list(Worker.objects.filter(stopped_at=None, lease_until__gt=clock.Now()))


def _ready(pid: int) -> bool:
    return any(f":{pid}:" in worker.name for worker in _alive())


@contextlib.contextmanager
def _held_still(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """SIGSTOP for the length of the block; not in the middle of a transaction, which would hold up all others."""
    process.send_signal(signal.SIGSTOP)
    while not _writable():
        process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _writable() -> bool:
    """Whether a transaction can begin at once; only SQLite has one writer for all."""
    if connection.vendor != "sqlite":
        return True
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 200")
        try:
            with transaction.atomic():
                return True
        except DatabaseError:
            return False
        finally:
            cursor.execute("PRAGMA busy_timeout = 30000")
