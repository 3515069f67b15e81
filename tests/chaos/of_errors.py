"""PostgreSQL's refusals: a victim of a deadlock or of serialisation, a statement that took too long, a full disk."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from approvals.models import Wait
from approvals.testing import wait_for
from tests.chaos import flows
from tests.chaos.registry import cell
from tests.chaos.site import Person, patiently, thread
from tests.chaos.stage import Stage

EVERY_STATEMENTS = 40
TABLES = ("run", "entry", "effect", "wait", "approval", "decision", "worker", "outbox")
_FAIL = """
CREATE SEQUENCE chaos_seen; CREATE SEQUENCE chaos_turn;
CREATE SEQUENCE chaos_40001; CREATE SEQUENCE chaos_40p01; CREATE SEQUENCE chaos_57014; CREATE SEQUENCE chaos_53100;
CREATE FUNCTION chaos_fail() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE codes text[] := ARRAY['40001', '40P01', '57014', '53100']; code text;
BEGIN
  IF nextval('chaos_seen') %% {every} = 0 THEN
    code := codes[1 + nextval('chaos_turn') %% 4];
    PERFORM nextval('chaos_' || lower(code));
    RAISE EXCEPTION 'chaos' USING ERRCODE = code;
  END IF;
  RETURN NULL;
END $$;
"""
_AT_COMMIT = """
CREATE CONSTRAINT TRIGGER chaos_commit AFTER INSERT ON approvals_entry DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION chaos_fail();
"""


@cell("errors-at-statements")
def at_statements(stage: Stage) -> None:
    """Every 40th write, or its COMMIT, fails by the server's own word: 40001, 40P01, 57014, 53100 in turn."""
    stage.site.worker()
    stage.site.worker()
    stage.site.web()
    sql = _FAIL.replace("%%", "%").format(every=EVERY_STATEMENTS) + _AT_COMMIT
    for table in TABLES:
        sql += f"CREATE TRIGGER chaos BEFORE INSERT OR UPDATE OR DELETE ON approvals_{table} "
        sql += "EXECUTE FUNCTION chaos_fail();"
    stage.postgres.ask(sql, name=stage.database)
    with stage.deciding():
        with stage, stage.starting(flows.order, flows.refund):
            stage.pass_time(25)
        for code in ("40001", "40P01", "57014", "53100"):
            ((times,),) = stage.postgres.ask(
                f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM chaos_{code.lower()}",
                name=stage.database,
            )
            stage.fired[code] += times
        stage.postgres.ask("DROP FUNCTION chaos_fail CASCADE", name=stage.database)
        stage.settle()


@cell("deadlock")
def deadlock(stage: Stage) -> None:
    """A decision is the victim of a real deadlock: nothing is taken, and sent again it is."""
    stage.site.worker()
    stage.site.web()
    for _ in range(4):
        stage.start(flows.refund)
    wait_for(lambda: len(stage.open_approvals()) == 4)
    vera = Person(stage.site.address, "vera-reviewers")
    with stage:
        for wait_id in stage.open_approvals():
            run_id = patiently(lambda: Wait.objects.get(pk=wait_id).run_id)  # noqa: B023
            with psycopg.connect(stage.postgres.url(stage.database)) as other:
                other.execute("SET deadlock_timeout = '60s'")  # the first to look is the victim
                other.execute("SELECT 1 FROM approvals_wait WHERE id = %s FOR UPDATE", [wait_id])
                with thread(lambda _: _decide(stage, vera, wait_id)):  # noqa: B023
                    wait_for(lambda: _waits_for_a_lock(stage))
                    other.execute("SELECT 1 FROM approvals_run WHERE id = %s FOR UPDATE", [run_id])
                    other.rollback()
            stage.expect(stage.answers[-1].statuses == [503, 303], f"told {stage.answers[-1].statuses}")
    sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = %s"
    stage.fired["deadlock"] += stage.postgres.ask(sql, stage.database)[0][0]


def _decide(stage: Stage, person: Person, wait_id: object) -> None:
    stage.decide(person, wait_id)


def _waits_for_a_lock(stage: Stage) -> bool:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    return bool(stage.postgres.ask(sql, stage.database)[0][0])


@cell("statement-timeout")
def statement_timeout(stage: Stage) -> None:
    """Statements may take 300 ms, and the journal's table is locked for a second again and again."""
    stage.postgres.ask(f"ALTER DATABASE {stage.database} SET statement_timeout = '300ms'")
    stage.site.worker()
    stage.site.worker()
    stage.site.web()
    with stage.deciding():
        with stage, stage.starting(flows.order, flows.refund):
            for _ in range(8):
                stage.pass_time(1.5)
                with psycopg.connect(stage.postgres.url(stage.database)) as other:
                    other.execute("SET statement_timeout = '60s'")
                    other.execute("LOCK TABLE approvals_entry IN SHARE MODE")
                    stage.pass_time(1)
        stage.settle()
    stage.fired["57014"] += stage.site.said("canceling statement due to statement timeout")


@cell("disk-full", tablespace_megabytes=40)
def disk_full(stage: Stage) -> None:
    """The disk of the tables fills up (ENOSPC) and gets room again, three times."""
    stage.site.worker()
    stage.site.worker()
    stage.site.web()
    with stage.deciding():
        with stage, stage.starting(flows.order, flows.refund, every_seconds=0.1):
            for _ in range(3):
                stage.pass_time(3)
                _fill(stage, lambda: stage.pass_time(6))
        stage.settle()
    stage.fired["53100"] += stage.site.said("No space left on device")


def _fill(stage: Stage, meanwhile: Callable[[], None]) -> None:
    ballast = stage.disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
    except OSError:
        meanwhile()
    finally:
        ballast.unlink()
