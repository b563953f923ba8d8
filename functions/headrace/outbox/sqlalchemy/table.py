"""The table of an outbox in a database of SQLAlchemy."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import MEDIUMTEXT
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from headrace.client.app import checks
from headrace.client.settings import utc_now
from headrace.domain.errors import HeadraceError, InvalidRequest, NotFound, Unavailable
from headrace.outbox.table import (
    ERROR_LENGTH,
    TABLE,
    OutboxRow,
    OutboxState,
    Send,
    SettledRows,
    read_rows,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

_LOCKING: Final = ("postgresql", "mysql", "mariadb")
"""Databases in which relays skip each other's rows.  In others two relays may send a row, which the
service recognizes by its id."""

_ENTRY: Final = sa.Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")  # their text is 64 KiB


def outbox_table(metadata: sa.MetaData, name: str = TABLE, schema: str | None = None) -> sa.Table:
    """Add the table of an outbox to *metadata*."""
    return sa.Table(
        name,
        metadata,
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("task_id", sa.String(64), nullable=False),
        sa.Column("queue", sa.String(128), nullable=False),
        sa.Column("entry", _ENTRY, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, default=0),
        sa.Column("error", sa.String(ERROR_LENGTH)),
        sa.Column("refused_at", sa.DateTime(timezone=True)),
        sa.Index(f"{name}_waiting", "refused_at", "seq"),
        schema=schema,
        sqlite_autoincrement=True,  # so that no number is given twice
    )


class SqlAlchemyTable:
    """The table of an outbox in one database: see `headrace.outbox.table.OutboxTable`.

    Raises InvalidRequest for an async *engine* with a pool: its connections belong to the event
    loop that opened them, and the relay runs its own loops.
    """

    def __init__(
        self,
        engine: "sa.Engine | AsyncEngine",
        table: sa.Table,
        *,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._engine, self._table, self._now = engine, table, now
        self.name = f"{table.name} of {engine.url.render_as_string(hide_password=True)}"
        self._locks = engine.dialect.name in _LOCKING
        if not isinstance(engine, sa.Engine) and not isinstance(engine.pool, NullPool):
            raise checks.wrong(
                "engine", "must be made with poolclass=NullPool if it is async, or from a URL"
            )

    def settle(self, limit: int, without: Collection[str], send: Send) -> Sequence[OutboxRow]:
        """Send waiting rows, in one transaction if the database locks rows."""
        waiting = self._select().where(self._table.c.refused_at.is_(None)).limit(limit)
        if without:
            waiting = waiting.where(self._table.c.queue.not_in(without))

        def locked(connection: sa.Connection) -> Sequence[OutboxRow]:
            rows = read_rows(connection.execute(waiting.with_for_update(skip_locked=True)), _aware)
            self._write(connection, rows, send(rows))
            return rows

        if self._locks:
            return self._run(locked)
        rows = self._run(lambda connection: read_rows(connection.execute(waiting), _aware))
        if rows:
            settled = send(rows)
            self._run(lambda connection: self._write(connection, rows, settled))
        return rows

    def state(self) -> OutboxState:
        """Count the rows."""
        refused_at, created_at = self._table.c.refused_at, self._table.c.created_at
        count = sa.select(
            sa.func.count().filter(refused_at.is_(None)),
            sa.func.count(refused_at),
            sa.func.min(created_at).filter(refused_at.is_(None)),
        )
        waiting, refused, oldest = self._run(lambda connection: connection.execute(count).one())
        return OutboxState(waiting, refused, _aware(oldest))

    def rows(
        self,
        *,
        refused: bool = False,
        ids: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[OutboxRow]:
        """Return rows in order, or only those refused, or those of the tasks named."""
        which = self._select().limit(limit)
        if refused:
            which = which.where(self._table.c.refused_at.is_not(None))
        if ids is not None:
            which = which.where(self._table.c.task_id.in_(ids))
        return self._run(lambda connection: read_rows(connection.execute(which), _aware))

    def retry(self, ids: Collection[str] | None = None) -> int:
        """Let refused rows wait again: those of the tasks named, or all."""
        again = sa.update(self._table).where(self._table.c.refused_at.is_not(None))
        if ids is not None:
            again = again.where(self._table.c.task_id.in_(ids))
        again = again.values(refused_at=None)
        return self._run(lambda connection: connection.execute(again).rowcount)

    def delete(self, ids: Collection[str]) -> int:
        """Delete the rows of the tasks named."""
        gone = sa.delete(self._table).where(self._table.c.task_id.in_(ids))
        return self._run(lambda connection: connection.execute(gone).rowcount)

    def create(self) -> None:
        """Create the table unless it is there."""
        self._run(lambda connection: self._table.create(connection, checkfirst=True), create=True)

    def close(self) -> None:
        """Close idle connections."""
        if isinstance(self._engine, sa.Engine):
            self._engine.dispose()  # an async one has none

    def _select(self) -> sa.Select[Any]:
        return sa.select(self._table).order_by(self._table.c.seq)

    def _write(
        self, connection: sa.Connection, rows: Sequence[OutboxRow], settled: SettledRows
    ) -> None:
        for fault, some in settled.by_fault(rows).items():
            these = self._these(some)
            if fault is None:
                connection.execute(sa.delete(self._table).where(these))
                continue
            note = sa.update(self._table).where(these)
            connection.execute(
                note.values(
                    attempts=self._table.c.attempts + 1,
                    error=fault.error[:ERROR_LENGTH],
                    refused_at=self._now() if fault.refused else None,
                )
            )

    def _these(self, rows: Sequence[OutboxRow]) -> sa.ColumnElement[bool]:
        """Return the condition for *rows*; without locks, a number may now be of another row."""
        return self._table.c.seq.in_([row.seq for row in rows]) & self._table.c.task_id.in_(
            [row.task_id for row in rows]
        )

    def _run(self, do: Callable[[sa.Connection], T], *, create: bool = False) -> T:
        """Run *do* in a new transaction.  Raises NotFound, Unavailable."""
        if not create and _is_missing_file(self._engine.url):
            raise self._no_table()

        def transact(connection: sa.Connection) -> T:
            if self._locks:  # MySQL's default level would block inserts after the last row
                connection = connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                return do(connection)

        with self._errors():
            return self._connected(transact)

    def _connected(self, do: Callable[[sa.Connection], T]) -> T:
        """Call *do* with a connection, in a new event loop if the engine is async."""
        engine = self._engine
        if isinstance(engine, sa.Engine):
            with engine.connect() as connection:
                return do(connection)

        async def connected() -> T:
            async with engine.connect() as connection:
                return await connection.run_sync(do)

        return asyncio.run(connected())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except HeadraceError:
            raise
        except DBAPIError as error:
            if self._is_missing():
                raise self._no_table() from None
            raise _away(error.orig or error) from None  # the statement names what is in the rows
        except (PoolTimeout, OSError) as error:
            raise _away(error) from None

    def _no_table(self) -> NotFound:
        return NotFound(
            f"there is no table {self._table.name}: create it with your migrations, "
            "or with `headrace outbox create`"
        )

    def _is_missing(self) -> bool:
        def look(connection: sa.Connection) -> bool:
            return sa.inspect(connection).has_table(self._table.name, self._table.schema)

        try:
            return not self._connected(look)
        except (DBAPIError, PoolTimeout, OSError):
            return False


def _is_missing_file(url: sa.URL) -> bool:
    """Whether *url* is of a file of SQLite's that is not there: to connect would make it."""
    name = url.database
    if url.get_backend_name() != "sqlite" or not name or name.startswith((":memory:", "file:")):
        return False
    return not Path(name).exists() and Path(name).parent.is_dir()


def _away(error: BaseException) -> Unavailable:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return Unavailable(f"the database of the outbox cannot be used: {first}")


def _aware(moment: datetime | None) -> datetime | None:
    """Return *moment* with its zone, which some databases leave out."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)


def open_url(url: str, *, name: str = TABLE, schema: str | None = None) -> SqlAlchemyTable:
    """Return the outbox in the database at *url*.

    Raises InvalidRequest, which does not show the URL, if there can be none.
    """
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in {"postgres", "postgresql"} and find_spec("psycopg"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        is_async = parsed.get_dialect().is_async
        engine: Any
        if is_async:
            from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 (needs greenlet)

            engine = create_async_engine(parsed, poolclass=NullPool, hide_parameters=True)
        else:
            engine = sa.create_engine(parsed, pool_pre_ping=True, hide_parameters=True)
    except (ArgumentError, NoSuchModuleError):
        raise InvalidRequest.of(
            "outbox", "must be a database's URL, as postgresql://user@host/database"
        ) from None
    except ModuleNotFoundError as error:
        raise InvalidRequest.of(
            "outbox", f"needs the driver {error.name}, which is not installed"
        ) from None
    return SqlAlchemyTable(engine, outbox_table(sa.MetaData(), name, schema))
