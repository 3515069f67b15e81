"""How long the models look: a little in every run of the suite, long with `make model`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_TIMES = int(os.environ.get("MODEL_TIMES", "1"))


def examples(few: int, *, steps: int = 50) -> settings:
    """Settings for so many examples, times MODEL_TIMES. A failure prints how to see it again.

    Making it small takes minutes, so that is left to `make model`.
    """
    return settings(
        max_examples=few * _TIMES,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        phases=[phase for phase in Phase if _TIMES > 1 or phase not in (Phase.shrink, Phase.explain)],
        suppress_health_check=list(HealthCheck),
    )
