"""What PostgreSQL needs besides tables: the clock as a function, and room on the pages of hot rows."""

from typing import Any

from django.db import migrations

FORWARD = [
    """CREATE FUNCTION approvals_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
       SELECT clock_timestamp() + coalesce((SELECT shift FROM approvals_clock WHERE id = 1), interval '0') $$""",
    "ALTER TABLE approvals_run SET (fillfactor = 70)",
    "ALTER TABLE approvals_worker SET (fillfactor = 50)",
]
BACKWARD = ["DROP FUNCTION approvals_now()"]


def _run(statements: list[str]) -> Any:
    def apply(apps: Any, schema_editor: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            for statement in statements:
                schema_editor.execute(statement)

    return apply


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial")]
    operations = [migrations.RunPython(_run(FORWARD), _run(BACKWARD))]
