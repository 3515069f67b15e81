"""A worker process: claims runs and moves them until it is told to end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from types import FrameType
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import connection

from approvals import faults
from approvals.engine.loop import Worker, default_threads
from approvals.errors import FaultsNotAllowed
from approvals.management.arguments import positive
from approvals.management.output import Answer, Progress, WrongCall
from approvals.management.output import Command as AnsweringCommand

if TYPE_CHECKING:
    from approvals.management.jobs import JobThread

log = logging.getLogger(__name__)


class Command(AnsweringCommand):
    """`manage.py worker`."""

    name = "worker"
    help = "Moves runs until SIGTERM or SIGINT: runs in hand stop at their next boundary (a second signal: at once)."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--threads", type=positive, metavar="N", help="runs moved at once (WORKER_THREADS)"
        )
        parser.add_argument(
            "--queue", default="default", metavar="Q", help="an RQ queue to serve besides default"
        )
        parser.add_argument("--burst", action="store_true", help="end when nothing is runnable")

    def answer(self, options: Namespace) -> Answer:
        try:
            faults.arm_from_environment()
        except (FaultsNotAllowed, ValueError) as error:
            raise WrongCall(str(error)) from error
        worker = Worker(options.threads or default_threads(), options.queue)
        quiet = redirect_stdout(sys.stderr) if options.json else nullcontext()  # workflows may print
        with quiet, _stop_on_signals() as stop:
            ended = self._run(worker, stop, is_burst=options.burst)
        told = {"threads": worker.threads, "queue": worker.queue_name, "ended": ended}
        return Answer({"worker": told}, [f"Ended: {ended}."])

    def _run(self, worker: Worker, stop: threading.Event, *, is_burst: bool) -> str:
        jobs = _jobs(worker.queue_name)
        worker.start()
        connection.close()  # this thread only waits from now on
        log.info("worker started: %s threads, %s workflow versions", worker.threads, len(worker.known))
        if jobs is not None:
            jobs.start()
        try:
            if is_burst:
                self._until_dry(worker, stop)
            else:
                stop.wait()
        finally:
            worker.stop()
            if jobs is not None:
                jobs.stop()
        return "told to end" if stop.is_set() else "nothing is runnable"

    def _until_dry(self, worker: Worker, stop: threading.Event) -> None:
        progress = Progress(self.stderr)
        worker.wait_until_dry(stop, lambda runs: progress.say(f"{runs} runs to move"))
        progress.say("")


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Set by the first SIGTERM or SIGINT; the second ends the process as it stands, and others take over."""
    stop = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _jobs(queue: str) -> JobThread | None:
    if not getattr(settings, "RQ_QUEUES", None):
        return None
    from approvals.management.jobs import JobThread

    return JobThread([queue, "default"])
