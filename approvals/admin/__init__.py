"""Windows for operators: everything to be seen, nothing to be changed but through the services.

Each module shows one family of tables; `base` is what they share, `show` how values look. `desk` is the
reconciliation desk. Nothing here runs an author's code: pages ask, a worker probes.
"""

from approvals.admin import desk, effects, people, policies, runs, work, workers

__all__ = ["desk", "effects", "people", "policies", "runs", "work", "workers"]
