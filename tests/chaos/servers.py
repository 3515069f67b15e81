"""A PostgreSQL and a Redis of one's own that are stopped at once, killed and started again on the same data."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import redis

from approvals.testing import wait_for
from tests import services

OPTIONS = {
    "listen_addresses": "",
    "max_connections": "420",
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
}


class Postgres:
    """Waits for the disk at every commit, so that a stop at once loses nothing that it acknowledged."""

    def __init__(self, base: Path) -> None:
        self.base, self.home = base, base / "server"
        program = services._find(services._postgres_places, "postgresql")
        self._program, self.version = program.path, program.version
        self._user = services._server_user()
        self._env = {**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(self.home)}
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.own(self.home)
        initdb: list[str | Path] = [
            self._program.with_name("initdb"),
            "-D",
            self.home / "data",
            *services.INITDB,
        ]
        subprocess.run(
            initdb, check=True, stdout=subprocess.DEVNULL, env=self._env, cwd=self.home, **self._user
        )

    def own(self, directory: Path) -> None:
        """A directory that belongs to the server."""
        directory.mkdir(exist_ok=True)
        if self._user:
            os.chown(directory, self._user["user"], self._user["group"])

    def url(self, name: str = "postgres", host: Path | None = None) -> str:
        """Of a database; by way of another socket's directory, if one is given."""
        return f"postgresql://postgres@/{name}?host={host or self.home}"

    def start(self) -> None:
        """Returns once it takes connections: after it has recovered."""
        (self.home / "data" / "postmaster.pid").unlink(missing_ok=True)
        command: list[str | Path] = [self._program, "-D", self.home / "data"]
        command += [f"--{name}={value}" for name, value in OPTIONS.items()]
        command.append(f"--unix_socket_directories={self.home}")
        with (self.base / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._env,
                cwd=self.home,
                **self._user,
            )
        (self.base / "pid").write_text(str(self._process.pid))  # for services.clean_up
        self.starts += 1
        wait_for(self.answers, seconds=60)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """At once (immediate mode): no checkpoint, every session ended, as far as the disk has it."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)

    def kill_backend(self, pid: int) -> None:
        """One of its processes dies: it ends every session, recovers, and goes on as if it had not been away."""
        os.kill(pid, signal.SIGKILL)

    def answers(self) -> bool:
        """Whether it takes connections."""
        if self._process is None or self._process.poll() is not None:
            raise services.Unavailable((self.base / "log").read_text()[-2000:])
        with suppress(psycopg.OperationalError), psycopg.connect(self.url()):
            return True
        return False

    def ask(self, sql: str, *values: Any, name: str = "postgres") -> list[tuple[Any, ...]]:
        """One statement by a session of its own; asked again while the server comes and goes."""
        ends = time.monotonic() + 60
        while True:
            try:
                with psycopg.connect(self.url(name), autocommit=True) as session:
                    cursor = session.execute(sql, values or None)
                    return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                if time.monotonic() > ends:
                    raise


class Redis:
    """Keeps nothing over a restart."""

    def __init__(self, base: Path) -> None:
        self.base, self._socket = base, base / "redis.sock"
        self._program = services._find(services._redis_places, "redis-server").path
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, number: int = 0) -> str:
        """Of one of its databases."""
        return f"unix://{self._socket}?db={number}"

    def start(self) -> None:
        """Returns once it answers."""
        configuration = self.base / "redis.conf"
        configuration.write_text(
            f'port 0\nunixsocket {self._socket}\ndir {self.base}\nsave ""\nappendonly no\n'
        )
        with (self.base / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, configuration], stdout=log, stderr=log, start_new_session=True
            )
        (self.base / "pid").write_text(str(self._process.pid))
        wait_for(lambda: services._answers(self._socket), seconds=30)

    def stop(self) -> None:
        """At once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
        self._socket.unlink(missing_ok=True)

    def flush(self) -> int:
        """Forgets everything; how many keys that were."""
        with redis.Redis.from_url(self.url()) as client:
            keys = int(client.dbsize())
            client.flushall()
        return keys


@contextmanager
def running() -> Iterator[tuple[Postgres, Redis]]:
    """Both, started; ended with the block, or by the next one if this process is killed."""
    services.clean_up()
    with services._directory() as first, services._directory() as second:
        postgres, broker = Postgres(first), Redis(second)
        try:
            postgres.start()
            broker.start()
            yield postgres, broker
        finally:
            broker.stop()
            postgres.stop()
