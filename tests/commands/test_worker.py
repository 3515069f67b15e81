"""`manage.py worker`, in this process and as the real one."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from approvals import outbox, queries
from approvals.models import Run, Worker
from approvals.services import runs
from approvals.testing import People, assert_invariants, wait_for
from tests.commands.conftest import Manage, environment, shared
from tests.commands.flows import Order, doubling, holding, order, sleeping

Process = Callable[..., subprocess.Popen[str]]


def test_a_burst_moves_all_that_is_runnable_and_ends(manage: Manage, team: People) -> None:
    done = [runs.start(doubling, n).id for n in range(5)]
    asked = runs.start(order, Order(sku="A"), requester=team.requester).id
    later = runs.start(sleeping, 3600).id
    ended = manage("worker", "--burst", "--threads", "2", "--json")
    assert ended.code == 0
    assert ended.document == {"worker": {"threads": 2, "queue": "default", "ended": "nothing is runnable"}}
    assert [runs.get(id_).output for id_ in done] == [0, 2, 4, 6, 8]
    assert {runs.get(id_).status for id_ in (asked, later)} == {"suspended"}
    assert queries.workers() == []
    assert_invariants()


def test_a_burst_with_nothing_to_do(manage: Manage) -> None:
    assert manage("worker", "--burst").out == "Ended: nothing is runnable.\n"


def test_a_run_of_a_version_that_nobody_here_knows_is_not_runnable(manage: Manage) -> None:
    run = runs.start(doubling, 1)
    Run.objects.filter(pk=run.id).update(version=99)
    assert manage("worker", "--burst").code == 0
    assert runs.get(run.id).status == "pending"


@pytest.mark.parametrize(
    "arguments", [("--threads", "0"), ("--threads", "many"), ("--nonsense",), ("extra",)]
)
def test_a_wrong_call(manage: Manage, arguments: tuple[str, ...]) -> None:
    assert manage("worker", *arguments, "--json").error["code"] == "wrong_call"


def test_a_fault_at_a_point_that_does_not_exist(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPROVALS_FAULT", "nowhere")
    monkeypatch.setenv("APPROVALS_ALLOW_FAULTS", "1")
    ended = manage("worker", "--burst")
    assert ended.code == 2 and "nowhere" in ended.err


# --- processes -------------------------------------------------------------------------------------


def test_a_fresh_installation_by_commands_alone(shell: Manage, tmp_path: Path) -> None:
    env = environment(tmp_path, DATABASE_URL="", REDIS_URL="")
    unmigrated = shell("runs", "list", env=env)
    assert (
        unmigrated.code == 1 and "manage.py migrate" in unmigrated.err and "Traceback" not in unmigrated.err
    )
    assert shell("migrate", "-v0", env=env).code == 0
    started = shell("runs", "start", "commands-double", "--input", "4", env=env)
    assert started.code == 0 and "No worker lives" in started.out
    faulty = shell("worker", "--burst", "--json", env={**env, "APPROVALS_FAULT": "performed"})
    assert faulty.code == 2 and "APPROVALS_ALLOW_FAULTS" in faulty.error["message"]
    assert shell("worker", "--burst", env=env).code == 0
    (run,) = shell("runs", "list", "--json", env=env).document["items"]
    assert (run["status"], run["output"]) == ("completed", 8)


@pytest.mark.sigkill
def test_a_worker_that_kills_itself_loses_nothing(engine: object, shell: Manage, tmp_path: Path) -> None:
    run = runs.start(doubling, 4)
    env = shared(tmp_path)
    fault = {"APPROVALS_FAULT": "step_done:1", "APPROVALS_ALLOW_FAULTS": "1"}
    assert shell("worker", "--burst", env={**env, **fault}).code == -signal.SIGKILL
    assert runs.get(run.id).status == "running"
    assert shell("worker", "--burst", env=env).code == 0
    assert runs.get(run.id).output == 8
    assert_invariants()


def test_a_signal_ends_it_with_its_runs_given_back(engine: object, process: Process, tmp_path: Path) -> None:
    worker = process("worker", "--json", env=shared(tmp_path))
    wait_for(queries.workers)
    run = runs.start(doubling, 4)
    wait_for(lambda: runs.get(run.id).status == "completed")
    worker.send_signal(signal.SIGTERM)
    out, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0 and '"ended": "told to end"' in out
    assert Worker.objects.get().stopped_at is not None


def test_a_second_signal_ends_it_at_once(engine: object, process: Process, tmp_path: Path) -> None:
    worker = process("worker", env=shared(tmp_path))
    run = runs.start(holding, str(tmp_path / "begun"))
    wait_for((tmp_path / "begun").exists)

    def ended() -> bool:
        worker.send_signal(signal.SIGINT)
        return worker.poll() is not None

    wait_for(ended)
    assert worker.returncode == 128 + signal.SIGINT
    assert runs.get(run.id).status == "running"  # whoever sweeps next takes it over


# --- Redis -----------------------------------------------------------------------------------------


@pytest.fixture
def queue(settings: Any) -> Any:
    """RQ's queue, empty."""
    assert settings.REDIS_URL, "run by tests/services.py, which sets DATABASE_URL and REDIS_URL"
    import django_rq

    made = django_rq.get_queue("default")
    made.connection.flushdb()
    yield made
    made.connection.flushdb()


@pytest.mark.postgres
def test_hints_are_coalesced_and_a_job_wakes(engine: object, queue: Any, monkeypatch: Any) -> None:
    from approvals.management.jobs import JobThread

    with monkeypatch.context() as slow:
        slow.setattr(outbox, "WAKE_MILLISECONDS", 60_000)  # however slow this machine is
        runs.start(doubling, 1)
        for _ in range(20):
            outbox.hint()
    assert queue.count == 1
    queue.connection.pexpire(outbox.WAKE_KEY, outbox.WAKE_MILLISECONDS)
    woken = threading.Event()
    outbox.listen(woken)
    jobs = JobThread(["other", "default", "default"])
    jobs.start()
    try:
        wait_for(woken.is_set)
        wait_for(lambda: queue.count == 0 and not queue.connection.exists(outbox.WAKE_KEY))
        outbox.hint()  # a hint given just after is not lost
        wait_for(lambda: queue.count == 0 and not queue.connection.exists(outbox.WAKE_KEY))
    finally:
        jobs.stop()
    assert not queue.connection.exists("rq:workers")


@pytest.mark.postgres
def test_nobody_who_works_hints_off_does_not_fill_redis(engine: object, queue: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(outbox, "_BACKLOG", 3)
    for _ in range(10):
        queue.connection.delete(outbox.WAKE_KEY)
        outbox.hint()
    assert queue.count == 3


@pytest.mark.postgres
def test_a_redis_that_is_away_ends_nothing(
    engine: object, queue: Any, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    import django_rq
    from redis.exceptions import ConnectionError as Away

    from approvals.management import jobs as room

    calls = []
    real = django_rq.get_connection

    def get_connection(name: str) -> Any:
        calls.append(name)
        if len(calls) < 4:
            raise Away("refused")
        return real(name)

    monkeypatch.setattr(room, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(django_rq, "get_connection", get_connection)
    jobs = room.JobThread(["default"])
    jobs.start()
    try:
        wait_for(lambda: len(calls) == 4)
        outbox.hint()
        wait_for(lambda: queue.count == 0 and not queue.connection.exists(outbox.WAKE_KEY))
    finally:
        jobs.stop()
    assert [record.message for record in caplog.records if "Redis is away" in record.message] == [
        "Redis is away; runs move without it, a little later: refused"
    ]


@pytest.mark.postgres
def test_a_redis_that_hangs_holds_nobody_up(engine: object, queue: Any, monkeypatch: Any) -> None:
    from django_rq import settings as django_rq_settings

    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        monkeypatch.setitem(django_rq_settings.QUEUES, "default", {"URL": url})
        monkeypatch.setattr(outbox, "_redis_away_until", 0.0)
        outbox._queue.cache_clear()
        try:
            began = time.monotonic()
            for _ in range(50):
                outbox.hint()
            assert time.monotonic() - began < 2
        finally:
            outbox._queue.cache_clear()


@pytest.mark.postgres
def test_the_worker_process_serves_rq(engine: object, queue: Any, process: Process, tmp_path: Path) -> None:
    worker = process("worker", "--queue", "special", env=shared(tmp_path))
    wait_for(lambda: queue.connection.scard("rq:workers") == 1)
    run = runs.start(doubling, 4)
    wait_for(lambda: runs.get(run.id).status == "completed")
    wait_for(lambda: queue.count == 0)
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    assert queue.connection.scard("rq:workers") == 0
    assert connection.vendor == "postgresql"
