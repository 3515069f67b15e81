"""Redis flushed, restarted, away: it carries hints, and may lose all of them (CASES 3, 20)."""

from __future__ import annotations

from tests.chaos import flows
from tests.chaos.registry import cell
from tests.chaos.stage import Stage


def _people_and_workers(stage: Stage) -> None:
    stage.site.worker()
    stage.site.worker()
    stage.site.web()


@cell("redis-flushed", has_redis=True)
def flushed(stage: Stage) -> None:
    """Flushed twice a second."""
    _people_and_workers(stage)
    with stage.deciding():
        with stage, stage.starting(flows.order, flows.refund):
            for _ in range(30):
                stage.pass_time(0.5)
                stage.fired["keys forgotten"] += stage.redis.flush()
        stage.settle()


@cell("redis-restarts", has_redis=True)
def restarts(stage: Stage) -> None:
    """Killed and started again every few seconds."""
    _people_and_workers(stage)
    with stage.deciding():
        with stage, stage.starting(flows.order, flows.refund):
            for _ in range(6):
                stage.pass_time(1.5)
                stage.redis.stop()
                stage.pass_time(1)
                stage.redis.start()
                stage.fired["restart"] += 1
        stage.settle()


@cell("redis-away", has_redis=True)
def away(stage: Stage) -> None:
    """Not there for the whole run, not even at the start of the processes."""
    stage.redis.stop()
    _people_and_workers(stage)
    with stage.deciding():
        with stage, stage.starting(flows.order, flows.refund):
            stage.pass_time(15)
        stage.settle()
    stage.redis.start()
    stage.fired["processes that missed it"] += stage.site.said("Redis is away|hint by RQ failed")
