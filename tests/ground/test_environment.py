"""How settings are read from the environment, and what refuses to start."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from durable_app import environment


def test_a_postgresql_url_may_name_a_socket():
    made = environment.database("postgresql://postgres@/postgres?host=/tmp/x")
    assert (made["HOST"], made["PORT"], made["USER"], made["NAME"]) == ("/tmp/x", "", "postgres", "postgres")
    assert "host" not in made["OPTIONS"]


def test_a_postgresql_url_with_everything():
    made = environment.database("postgres://us%40er:p%2Fw@db.example.org:6432/name?sslmode=require")
    assert made["ENGINE"] == "django.db.backends.postgresql"
    assert (made["HOST"], made["PORT"], made["NAME"]) == ("db.example.org", "6432", "name")
    assert (made["USER"], made["PASSWORD"]) == ("us@er", "p/w")
    assert made["OPTIONS"]["sslmode"] == "require"


def test_only_a_web_process_pools(monkeypatch):
    monkeypatch.setenv("DATABASE_POOL", "8")
    assert environment.database("postgres://a@b/c")["OPTIONS"]["pool"]["max_size"] == 8
    monkeypatch.delenv("DATABASE_POOL")
    assert "pool" not in environment.database("postgres://a@b/c")["OPTIONS"]


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:////data/x.db", "/data/x.db"), ("sqlite:///x%20y.db", os.path.join(os.getcwd(), "x y.db"))],
)
def test_a_sqlite_url_is_a_path(url, path):
    made = environment.database(url)
    assert made["NAME"] == path
    assert made["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://a@b/c", "nonsense"])
def test_other_databases_are_refused(url):
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL"):
        environment.database(url)


def test_without_a_url_the_database_is_embedded(monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "new"))
    assert environment.database("")["NAME"] == str(tmp_path / "new" / "db.sqlite3")
    assert (tmp_path / "new").is_dir()


def test_mail():
    assert environment.mailer("")["BACKEND"].endswith("console.EmailBackend")
    assert environment.mailer("file:///var/mail")["OPTIONS"] == {"file_path": "/var/mail"}
    plain = environment.mailer("smtp://u:p%40@mail.example.org:587?tls=1")["OPTIONS"]
    assert (plain["host"], plain["port"], plain["password"]) == ("mail.example.org", 587, "p@")
    assert (plain["use_tls"], plain["use_ssl"]) == (True, False)
    implicit = environment.mailer("smtps://mail.example.org")["OPTIONS"]
    assert (implicit["port"], implicit["use_tls"], implicit["use_ssl"]) == (465, False, True)
    with pytest.raises(ImproperlyConfigured, match="EMAIL_URL"):
        environment.mailer("pigeon://x")


def test_switches_numbers_and_lists(monkeypatch):
    monkeypatch.setenv("X", "on")
    assert environment.boolean("X")
    monkeypatch.setenv("X", "maybe")
    with pytest.raises(ImproperlyConfigured, match="neither yes nor no"):
        environment.boolean("X")
    with pytest.raises(ImproperlyConfigured, match="1 or more"):
        environment.integer("X", 4)
    monkeypatch.setenv("X", " a.b , c,")
    assert environment.names("X") == ("a.b", "c")
    monkeypatch.delenv("X")
    assert (environment.boolean("X"), environment.integer("X", 4), environment.names("X")) == (False, 4, ())


@pytest.mark.parametrize(
    "key", ["", environment.DEVELOPMENT_KEY, "django-insecure-abc", "nineteen-characters"]
)
def test_without_debug_a_weak_key_is_refused(key, monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SECRET_KEY", key)
    assert environment.secret_key(debug=True)
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY"):
        environment.secret_key(debug=False)


def test_a_key_is_made_once_and_kept_private(monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.delenv("SECRET_KEY")
    environment.ensure_secret_key()
    key = environment.secret_key(debug=False)
    environment.ensure_secret_key()
    assert environment.secret_key(debug=False) == key
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def test_a_process_without_a_key_ends_with_one_sentence(tmp_path):
    env = {"PATH": os.environ["PATH"], "DATA_DIR": str(tmp_path)}
    manage = Path(environment.BASE_DIR) / "manage.py"
    ended = subprocess.run(
        [sys.executable, manage, "check"], env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("manage.py: SECRET_KEY is unset")
    assert ended.stderr.count("\n") == 1


def test_wrong_addresses_and_names_are_refused(monkeypatch):
    for name, read, wrong in (
        ("PUBLIC_URL", environment.public_url, ("durable.example.org", "ftp://x", "https://", "http://x:y")),
        ("REDIS_URL", environment.redis_url, ("http://x", "localhost:6379", "redis://x:y")),
        ("LOG_LEVEL", environment.log_level, ("LOUD",)),
    ):
        for value in wrong:
            monkeypatch.setenv(name, value)
            with pytest.raises(ImproperlyConfigured, match=name):
                read()
    monkeypatch.setenv("PUBLIC_URL", "https://durable.example.org/")
    monkeypatch.setenv("REDIS_URL", "unix:///run/redis.sock?db=1")
    monkeypatch.setenv("LOG_LEVEL", "debug")
    assert environment.public_url() == "https://durable.example.org"
    assert environment.redis_url() == "unix:///run/redis.sock?db=1" and environment.log_level() == "DEBUG"


@pytest.mark.parametrize(
    ("options", "more", "told"),
    [
        ((), {"WORKFLOW_MODULES": "no.such"}, "WORKFLOW_MODULES names no.such, which cannot be imported"),
        ((), {"DATABASE_URL": "postgresql://a@127.0.0.1:1/b"}, "the database cannot be used: "),
        (("-S",), {}, "this Python has no Django. Use .venv/bin/python manage.py, or make up."),
    ],
)
def test_what_an_operator_must_mend_is_one_sentence(tmp_path, options, more, told):
    env = {
        "PATH": os.environ["PATH"],
        "DATA_DIR": str(tmp_path),
        "SECRET_KEY": "0123456789abcdef" * 4,
        **more,
    }
    manage = Path(environment.BASE_DIR) / "manage.py"
    command = [sys.executable, *options, manage, "migrate"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"manage.py: {told}") and "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("redis", "layer"),
    [
        ("", "channels.layers.InMemoryChannelLayer"),
        ("redis://cache.example.org:6379/3", "channels_redis.pubsub.RedisPubSubChannelLayer"),
    ],
)
def test_what_pages_are_told_goes_through_redis_where_there_is_one(tmp_path, redis, layer):
    env = {
        "PATH": os.environ["PATH"],
        "DATA_DIR": str(tmp_path),
        "SECRET_KEY": "0123456789abcdef" * 4,
        "REDIS_URL": redis,
    }
    told = "from durable_app.settings import *; import json; print(json.dumps(CHANNEL_LAYERS['default']))"
    command = [sys.executable, "-c", told]
    ended = subprocess.run(
        command, cwd=environment.BASE_DIR, env=env, capture_output=True, text=True, check=True
    )
    found = json.loads(ended.stdout)
    assert found["BACKEND"] == layer
    if redis:
        (host,) = found["CONFIG"]["hosts"]
        assert host["address"].startswith(redis)
        assert host["socket_timeout"] is None  # redis-py 8 ends idle connections otherwise
        assert (
            found["CONFIG"]["prefix"] == "durable-3"
        )  # what is published reaches every database of a server
