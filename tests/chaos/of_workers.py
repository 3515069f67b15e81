"""Workers killed, and stopped for longer than their lease (CASES 13, 14, 17, 22)."""

from __future__ import annotations

import signal

from approvals.models import Worker
from approvals.testing import wait_for
from tests.chaos import flows
from tests.chaos.registry import cell
from tests.chaos.site import patiently
from tests.chaos.stage import Stage

KILLS, STOPS, LEASE_SECONDS = 8, 3, 2


@cell("workers-killed", has_redis=True)
def killed(stage: Stage) -> None:
    """One of two workers is killed (SIGKILL) every few seconds, and another takes its place."""
    living = [stage.site.worker(), stage.site.worker()]
    stage.site.web()
    with stage.deciding():
        with stage, stage.starting(flows.order, flows.mail, flows.refund, every_seconds=0.1):
            for _ in range(KILLS):
                stage.pass_time(1.5)
                stage.site.kill(living.pop(0))
                stage.fired["SIGKILL"] += 1
                living.append(stage.site.worker())
        stage.settle()


@cell("workers-stopped")
def stopped(stage: Stage) -> None:
    """One of three workers is stopped (SIGSTOP) until it was given up, then goes on: it writes and sends nothing."""
    workers = [stage.site.worker(LEASE_SECONDS=str(LEASE_SECONDS)) for _ in range(3)]
    with stage, stage.starting(flows.order, flows.mail, every_seconds=0.1):
        for n in range(STOPS):
            stage.pass_time(2)
            given_up = patiently(_given_up)
            workers[n % 3].send_signal(signal.SIGSTOP)
            # Stopped in the middle of a transaction it keeps a run's row until PostgreSQL ends its session, after 60 s.
            wait_for(lambda: patiently(_given_up) > given_up, seconds=90)  # noqa: B023
            workers[n % 3].send_signal(signal.SIGCONT)
            stage.fired["SIGSTOP past the lease"] += 1
    for worker in workers:
        stage.site.check(worker)


def _given_up() -> int:
    return Worker.objects.exclude(stopped_at=None).count()
