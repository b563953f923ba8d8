"""The table of the outbox."""

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Create it."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="OutboxEntry",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("task_id", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=128)),
                ("entry", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("attempts", models.IntegerField(default=0)),
                ("error", models.CharField(max_length=1000, null=True)),
                ("refused_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "headrace_outbox",
                "verbose_name_plural": "outbox entries",
                "indexes": [
                    models.Index(fields=["refused_at", "seq"], name="headrace_outbox_waiting")
                ],
            },
        ),
    ]
