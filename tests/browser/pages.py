"""Every page that there is, each with something on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tests.browser.product import Site


@dataclass(frozen=True)
class Visit:
    """Somebody opens a page."""

    name: str
    person: str
    tolerated: tuple[str, ...] = ()


PAGES = (
    Visit("sign-in", ""),
    Visit("inbox", "vera"),
    Visit("inbox-all", "rita"),
    Visit("inbox-decided", "vera"),
    Visit("inbox-empty", "olaf"),
    Visit("approval", "vera"),
    Visit("approval-not-mine", "rita"),
    Visit("approval-decided", "vera"),
    Visit("runs", "olaf"),
    Visit("runs-filtered", "rita"),
    Visit("run-waiting", "rita"),
    Visit("run-done", "rita"),
    Visit("run-stopped", "olaf"),
    Visit("workflows", "rita"),
    Visit("start", "rita"),
    Visit("reconciliations", "olaf"),
    Visit("not-found", "vera", ("status of 404",)),
    Visit("forbidden", "vera", ("status of 403",)),
)


@cache
def addresses(site: Site) -> Mapping[str, str]:
    """Where they are; what they show is made once for each installation."""
    waiting = site.ask("browser-letter", {"to": "the council", "body": "A line.\n" * 12})
    decided = site.ask("browser-letter", {"to": "the harbour"})
    site.decide(decided, "approved", reviewer="sam", comment="As agreed on Monday.")
    site.ended(decided["run_id"])
    stopped = site.start("browser-broken", 1)
    site.stopped(stopped)
    return {
        "sign-in": "/sign-in/",
        "inbox": "/",
        "inbox-all": "/?show=all",
        "inbox-decided": "/?show=decided",
        "inbox-empty": "/?show=mine",
        "approval": f"/approvals/{waiting['id']}/",
        "approval-not-mine": f"/approvals/{waiting['id']}/",
        "approval-decided": f"/approvals/{decided['id']}/",
        "runs": "/runs/",
        "runs-filtered": "/runs/?workflow=browser-letter",
        "run-waiting": f"/runs/{waiting['run_id']}/",
        "run-done": f"/runs/{decided['run_id']}/",
        "run-stopped": f"/runs/{stopped}/",
        "workflows": "/workflows/",
        "start": "/workflows/browser-form/start/",
        "reconciliations": "/reconciliations/",
        "not-found": f"/runs/{stopped[:-4]}0000/",
        "forbidden": "/workflows/browser-letter/start/",
    }
