"""The tests' settings, with a channel layer that notes what it is told."""

from __future__ import annotations

from durable_app.settings_test import *  # noqa: F403
from tests.live.layers import Noting, configured

CHANNEL_LAYERS = configured(Noting)
