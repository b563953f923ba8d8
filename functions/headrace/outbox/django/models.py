"""A row of the outbox, as Django's model: the same table as that for SQLAlchemy."""

from typing import ClassVar

from django.db import models

from headrace.outbox.table import ERROR_LENGTH, TABLE


class OutboxEntry(models.Model):
    """A task that waits for a relay; read it, and leave changes to `headrace outbox`."""

    seq = models.BigAutoField(primary_key=True)
    task_id = models.CharField(max_length=64)
    queue = models.CharField(max_length=128)
    entry = models.TextField()
    created_at = models.DateTimeField()
    attempts = models.IntegerField(default=0)
    error = models.CharField(max_length=ERROR_LENGTH, null=True)  # noqa: DJ001 (null: no error yet)
    refused_at = models.DateTimeField(null=True)

    class Meta:
        """Where it is kept, and how it is searched."""

        db_table = TABLE
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["refused_at", "seq"], name=f"{TABLE}_waiting")
        ]
        verbose_name_plural = "outbox entries"

    def __str__(self) -> str:
        """A short form, without the payload."""
        return f"{self.task_id} for {self.queue}"
