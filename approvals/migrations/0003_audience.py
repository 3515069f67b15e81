import json
from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def ask_those_who_were_asked(apps: Any, schema_editor: Any) -> None:
    """Approvals that are open already reach the same people's inboxes."""
    audience = apps.get_model("approvals", "Audience")
    approvals = apps.get_model("approvals", "Approval").objects.select_related("policy")
    for approval in approvals.filter(wait__status="open").iterator():
        body = json.loads(approval.policy.body)
        stages = body["rules"][approval.rule].get("stages", [])
        asked = {source for stage in stages for source in stage["from"]}
        audience.objects.bulk_create(audience(approval=approval, source=source) for source in sorted(asked))
        if not {"requester", "starter"} & set(body["exclude"]):
            approval.excludes_requester = False
            approval.save(update_fields=["excludes_requester"])


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0002_postgresql"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Audience",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "source", "approval", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("source", models.TextField()),
                (
                    "approval",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="audience",
                        to="approvals.approval",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="approval",
            name="excludes_requester",
            field=models.BooleanField(
                default=True, help_text="Whether its policy keeps whoever asked for the run from deciding."
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("requester__isnull", False)),
                fields=["requester", "id"],
                name="run_requester",
            ),
        ),
        migrations.RunPython(ask_those_who_were_asked, migrations.RunPython.noop),
    ]
