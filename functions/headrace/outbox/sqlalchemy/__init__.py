"""The outbox for SQLAlchemy: sessions and connections, sync and async.

::

    outbox = SqlAlchemyOutbox(Base.metadata)

    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.enqueue(session, send_receipt, order=42)

Needs ``headrace[sqlalchemy]``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, Unpack

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
from headrace.outbox.table import TABLE, NewRow

with needing("sqlalchemy", "headrace.outbox.sqlalchemy", "sqlalchemy"):
    import sqlalchemy as sa
    from sqlalchemy import event
    from sqlalchemy.orm import Session, SessionTransaction, registry, scoped_session

    from headrace.outbox.sqlalchemy.table import SqlAlchemyTable, outbox_table

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session

P = ParamSpec("P")
Transaction: TypeAlias = (
    "Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any] | sa.Connection"
)

_PENDING: Final = "headrace_outbox_pending"
_LISTENING: Final = "headrace_outbox_listening"


class SqlAlchemyOutbox:
    """Writes tasks into a table of the user's database, in the user's transaction.

    Args:
        metadata: where the table is added, so that it is created and migrated with the others.
        name: the table's.
        schema: the table's, if not the default one.
        codec: how payloads of raw tasks are written; those of task functions as their app says.
        now: the clock, in tests.

    """

    def __init__(
        self,
        metadata: sa.MetaData | None = None,
        *,
        name: str = TABLE,
        schema: str | None = None,
        codec: Codec = PLAIN,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        metadata = sa.MetaData() if metadata is None else metadata
        self.table = outbox_table(metadata, name, schema)
        self._rows = RowMaker(codec, now)
        # Each outbox has a class, because a class is mapped to one table.
        self._entry: type[Any] = type("OutboxEntry", (), {})
        registry(metadata=metadata).map_imperatively(self._entry, self.table)

    def enqueue(
        self, session: Transaction, task: Preparing[P], *args: P.args, **kwargs: P.kwargs
    ) -> str:
        """Write a call of a task function, or of ``function.options(…)``; return its task's id.

        It is enqueued once *session* is committed.  Nothing has to be awaited.

        Raises InvalidRequest naming what is wrong, PayloadTooLarge over 256 KiB: as an enqueue.
        """
        return self._insert(session, self._rows.call(task, *args, **kwargs))[0]

    def enqueue_many(
        self, session: Transaction, task: Preparing[...], calls: Iterable[Mapping[str, Any]]
    ) -> list[str]:
        """Write any number of calls, each given as its arguments by name; ids in order."""
        return self._insert(session, self._rows.calls(task, calls))

    def add(self, session: Transaction, queue: str, task: NewTask) -> str:
        """Write a task of *queue*; return its id.  Raises what `enqueue` does."""
        return self.add_many(session, queue, [task])[0]

    def add_many(self, session: Transaction, queue: str, tasks: Iterable[NewTask]) -> list[str]:
        """Write any number of tasks of *queue*; ids in order."""
        return self._insert(session, self._rows.tasks(queue, tasks))

    def start(
        self,
        session: Transaction,
        workflow: Workflow[Any] | CallGroup[Any],
        *,
        id: str | None = None,
    ) -> str:
        """Write the start of a workflow, chain, group or chord; return the id of the workflow.

        Raises InvalidRequest as `Workflow.start`.
        """
        return self._insert(session, self._rows.workflow(workflow, id))[0]

    def batch(
        self,
        session: Transaction,
        calls: Iterable[SpawnedTask],
        *,
        id: str | None = None,
        **callbacks: Unpack[BatchCallbacks],
    ) -> str:
        """Write a batch with *calls* as its members; return its id.

        Raises InvalidRequest for no calls, and what `enqueue` does.
        """
        return self._insert(session, self._rows.batch(calls, id, **callbacks))[0]

    def open(self, engine: "sa.Engine | AsyncEngine") -> "SqlAlchemyTable":
        """Return the outbox in the database of *engine*, to look at it or relay it."""
        return SqlAlchemyTable(engine, self.table)

    def relay(
        self, engine: "sa.Engine | AsyncEngine", to: Client | App, *, interval: float = INTERVAL
    ) -> Relay:
        """Return a relay of the outbox in the database of *engine*: see `Relay`."""
        return Relay(self.open(engine), to, interval=interval)

    def _insert(self, session: Transaction, rows: Sequence[NewRow]) -> list[str]:
        values = [{**asdict(row), "attempts": 0} for row in rows]
        target = _sync(session)
        if isinstance(target, sa.Connection):
            if values:
                target.execute(sa.insert(self.table), values)
        else:
            for one in values:
                entry = self._entry()
                for name, value in one.items():
                    setattr(entry, name, value)
                target.add(entry)
            _wake_after(target)
        return [row.task_id for row in rows]


def _sync(session: Transaction) -> Session | sa.Connection:
    """Return the session or connection of *session*.  Raises TypeError for no transaction."""
    found: Any = session
    if hasattr(found, "registry"):  # a scoped session
        found = found()
    found = getattr(found, "sync_session", found)
    if hasattr(found, "sync_connection"):
        raise TypeError(
            "an AsyncConnection waits for its answers: "
            "write `await connection.run_sync(outbox.enqueue, …)`"
        )
    if not isinstance(found, Session | sa.Connection):
        raise TypeError(f"session must be one of SQLAlchemy, not {type(session).__name__}")
    return found


def _wake_after(session: Session) -> None:
    """Wake the relays of this process once the transaction of *session* has ended."""
    session.info[_PENDING] = True
    if not session.info.get(_LISTENING):
        session.info[_LISTENING] = True
        event.listen(session, "after_transaction_end", _ended)


def _ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None and session.info.pop(_PENDING, False):
        wake_relays()
