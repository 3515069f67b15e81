"""The web process."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durable_app.settings")
# Only here: a forked worker would share the pool's sockets.
os.environ.setdefault("DATABASE_POOL", "8")

application = get_asgi_application()
