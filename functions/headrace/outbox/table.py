"""The table of an outbox: rows, outcomes, and the protocol that a relay uses."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

from headrace.domain.errors import HeadraceError, InvalidRequest

TABLE: Final = "headrace_outbox"
"""The name of the table, unless its user chooses another one."""

ERROR_LENGTH: Final = 1000
"""Characters that are kept of the error of a row."""

DJANGO: Final = "django:"
"""The beginning of the name of a database of Django."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to be written.

    ``entry`` is the JSON of a task as an enqueue carries it, or of the calls that start a workflow
    or a batch, whose id is ``task_id`` then.
    """

    task_id: str
    queue: str
    entry: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class OutboxRow(NewRow):
    """A row of the table; ``refused_at`` is set once the service has refused it for good."""

    seq: int
    attempts: int = 0
    error: str | None = None
    refused_at: datetime | None = None

    def __repr__(self) -> str:
        """A short form for logs, without the payload."""
        return f"<OutboxRow {self.task_id} for {self.queue}>"


def read_rows(
    found: Iterable[Any], aware: Callable[[datetime | None], datetime | None]
) -> list[OutboxRow]:
    """Return the rows that a database has *found*; *aware* adds the time zone to an instant."""
    times = ("created_at", "refused_at")
    return [
        OutboxRow(
            **{one.name: getattr(row, one.name) for one in fields(OutboxRow)}
            | {name: aware(getattr(row, name)) for name in times}
        )
        for row in found
    ]


@dataclass(frozen=True, slots=True)
class RowFault:
    """Why a row was not enqueued; a ``refused`` row is not sent again."""

    error: str
    refused: bool


@dataclass(slots=True)
class SettledRows:
    """The outcomes of rows, by their ``seq``; rows in neither have an unknown outcome.

    ``away`` is the error because of which the other rows were not sent.
    """

    done: list[int] = field(default_factory=list)
    faults: dict[int, RowFault] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    away: HeadraceError | None = None

    def by_fault(self, rows: Iterable[OutboxRow]) -> Mapping[RowFault | None, list[OutboxRow]]:
        """Return the *rows* with an outcome by their fault; None for rows that are done."""
        found: dict[RowFault | None, list[OutboxRow]] = {}
        for row in rows:
            if row.seq in self.done or row.seq in self.faults:
                found.setdefault(self.faults.get(row.seq), []).append(row)
        return found


Send: TypeAlias = Callable[[Sequence[OutboxRow]], SettledRows]


@dataclass(frozen=True, slots=True)
class OutboxState:
    """How many rows wait, since when the oldest does, and how many were refused."""

    waiting: int
    refused: int
    oldest_at: datetime | None

    def oldest_seconds(self, now: datetime) -> float:
        """Return how long the oldest has waited; 0 where none does."""
        if self.oldest_at is None:
            return 0.0
        return max(0.0, (now - self.oldest_at).total_seconds())


class OutboxTable(Protocol):
    """The table of an outbox in a database.

    Every method raises NotFound if the table is missing, and Unavailable if the database is.
    """

    name: str
    """For logs: where it is, without secrets."""

    def settle(self, limit: int, without: Collection[str], send: Send) -> Sequence[OutboxRow]:
        """Send up to *limit* waiting rows in order, and store the outcome of each; return them.

        Refused rows, and rows of the queues in *without*, are left out.  If the database can lock
        rows, no other relay takes them at the same time.  Done rows are deleted, others keep their
        error and count an attempt.
        """
        ...

    def state(self) -> OutboxState:
        """Count the rows."""
        ...

    def rows(
        self,
        *,
        refused: bool = False,
        ids: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[OutboxRow]:
        """Return rows in order, or only those refused, or those of the tasks named."""
        ...

    def retry(self, ids: Collection[str] | None = None) -> int:
        """Let refused rows wait again: those of the tasks named, or all.  Returns how many."""
        ...

    def delete(self, ids: Collection[str]) -> int:
        """Delete the rows of the tasks named.  Returns how many there were."""
        ...

    def create(self) -> None:
        """Create the table unless it is there."""
        ...

    def close(self) -> None:
        """Close the connections that wait for use."""
        ...


def packages_of(database: str) -> tuple[str, str]:
    """Return the package that *database* needs, and the extra that brings it."""
    name = "django" if database.startswith(DJANGO) else "sqlalchemy"
    return name, f"'headrace[{name}]'"


def open_outbox(database: str, *, name: str = TABLE, schema: str | None = None) -> OutboxTable:
    """Return the outbox in *database*: ``postgresql://user@host/shop`` or ``django:shop.settings``.

    Raises InvalidRequest, without the URL in it.
    """
    if database.startswith(DJANGO):
        if (name, schema) != (TABLE, None):
            raise InvalidRequest.of("table", "cannot be chosen for Django: its model has the name")
        from headrace.outbox.django.table import open_settings  # noqa: PLC0415 (an extra)

        return open_settings(database.removeprefix(DJANGO))
    from headrace.outbox.sqlalchemy.table import open_url  # noqa: PLC0415 (an extra)

    return open_url(database, name=name, schema=schema)
