"""The outbox for Django: an app with a model, written in the transaction of its database.

::

    INSTALLED_APPS = [..., "headrace.outbox.django"]

    outbox = DjangoOutbox()

    with transaction.atomic():
        Order.objects.create(id=42)
        outbox.enqueue(send_receipt, order=42)

Needs ``headrace[django]``.  Its model is loaded with the first row, when Django is ready.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack

from headrace import needing
from headrace.client.app.app import App
from headrace.client.chains import CallGroup
from headrace.client.client import Client
from headrace.client.codec import PLAIN, Codec
from headrace.client.sending import NewTask, SpawnedTask
from headrace.client.settings import utc_now
from headrace.client.workflows import Workflow
from headrace.outbox.relay import INTERVAL, Relay, wake_relays
from headrace.outbox.rows import BatchCallbacks, Preparing, RowMaker
from headrace.outbox.table import NewRow

with needing("django", "headrace.outbox.django", "django"):
    from django.db import transaction

if TYPE_CHECKING:
    from headrace.outbox.django.table import DjangoTable

P = ParamSpec("P")


class DjangoOutbox:
    """Writes tasks into a table of Django's, in the transaction that is open.

    Args:
        using: the database, as ``DATABASES`` calls it.
        codec: how payloads of raw tasks are written; those of task functions as their app says.
        now: the clock, in tests.

    """

    def __init__(
        self,
        *,
        using: str = "default",
        codec: Codec = PLAIN,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._using, self._rows = using, RowMaker(codec, now)

    def enqueue(self, task: Preparing[P], *args: P.args, **kwargs: P.kwargs) -> str:
        """Write a call of a task function, or of ``function.options(…)``; return its task's id.

        It is enqueued once the transaction is committed; outside of any, that is now.

        Raises InvalidRequest naming what is wrong, PayloadTooLarge over 256 KiB: as an enqueue.
        """
        return self._insert(self._rows.call(task, *args, **kwargs))[0]

    def enqueue_many(self, task: Preparing[...], calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """Write any number of calls, each given as its arguments by name; ids in order."""
        return self._insert(self._rows.calls(task, calls))

    def add(self, queue: str, task: NewTask) -> str:
        """Write a task of *queue*; return its id.  Raises what `enqueue` does."""
        return self.add_many(queue, [task])[0]

    def add_many(self, queue: str, tasks: Iterable[NewTask]) -> list[str]:
        """Write any number of tasks of *queue*; ids in order."""
        return self._insert(self._rows.tasks(queue, tasks))

    def start(self, workflow: Workflow[Any] | CallGroup[Any], *, id: str | None = None) -> str:
        """Write the start of a workflow, chain, group or chord; return the id of the workflow.

        Raises InvalidRequest as `Workflow.start`.
        """
        return self._insert(self._rows.workflow(workflow, id))[0]

    def batch(
        self,
        calls: Iterable[SpawnedTask],
        *,
        id: str | None = None,
        **callbacks: Unpack[BatchCallbacks],
    ) -> str:
        """Write a batch with *calls* as its members; return its id.

        Raises InvalidRequest for no calls, and what `enqueue` does.
        """
        return self._insert(self._rows.batch(calls, id, **callbacks))[0]

    def open(self) -> "DjangoTable":
        """Return the outbox, to look at it or relay it."""
        from headrace.outbox.django.table import DjangoTable  # noqa: PLC0415 (once Django is ready)

        return DjangoTable(self._using)

    def relay(self, to: Client | App, *, interval: float = INTERVAL) -> Relay:
        """Return a relay of the outbox: see `Relay`."""
        return Relay(self.open(), to, interval=interval)

    def _insert(self, rows: Sequence[NewRow]) -> list[str]:
        self.open().insert(rows)
        transaction.on_commit(wake_relays, using=self._using)
        return [row.task_id for row in rows]
