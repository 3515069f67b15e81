from django.conf import settings
from django.db import migrations, models

from approvals.states import RunStatus


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0003_audience"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status__in", (RunStatus.PAUSED, RunStatus.FAILED, RunStatus.CANCELLED))),
                fields=["status", "id"],
                name="run_seldom",
            ),
        ),
        migrations.AddIndex(
            model_name="wait",
            index=models.Index(
                condition=models.Q(("kind", "approval"), ("status", "open")),
                fields=["due_at", "id"],
                name="wait_in_inbox",
            ),
        ),
        migrations.AddIndex(
            model_name="wait",
            index=models.Index(
                condition=models.Q(("closed_at__isnull", False), ("kind", "approval")),
                fields=["closed_at", "id"],
                name="wait_decided",
            ),
        ),
    ]
