import json
from typing import Any

from django.db import migrations, models
from django.db.models import Count, F, Q


def count_what_was_decided(apps: Any, schema_editor: Any) -> None:
    """Until now every approval had one stage with one need."""
    approval = apps.get_model("approvals", "Approval")
    standing = Q(
        decisions__outcome="approved",
        decisions__counted=True,
        decisions__withdrawn_at=None,
        decisions__revision=F("revision"),
    )
    decided = approval.objects.annotate(yes=Count("decisions", filter=standing)).filter(
        yes__gt=0, needed__gt=0
    )
    for row in decided.only("needed").iterator():
        approval.objects.filter(pk=row.pk).update(progress=json.dumps([[min(row.yes, row.needed)]]))


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0005_unwinding"),
    ]

    operations = [
        migrations.AddField(
            model_name="approval",
            name="progress",
            field=models.TextField(
                blank=True,
                default="[]",
                help_text="JSON: how many approvals count, by stage and need.",
            ),
        ),
        migrations.RunPython(count_what_was_decided, migrations.RunPython.noop),
    ]
