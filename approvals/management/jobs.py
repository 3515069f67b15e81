"""RQ's jobs, run by a thread of the worker process. Redis may go away and come back at any time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress

import django_rq
from django.db import connections
from redis.exceptions import RedisError
from rq import Queue, SimpleWorker
from rq.exceptions import DequeueTimeout
from rq.timeouts import TimerDeathPenalty
from rq.worker import WorkerStatus

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
_LOOK_SECONDS = 1


class _Timeout(TimerDeathPenalty):
    """A job that hangs must not keep the process from ending: RQ's own timer thread would, for its whole timeout."""

    def new_timer(self) -> threading.Timer:
        timer: threading.Timer = super().new_timer()  # type: ignore[no-untyped-call]
        timer.daemon = True
        return timer


class _Runner(SimpleWorker):
    """RQ's worker for a thread: no signals, no fork, no child."""

    death_penalty_class = _Timeout


class JobThread:
    """Runs jobs until it is stopped; the engine beside it needs none of them."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.is_away = False
        self._queues = list(dict.fromkeys(queues))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-jobs", daemon=True)

    def start(self) -> None:
        """Starts the thread, whether Redis answers or not."""
        self._thread.start()

    def stop(self) -> None:
        """Lets a short job end; RQ itself forgets a worker that did not say goodbye."""
        self._stopping.set()
        self._thread.join(2 * _LOOK_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work()
            except (RedisError, OSError) as error:
                if not self.is_away:
                    log.warning("Redis is away; runs move without it, a little later: %s", error)
                self.is_away = True
            except Exception:
                log.exception("the jobs thread failed, starting again")
            self._stopping.wait(RETRY_SECONDS)

    def _work(self) -> None:
        connection = django_rq.get_connection("default")
        runner = _Runner(self._queues, connection=connection)
        runner.register_birth()  # type: ignore[no-untyped-call]
        runner.set_state(WorkerStatus.IDLE)
        self.is_away = False
        while not self._stopping.is_set():
            runner.heartbeat()
            if runner.should_run_maintenance_tasks:
                runner.run_maintenance_tasks()  # type: ignore[no-untyped-call]
            with suppress(DequeueTimeout):
                self._run_one(runner)
        runner.register_death()  # type: ignore[no-untyped-call]

    def _run_one(self, runner: _Runner) -> None:
        found = Queue.dequeue_any(
            runner.queues, _LOOK_SECONDS, runner.connection, death_penalty_class=_Timeout
        )
        if found is not None:
            runner.execute_job(*found)
            connections.close_all()
