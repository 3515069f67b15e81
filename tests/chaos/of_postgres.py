"""PostgreSQL stopped at once, its backends killed, in the middle of whatever is going on (CASES 15)."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.db import connection
from django.db.models import Q

from approvals.models import Entry, Run
from approvals.testing import wait_for
from tests.chaos import flows
from tests.chaos.registry import cell
from tests.chaos.site import Person, patiently
from tests.chaos.stage import Stage

RESTARTS, UP_SECONDS, DOWN_SECONDS = 10, 3.0, 0.5
AWAY_SECONDS = 75.0
ORPHANS = 250


@cell("postgres-restarts", has_redis=True)
def restarts(stage: Stage) -> None:
    """Stopped at once and started again every few seconds, with starts and web decisions all the while."""
    stage.site.worker()
    stage.site.worker()
    stage.site.web()
    with stage.deciding():
        with stage, stage.starting(flows.order, flows.mail, flows.refund):
            for _ in range(RESTARTS):
                stage.pass_time(UP_SECONDS)
                stage.postgres.stop()
                stage.pass_time(DOWN_SECONDS)
                stage.postgres.start()
                stage.fired["restart"] += 1
            stage.pass_time(UP_SECONDS)
        stage.settle()
    stage.expect(not _looked_free(), "a live worker's run looked free after a restart")


@cell("postgres-restarted-twice")
def restarted_twice(stage: Stage) -> None:
    """The same in small, without people, for every run of the test suite."""
    stage.site.worker()
    with stage, stage.starting(flows.order):
        for _ in range(2):
            stage.pass_time(1.5)
            stage.postgres.stop()
            stage.postgres.start()
            stage.fired["restart"] += 1
        stage.pass_time(1)
    stage.settle()
    stage.expect(not _looked_free(), "a live worker's run looked free after a restart")


def _looked_free() -> bool:
    """Whether a run was taken from a worker, which did not give it up itself."""
    lost = Entry.objects.filter(kind="run.lose_lease")
    return lost.filter(Q(data__contains="process is gone") | Q(data__contains="lease ran out")).exists()


@cell("postgres-mid-sweep")
def mid_sweep(stage: Stage) -> None:
    """Stopped three times in the middle of the sweep over 250 orphans: all of them finish."""
    dead = [stage.site.worker(threads=ORPHANS // 2, LEASE_SECONDS="5") for _ in range(2)]
    for _ in range(ORPHANS):
        stage.start(flows.gate)
    wait_for(lambda: len(list(stage.world.glob("entered-*"))) == ORPHANS, seconds=180)
    with stage:
        for worker in dead:
            stage.site.kill(worker)
        (stage.world / "gate").touch()
        stage.site.worker(threads=8, LEASE_SECONDS="5")
        for _ in range(3):
            before = patiently(_orphans)
            wait_for(lambda: patiently(_orphans) < before - 20 or not patiently(_orphans), seconds=60)  # noqa: B023
            stage.postgres.stop()
            stage.pass_time(DOWN_SECONDS)
            stage.postgres.start()
            left = patiently(_orphans)
            stage.fired["restart in the middle"] += 0 < left < ORPHANS
            stage.notes.setdefault("orphans left at each restart", []).append(left)


def _orphans() -> int:
    return Run.objects.filter(status="running", fence=1).count()


@cell("postgres-crash")
def crash(stage: Stage) -> None:
    """A backend is killed: every session ends, the start time stays, and no live worker's run looks free."""

    def kill() -> None:
        sql = (
            "SELECT pid FROM pg_stat_activity WHERE datname = %s AND query LIKE '%%pg_backend_pid%%' LIMIT 1"
        )
        ((pid,),) = stage.postgres.ask(sql, stage.database)
        stage.postgres.kill_backend(pid)

    _while_long_steps_run(stage, "backend killed", kill)


@cell("postgres-cut-off")
def cut_off(stage: Stage) -> None:
    """Every session is ended and none let in for 3 s, as a failover would: no live worker's run looks free."""

    def cut() -> None:
        connection.close()
        stage.postgres.ask(f"ALTER DATABASE {stage.database} ALLOW_CONNECTIONS false")
        ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        stage.postgres.ask(ends, stage.database)
        stage.pass_time(3)
        stage.postgres.ask(f"ALTER DATABASE {stage.database} ALLOW_CONNECTIONS true")

    _while_long_steps_run(stage, "everybody cut off", cut)


def _while_long_steps_run(stage: Stage, fault: str, strike: Callable[[], None]) -> None:
    stage.site.worker()
    stage.site.worker()
    held = [stage.start(flows.gate) for _ in range(4)]
    wait_for(lambda: len(list(stage.world.glob("entered-*"))) == len(held))
    stage.pass_time(5)
    with stage:
        for _ in range(4):
            strike()
            stage.fired[fault] += 1
            connection.close()
            wait_for(lambda: patiently(lambda: Run.objects.filter(pk__in=held).exists()))
            stage.pass_time(6)
        lost = Entry.objects.filter(run__in=held, kind="run.lose_lease")
        stage.expect(not patiently(lost.count), "a live worker's run looked free")
        (stage.world / "gate").touch()
        stage.settle()
        again = patiently(lambda: Entry.objects.filter(run__in=held, kind="run.claim").count()) - len(held)
        stage.notes["long steps done again"] = again


@cell("postgres-away")
def away(stage: Stage) -> None:
    """Away for over a minute: every page says 503 within seconds, and works again within seconds of its return."""
    stage.site.worker()
    stage.site.web()
    person = Person(stage.site.address, "vera-reviewers")
    with stage.deciding():
        with stage:
            for _ in range(4):
                stage.start(flows.refund)
            stage.settle()
            stage.postgres.stop()
            stage.fired["stop"] += 1
            slowest, ends = 0.0, time.monotonic() + AWAY_SECONDS
            while time.monotonic() < ends:
                asked = time.monotonic()
                stage.expect(person.get("/runs/")[0] == 503, "a page without a database was not answered 503")
                slowest = max(slowest, time.monotonic() - asked)
                stage.expect(person.get("/healthz")[0] == 200, "the process is up, and says otherwise")
                stage.expect(
                    person.get("/readyz")[0] == 503, "a site without its database called itself ready"
                )
                stage.expect(person.listens() == 403, "a websocket without a database was not refused")
            stage.postgres.start()
            back = time.monotonic()
            wait_for(lambda: person.get("/runs/")[0] == 200)
            stage.notes["the slowest 503, in seconds"] = round(slowest, 1)
            stage.notes["seconds until a page was there again"] = round(time.monotonic() - back, 1)
            stage.expect(person.listens() == 101, "no websocket after the database was back")
            stage.expect(time.monotonic() - back < 8, "pages stayed away long after the database was back")
            stage.start(flows.refund)
        stage.settle()
