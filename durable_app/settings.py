"""The site's settings, all from the environment; README lists the variables."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from django.utils.csp import CSP

from durable_app import environment

# What a deployment decides.

DEBUG = environment.boolean("DEBUG")
SECRET_KEY = environment.secret_key(debug=DEBUG)
DATA_DIR = environment.data_dir()
DATABASES = {"default": environment.database(os.environ.get("DATABASE_URL", ""))}
REDIS_URL = environment.redis_url()
PUBLIC_URL = environment.public_url()
MAILERS = {"default": environment.mailer(os.environ.get("EMAIL_URL", ""))}
WORKFLOW_MODULES = environment.names("WORKFLOW_MODULES")

APPROVALS_WORKER_THREADS = environment.integer("WORKER_THREADS", 4)
APPROVALS_LEASE_SECONDS = environment.integer("LEASE_SECONDS", 15)
# approvals/limits.py has every limit, its default and its unit; here stands what differs, or what Django needs.
APPROVALS_LIMITS = {"body_bytes": 1_000_000}

# Applications and what stands around them.

INSTALLED_APPS = [
    "approvals.apps.ApprovalsConfig",
    "durable_app",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    # Outside of what may refuse a request, so that refusals bring these headers too.
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "durable_app.reading.Readable",
    "durable_app.static.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [environment.BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.csp",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["approvals.web.tags"],
        },
    }
]

ROOT_URLCONF = "durable_app.urls"
ASGI_APPLICATION = "durable_app.asgi.application"
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "inbox"

# Redis carries hints, deliveries and housekeeping; without it, threads of this process do.
if REDIS_URL:
    INSTALLED_APPS.append("django_rq")
    # A hint is not worth waiting for: an unreachable Redis is given up after two seconds.
    _url = f"{REDIS_URL}{'&' if '?' in REDIS_URL else '?'}socket_connect_timeout=2"
    RQ_QUEUES = {"default": {"URL": _url, "DEFAULT_TIMEOUT": 300}}

# What open pages are told of changes goes through Redis, or stays in the one process that serves and works.
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
if REDIS_URL:
    from redis.connection import parse_url

    CHANNEL_LAYERS["default"] = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {
            # redis-py 8 would end a socket on which nothing was said for five seconds.
            "hosts": [{"address": _url, "socket_timeout": None}],
            # What is published reaches every database of a server; each is another deployment's.
            "prefix": f"durable-{parse_url(REDIS_URL).get('db', 0)}",  # type: ignore[no-untyped-call]
        },
    }

# Files.

STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": DATA_DIR / "objects"},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATIC_URL = "static/"
STATICFILES_DIRS = [environment.BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True  # straight from the packages: no collectstatic that can be forgotten
WHITENOISE_ALLOW_ALL_ORIGINS = False

# Safety.

_public = urlsplit(PUBLIC_URL)
_is_https = _public.scheme == "https"
ALLOWED_HOSTS = list(environment.names("ALLOWED_HOSTS")) or [
    _public.hostname or "",
    "localhost",
    "127.0.0.1",
    "[::1]",
]
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"]
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE = SECURE_SSL_REDIRECT = _is_https
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz)$"]  # asked by machines, from inside, in plain HTTP
SECURE_HSTS_SECONDS = 31_536_000 if _is_https else 0
SILENCED_SYSTEM_CHECKS = [
    "security.W005",  # whether other hosts of the domain are HTTPS only is for their owner to say
    "security.W021",
    "mail.E001",  # mail goes to standard output until EMAIL_URL is set
]
SECURE_CSP: dict[str, Any] = {
    "default-src": [CSP.SELF],
    "style-src": [CSP.SELF, CSP.NONCE],  # the admin's change list has one inline style, with a nonce
    "object-src": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "form-action": [CSP.SELF],
    "frame-ancestors": [CSP.NONE],
}
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = APPROVALS_LIMITS["body_bytes"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

# Time and words.

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
DEFAULT_FROM_EMAIL = f"Durable <durable@{_public.hostname}>"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s", "datefmt": "%Y-%m-%dT%H:%M:%S%z"}
    },
    "filters": {"unread": {"()": "durable_app.reading.Unread"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": environment.log_level()},
    # Django's own would write to a terminal only under DEBUG, and mail the admins.
    "loggers": {
        "django": {"handlers": [], "level": "NOTSET", "propagate": True},
        "uvicorn.error": {"filters": ["unread"]},
        "rq": {"level": "WARNING"},  # three lines for each hint would say nothing
    },
}
