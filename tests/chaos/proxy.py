"""Stands between clients and PostgreSQL, and cuts a connection at the very message that a cell names.

It reads both directions of the protocol (version 3, over a Unix socket, so without encryption). "Before" means that
the server never sees the message; "after", that it has carried it out and the client never hears so.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

When = Literal["before", "after"]


@dataclass
class Session:
    """One connection through the proxy."""

    client: socket.socket
    server: socket.socket
    prepared: dict[bytes, str] = field(default_factory=dict)
    bound: str = ""
    transaction: list[str] = field(default_factory=list)
    """What was carried out since BEGIN, with the statement at hand."""
    is_cut_at_answer: bool = False

    def cut(self) -> None:
        """Both ends at once."""
        for end in (self.server, self.client):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def note(self, sql: str) -> None:
        """What is carried out now."""
        if sql == "BEGIN":
            self.transaction = []
        self.transaction.append(sql)


Wants = Callable[[Session, str], When | None]
"""Where to cut, if at this statement (COMMIT is one); called for each, in the session's own thread."""


class Proxy:
    """Listens in `directory` as PostgreSQL does in its own."""

    def __init__(self, directory: Path, server: Path) -> None:
        self.directory = directory
        self._server = str(server / ".s.PGSQL.5432")
        self._lock = threading.Lock()
        self._wants: Wants | None = None
        self.cuts: dict[When, int] = {"before": 0, "after": 0}
        self.seen = 0
        self._listener = socket.socket(socket.AF_UNIX)
        path = directory / ".s.PGSQL.5432"
        self._listener.bind(str(path))
        path.chmod(0o777)
        self._listener.listen(200)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @contextmanager
    def cutting(self, wants: Wants) -> Iterator[None]:
        """Cuts where `wants` says so, while the block lasts."""
        self._wants = wants
        try:
            yield
        finally:
            self._wants = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._server)
            except OSError:
                client.close()
                continue
            session = Session(client, server)
            for pump in (self._forward, self._back):
                threading.Thread(target=self._pumped, args=(pump, session), daemon=True).start()

    def _pumped(self, pump: Callable[[Session], None], session: Session) -> None:
        with suppress(OSError, EOFError):
            pump(session)
        session.cut()

    def _forward(self, session: Session) -> None:
        """From the client: the first message has no type."""
        length = _exactly(session.client, 4)
        session.server.sendall(length + _exactly(session.client, struct.unpack("!i", length)[0] - 4))
        while True:
            kind, raw, body = _message(session.client)
            if (sql := _carried_out(session, kind, body)) is not None:
                session.note(sql)
                if self._decide(session, sql) == "before":
                    return
            session.server.sendall(raw)

    def _back(self, session: Session) -> None:
        kept = b""
        while True:
            kind, raw, _ = _message(session.server)
            if not session.is_cut_at_answer:
                session.client.sendall(raw)
                continue
            kept += raw
            if kind == b"E":  # it was not carried out: the client may know
                session.is_cut_at_answer = False
                session.client.sendall(kept)
                kept = b""
            elif kind == b"Z":  # carried out, and durable by now
                with self._lock:
                    self.cuts["after"] += 1
                return

    def _decide(self, session: Session, sql: str) -> When | None:
        with self._lock:
            self.seen += 1
            wants = self._wants
            when = wants(session, sql) if wants is not None else None
            if when == "before":
                self.cuts["before"] += 1
            session.is_cut_at_answer = when == "after"
        return when


def _exactly(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        if not (part := source.recv(count - len(found))):
            raise EOFError
        found += part
    return bytes(found)


def _message(source: socket.socket) -> tuple[bytes, bytes, bytes]:
    """(type, whole message, body)."""
    head = _exactly(source, 5)
    body = _exactly(source, struct.unpack("!i", head[1:])[0] - 4)
    return head[:1], head + body, body


def _carried_out(session: Session, kind: bytes, body: bytes) -> str | None:
    """The statement that this message has carried out, if it does."""
    if kind == b"Q":
        return body.rstrip(b"\0").decode()
    if kind == b"P":
        name, sql, *_ = body.split(b"\0")
        session.prepared[name] = sql.decode()
    elif kind == b"B":
        _, name, *_ = body.split(b"\0", 2)
        session.bound = session.prepared.get(name, "")
    elif kind == b"E":
        return session.bound
    return None
