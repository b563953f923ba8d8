"""The log of a lake's tables: which files each table has, and how a job replaces some of them.

Spark writes Parquet files.  The driver then commits them to the log in one step, so a reader sees
the old or the new rows of a day, and of two jobs that write at once the second is refused.
A lake in a folder has Delta's log beside each table; a lake in S3 has an Iceberg catalog.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.util import find_spec
from typing import Final, Protocol

from headrace.domain.errors import Conflict, InvalidRequest
from headrace.spark.lake.schemas import Table
from headrace.store.lake import s3_place

DATA: Final = "data"
"""The folder with the files of a table, in one folder for each write."""
DAY_OF_FILES: Final = "day"
"""The name of the folder of a day: not that of the column ``dt``, which the files have too."""
_STAMP: Final = "%Y%m%dT%H%M%S"


@dataclass(frozen=True, slots=True, order=True)
class DataFile:
    """One file of a table: its address, and its size in bytes."""

    path: str
    size: int

    @property
    def day(self) -> date:
        """The day of its rows."""
        rest = self.path.rpartition(f"/{DAY_OF_FILES}=")[2]
        return date.fromisoformat(rest.partition("/")[0])


class TableLog(Protocol):
    """Knows the files of each table, and replaces some of them in one step."""

    def pinned(self) -> "TableLog":
        """Return a log for one job: it sees each table as of now, and the job's own commits.

        Make the tables that are missing.
        """

    def files(self, table: Table, since: date | None = None) -> list[DataFile]:
        """Return the files of *table*, or of its days from *since* on; none if it is missing."""

    def replace(self, table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Replace *old* files of *table* by *new* ones; make the table if it is missing.

        Raises Conflict if another job has committed since this log read the table.
        """

    def remove_versions(self, table: Table, before: datetime) -> None:
        """Forget the versions of *table* from *before* a time, and remove the files of these."""


def log_of(address: str) -> TableLog:
    """Return the log of the lake at *address*.

    It is Iceberg's for a lake in S3, and where PyIceberg's settings have a catalog ``headrace``;
    else it is Delta's.  Raises InvalidRequest if the package for it is missing.
    """
    installed = find_spec("pyiceberg") is not None
    if s3_place(address) is not None and not installed:
        message = "lake: tables in S3 need Iceberg: pip install 'headrace[iceberg]'"
        raise InvalidRequest(message)
    if installed:
        from headrace.spark.lake import iceberg  # noqa: PLC0415 (an extra)

        if s3_place(address) is not None or iceberg.configured():
            return iceberg.IcebergLog(address)
    if find_spec("deltalake") is None:
        message = "lake: tables in a folder need Delta: pip install 'headrace[spark]'"
        raise InvalidRequest(message)
    from headrace.spark.lake.delta import DeltaLog  # noqa: PLC0415 (not for a lake in S3)

    return DeltaLog(address)


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
    """Whether the file at *path* is of a write that began *before* a time."""
    stamp = path.rpartition(f"/{DATA}/")[2].partition("-")[0]
    return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC) < before


def refused(table: Table) -> Conflict:
    """Return the error of the job that commits second."""
    return Conflict(
        f"another job has written the table {table.name} since this one read it; this one"
        " changed nothing in it. Run it again when the other has ended"
    )
