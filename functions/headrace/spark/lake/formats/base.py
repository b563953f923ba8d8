"""What a log of tables does, and what the files of a table are called."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, Protocol

from headrace.domain.errors import Conflict
from headrace.spark.lake.schemas import HOUR, Table

DATA: Final = "data"
"""The folder of a table where its files are, in a folder for each write."""
DAY_OF_FILES: Final = "day"
"""What the folders of days are called: not as the column, which is in the files too."""
_STAMP: Final = "%Y%m%dT%H%M%S"


@dataclass(frozen=True, slots=True, order=True)
class DataFile:
    """One file of a table: its address, and its size in bytes."""

    path: str
    size: int

    @property
    def day(self) -> date:
        """The day that its rows are of."""
        return date.fromisoformat(self._part(DAY_OF_FILES))

    @property
    def hour(self) -> datetime | None:
        """The hour that its rows are of; None if they are of a whole day."""
        hour = self._part(HOUR)
        if not hour:
            return None
        return datetime(self.day.year, self.day.month, self.day.day, int(hour), tzinfo=UTC)

    def _part(self, name: str) -> str:
        _, found, rest = self.path.rpartition(f"/{name}=")
        return rest.partition("/")[0] if found else ""


class TableLog(Protocol):
    """Says of each table which files it consists of, and replaces some of them in one step."""

    def pinned(self) -> "TableLog":
        """Return the same for one job: tables stay as it saw them first, save its own writes."""

    def files(self, table: Table, since: date | None = None) -> list[DataFile]:
        """Return the files of *table*, or of its days from *since* on; none if it is not there."""

    def replace(self, table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Let *new* files take the place of *old* ones, in one step.

        Raises Conflict if another has written the table since this one looked at it.
        """

    def unneeded(self, table: Table, before: datetime, files: Collection[str]) -> set[str]:
        """Forget how the table was *before* a time; return which *files* nobody needs any more."""


def parts_of(kind: str) -> tuple[str, ...]:
    """Return a column's type in its parts: ``map``, key and value; ``array`` and element; or one.

    >>> parts_of("map<string,int>")
    ('map', 'string', 'int')
    """
    outer, _, inner = kind.rstrip(">").partition("<")
    return (outer, *inner.split(",")) if inner else (outer,)


def name_of_write(now: datetime, unique: str) -> str:
    """Return the name of the folder of one write."""
    return f"{now:{_STAMP}}-{unique}"


def written_before(path: str, before: datetime) -> bool:
    """Whether a file is of a write that began *before* a time."""
    stamp = path.rpartition(f"/{DATA}/")[2].partition("-")[0]
    return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC) < before


def refused(table: Table) -> Conflict:
    """Return what a job is told that comes second."""
    return Conflict(
        f"another job has written the table {table.name} since this one looked at it; this one"
        " changed nothing of it, run it again later"
    )
