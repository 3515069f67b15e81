"""Connections cut at a named message: on the COMMIT of a decision, and anywhere in a worker (CASES 36)."""

from __future__ import annotations

from approvals.testing import wait_for
from tests.chaos import flows
from tests.chaos.proxy import Session, When
from tests.chaos.registry import cell
from tests.chaos.site import Person
from tests.chaos.stage import Stage

DECISIONS = 12
EVERY_STATEMENTS = 60


@cell("commit-cut-before", has_proxy=True)
def before(stage: Stage) -> None:
    """The connection is lost on the COMMIT of a decision that does not land: sent again, it is taken."""
    _decide_while_cut(stage, "before")


@cell("commit-cut-after", has_proxy=True)
def after(stage: Stage) -> None:
    """The connection is lost on the COMMIT of a decision that lands: sent again, the person is told the truth."""
    _decide_while_cut(stage, "after")


def _decide_while_cut(stage: Stage, when: When) -> None:
    stage.site.web(DATABASE_URL=stage.proxied)
    stage.site.worker()
    vera, sam = (Person(stage.site.address, f"{name}-reviewers") for name in ("vera", "sam"))
    for _ in range(DECISIONS):
        stage.start(flows.refund)
    wait_for(lambda: len(stage.open_approvals()) == DECISIONS)
    with stage:
        for n, wait_id in enumerate(stage.open_approvals()):
            cuts = [when]

            def wants(session: Session, sql: str, cuts: list[When] = cuts) -> When | None:
                is_decision = any("INSERT INTO approvals_decision" in said for said in session.transaction)
                return cuts.pop() if sql == "COMMIT" and is_decision and cuts else None

            earlier = stage.proxy.cuts[when]
            with stage.proxy.cutting(wants):
                if n % 2:
                    answer = stage.decide(vera, wait_id)
                    stage.expect(answer.statuses == [503, 303], f"told {answer.statuses}")
                else:
                    _another_comes_first(stage, when, vera, sam, wait_id)
            stage.fired[f"cut {when} the COMMIT"] += stage.proxy.cuts[when] - earlier
    stage.expect(stage.fired[f"cut {when} the COMMIT"] == DECISIONS, "not every decision was cut")


def _another_comes_first(stage: Stage, when: When, vera: Person, sam: Person, wait_id: object) -> None:
    """Vera is left without an answer; sam decides before she comes back, or tries to. Both hear what is so."""
    sheet = stage.form(wait_id)
    status, *_ = vera.post(f"/approvals/{wait_id}/", **sheet)
    stage.expect(status == 503, f"a lost decision was answered {status}")
    status, text, _ = sam.post(f"/approvals/{wait_id}/", **sheet)
    if when == "before":
        stage.expect(status == 303, f"nobody had decided, and sam was answered {status}")
        status, text, _ = vera.post(f"/approvals/{wait_id}/", **sheet)
        stage.expect(
            status == 409 and "sam-reviewers had already approved" in text, f"vera was told {status}"
        )
        return
    stage.expect(status == 409 and "vera-reviewers had already approved" in text, f"sam was told {status}")
    status, text, _ = vera.post(f"/approvals/{wait_id}/", **{**sheet, "outcome": "rejected"})
    stage.expect(status == 409 and "vera-reviewers had already approved" in text, f"vera, later: {status}")


@cell("cut-anywhere", has_proxy=True)
def anywhere(stage: Stage) -> None:
    """A worker's connections are cut at every 60th statement, prepared ones too, before and after it is done."""
    for _ in range(2):
        stage.site.worker(DATABASE_URL=stage.proxied)
    count = 0

    def wants(session: Session, sql: str) -> When | None:
        nonlocal count
        count += 1
        if count % EVERY_STATEMENTS:
            return None
        when: When = "after" if count // EVERY_STATEMENTS % 2 else "before"
        kind = "a prepared statement" if session.bound == sql else sql.split()[0]
        stage.fired[f"cut {when} {kind if kind in ('COMMIT', 'a prepared statement') else 'another'}"] += 1
        return when

    with stage, stage.proxy.cutting(wants), stage.starting(flows.order, flows.mail, every_seconds=0.15):
        stage.pass_time(30)
