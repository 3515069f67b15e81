"""How the environment's variables are read. Pure: settings are made from this, never the other way round."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
DEVELOPMENT_KEY = "insecure-development-key"
KEY_LEAST = 20

_POSTGRES = {"postgres", "postgresql"}
_REDIS = ("redis", "rediss", "unix")
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}


def boolean(name: str) -> bool:
    """A switch; off where unset."""
    value = os.environ.get(name, "").strip().lower()
    if value in _TRUE | _FALSE:
        return value in _TRUE
    raise ImproperlyConfigured(f"{name}={value!r} is neither yes nor no: use 1 or 0.")


def integer(name: str, default: int, *, least: int = 1) -> int:
    """A whole number, at least `least`."""
    text = os.environ.get(name, "").strip() or str(default)
    if text.isascii() and text.isdigit() and int(text) >= least:
        return int(text)
    raise ImproperlyConfigured(f"{name}={text!r} must be a whole number, {least} or more.")


def names(name: str) -> tuple[str, ...]:
    """A list, comma-separated."""
    return tuple(part.strip() for part in os.environ.get(name, "").split(",") if part.strip())


def data_dir() -> Path:
    """Where the embedded database, the object store and a generated key live."""
    return Path(os.environ.get("DATA_DIR") or BASE_DIR / "var").expanduser().absolute()


def log_level() -> str:
    """LOG_LEVEL, by the names of Python's logging."""
    name = os.environ.get("LOG_LEVEL", "").strip().upper() or "INFO"
    if name in _LOG_LEVELS:
        return name
    raise ImproperlyConfigured(f"LOG_LEVEL={name!r} is none of {', '.join(_LOG_LEVELS)}.")


def public_url() -> str:
    """The address that people use, without a slash at its end."""
    url = (os.environ.get("PUBLIC_URL") or "http://127.0.0.1:8000").rstrip("/")
    parts = _split("PUBLIC_URL", url)
    if parts.scheme in {"http", "https"} and parts.hostname:
        return url
    raise ImproperlyConfigured(
        f"PUBLIC_URL={url!r} is no address of a site: give it whole, for instance https://durable.example.org"
    )


def redis_url() -> str:
    """Where Redis is; empty: without it."""
    url = os.environ.get("REDIS_URL", "").strip()
    scheme = _split("REDIS_URL", url).scheme
    if url and scheme not in _REDIS:
        raise ImproperlyConfigured(f"REDIS_URL: {scheme or 'no scheme'} is none of {', '.join(_REDIS)}.")
    return url


def _split(name: str, url: str) -> SplitResult:
    """The parts of a URL, its port too; what is said of a wrong one does not repeat it: it may hold a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is no URL that can be read: {error}.") from None
    return parts


def secret_key(*, debug: bool) -> str:
    """SECRET_KEY, else the key that `up` or `demo` made here; a weak one only for development."""
    key = os.environ.get("SECRET_KEY") or _stored_key() or DEVELOPMENT_KEY
    if debug:
        return key
    if not key.startswith((DEVELOPMENT_KEY, "django-insecure-")):
        if len(key) >= KEY_LEAST:
            return key
        raise ImproperlyConfigured(
            f"SECRET_KEY has {len(key)} characters; fewer than {KEY_LEAST} can be guessed. Set it to a long random "
            "text, the same for every process of this deployment, for instance by: openssl rand -base64 48"
        )
    raise ImproperlyConfigured(
        "SECRET_KEY is unset or a default, and DEBUG is off. Set it to a long random text, the same for every "
        "process of this deployment, for instance by: openssl rand -base64 48. (`make up` makes one by itself.)"
    )


def ensure_secret_key() -> None:
    """Makes this machine's own key on first use, readable by its owner alone."""
    path = data_dir() / "secret_key"
    if os.environ.get("SECRET_KEY") or path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(48))
    try:
        path.hardlink_to(draft)  # whole or not at all; of two at once, the first wins
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _stored_key() -> str:
    path = data_dir() / "secret_key"
    return path.read_text().strip() if path.is_file() else ""


def database(url: str) -> dict[str, Any]:
    """Django's settings for a database URL; without one, the embedded database in DATA_DIR."""
    if not url:
        data_dir().mkdir(parents=True, exist_ok=True)
        return _sqlite(str(data_dir() / "db.sqlite3"))
    parts = _split("DATABASE_URL", url)
    if parts.scheme == "sqlite":
        # As everywhere: three slashes for a path from the working directory, four for one from the root.
        return _sqlite(unquote(parts.path.removeprefix("/")))
    if parts.scheme in _POSTGRES:
        return _postgresql(parts)
    raise ImproperlyConfigured(
        f"DATABASE_URL: {parts.scheme or 'no scheme'} is neither postgresql nor sqlite."
    )


def _sqlite(path: str) -> dict[str, Any]:
    if path in {"", ":memory:"}:
        raise ImproperlyConfigured("DATABASE_URL: SQLite needs a file; processes and threads share it.")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.path.abspath(path),
        "OPTIONS": {
            # A transaction that begins by reading and then writes fails at once under DEFERRED.
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
            "timeout": 30,
        },
        # Worker threads share a file; they cannot share Django's in-memory default.
        "TEST": {"NAME": str(data_dir() / "test.sqlite3")},
    }


def _postgresql(parts: SplitResult) -> dict[str, Any]:
    options: dict[str, Any] = {
        "connect_timeout": 10,
        # Statements that come often are planned once per connection, and lists are not quoted in Python.
        "server_side_binding": True,
        "prepare_threshold": 3,
        # A process that is stopped in the middle of a transaction must not keep its locks for ever. And no statement
        # here is worth half a second of compiling, which PostgreSQL thinks it is where a list may have to look far.
        "options": "-c idle_in_transaction_session_timeout=60s -c jit=off",
        **dict(parse_qsl(parts.query)),
    }
    host = options.pop("host", None) or unquote(parts.hostname or "")
    port = options.pop("port", None) or parts.port or ""
    pool_size = integer("DATABASE_POOL", 0, least=0)
    if pool_size:
        # Whoever asks while the database is away hears so in 5 s. A pool that tries to connect for long does it less
        # and less often (after a minute's outage, once a minute); one that gives up tries at the next request.
        options["pool"] = {"min_size": 1, "max_size": pool_size, "timeout": 5, "reconnect_timeout": 1}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.removeprefix("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(port),
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


def mailer(url: str) -> dict[str, Any]:
    """Django's settings for a mail URL: console:, smtp://user:password@host:587?tls=1, smtps:, file:///folder."""
    parts = _split("EMAIL_URL", url or "console:")
    if parts.scheme == "console":
        return {"BACKEND": "django.core.mail.backends.console.EmailBackend"}
    if parts.scheme == "file":
        return {
            "BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "OPTIONS": {"file_path": unquote(parts.path)},
        }
    if parts.scheme not in {"smtp", "smtps"}:
        raise ImproperlyConfigured(
            f"EMAIL_URL: {parts.scheme or 'no scheme'} is none of console, smtp, smtps, file."
        )
    implicit_tls = parts.scheme == "smtps"
    return {
        "BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "OPTIONS": {
            "host": parts.hostname or "localhost",
            "port": parts.port or (465 if implicit_tls else 25),
            "username": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "use_ssl": implicit_tls,
            "use_tls": not implicit_tls and dict(parse_qsl(parts.query)).get("tls") == "1",
            "timeout": 10,
        },
    }
