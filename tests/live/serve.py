"""`manage.py up` on the test's database, which is prepared: no demo people, whose passwords take long to hash."""

from __future__ import annotations

import sys
from contextlib import suppress

import django
from django.core.management.base import OutputWrapper


def main() -> None:
    """Serves until SIGTERM."""
    django.setup()
    from durable_app import up

    up.prepare = list
    with suppress(KeyboardInterrupt):
        up.up("127.0.0.1", 0, OutputWrapper(sys.stdout))


if __name__ == "__main__":
    main()
