"""The lake's tables as frames: read with their declared columns, written day by day.

Where a log says which files a table consists of (``formats``), what is written goes to a folder of
its own, and then the log replaces what was there.  Where there is none, a table is its folder.
"""

import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.domain.offload import Lake, LakeObject
from headrace.history.changelog import RAW
from headrace.spark.lake.formats import log_at
from headrace.spark.lake.formats.base import (
    DATA,
    DAY_OF_FILES,
    DataFile,
    TableLog,
    name_of_write,
    written_before,
)
from headrace.spark.lake.schemas import CHANGES, DAY, HOUR, TABLES, Table
from headrace.spark.session import SparkFiles
from headrace.store.lake import lake_at

ROWS_OF_A_FILE: Final = 2_000_000
AN_HOUR: Final = timedelta(hours=1)
VERSIONS_KEPT: Final = timedelta(days=3)
"""For so long a reader may go on with a version of a table that is not the latest."""


STAGING: Final = "state/staging"
"""The folder of the lake where hours are written before they are put in their place."""


def hour_mark(hour: datetime) -> str:
    """Return how the names of the files begin that a table has of one hour."""
    return f"h{hour:%H}"


def _spans(hours: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """Return *hours* in order as spans, those that follow each other as one."""
    spans: list[tuple[datetime, datetime]] = []
    for hour in hours:
        if spans and spans[-1][1] == hour:
            spans[-1] = (spans[-1][0], hour + AN_HOUR)
        else:
            spans.append((hour, hour + AN_HOUR))
    return spans


def _raw_ddl() -> str:
    """The schema of a raw line: the columns of ``changes``, instants in microseconds."""
    return ", ".join(
        f"{one.name} {'bigint' if one.type == 'timestamp' else one.type}"
        for one in CHANGES.columns
        if one.name != DAY
    )


_OF_AN_HOUR: Final = re.compile(r"h\d\d-")


class FileOfDay(NamedTuple):
    """A file of a table: its size in bytes, and whether it has the rows of one hour only."""

    size: int
    of_an_hour: bool


@dataclass(frozen=True, slots=True)
class LakeFrames:
    """A lake as Spark sees it: ``address`` is a folder's path or ``s3://bucket/prefix``."""

    spark: SparkSession
    address: str
    may_write: Callable[[], None] = lambda: None
    """Raises Conflict where it is not the turn of this job to put something in place."""
    held: TableLog | None = None
    """Who knows the files of the tables, during a job."""

    def during(self, may_write: Callable[[], None]) -> "LakeFrames":
        """Return the same lake, for a job that asks *may_write* before it puts files in place.

        What another commits from now on, the job does not see, and is refused where it would
        commit itself.
        """
        log = self.log
        return replace(self, may_write=may_write, held=None if log is None else log.pinned())

    @property
    def log(self) -> TableLog | None:
        """Who knows the files of the tables; None where that is what is in their folders."""
        return self.held or log_at(self.files, self.address)

    @property
    def files(self) -> Lake:
        """The same lake, file by file: for what is small and no table."""
        return lake_at(self.address)

    def path(self, *parts: str) -> str:
        """Return where something is in the lake."""
        return "/".join((self.address.rstrip("/"), *parts))

    def read(self, table: Table, since: date | None = None) -> DataFrame:
        """Return all rows of *table*, or those of its days from *since* on; none if there are none.

        What is read is what the table was now, whatever is written to it later.
        """
        log = self.log
        if log is None:
            rows = self._in_folder(table)
            return rows if since is None else rows.where(f.col(DAY) >= f.lit(since))
        paths = [file.path for file in log.files(table, since)]
        if not paths:
            return self.spark.createDataFrame([], table.ddl)
        return self.spark.read.schema(table.ddl).parquet(*paths)

    def _in_folder(self, table: Table) -> DataFrame:
        try:
            return self.spark.read.schema(table.ddl).parquet(self.path("tables", table.name))
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.spark.createDataFrame([], table.ddl)

    def files_of(self, table: Table, since: date | None = None) -> dict[date, list[FileOfDay]]:
        """Return the files of *table* by day, of the days from *since* on."""
        log = self.log
        found: dict[date, list[FileOfDay]] = {}
        if log is not None:
            for one in log.files(table, since):
                found.setdefault(one.day, []).append(FileOfDay(one.size, one.hour is not None))
            return found
        prefix = f"tables/{table.name}/{DAY}="
        for day, files in self.by_day(prefix).items():
            if since is None or day >= since:
                names = ((file.name.rpartition("/")[2], file.size) for file in files)
                found[day] = [
                    FileOfDay(size, _OF_AN_HOUR.match(name) is not None) for name, size in names
                ]
        return found

    def by_day(self, prefix: str) -> dict[date, list[LakeObject]]:
        """The files below *prefix* by the day whose folder they are in."""
        found: dict[date, list[LakeObject]] = {}
        for file in self.files.list(prefix):
            day = date.fromisoformat(file.name.partition(f"/{DAY}=")[2].partition("/")[0])
            found.setdefault(day, []).append(file)
        return found

    def by_hour(self, prefix: str) -> dict[datetime, list[LakeObject]]:
        """The raw files below *prefix* by the hour whose folder they are in."""
        found: dict[datetime, list[LakeObject]] = {}
        for file in self.files.list(prefix):
            day = file.name.partition(f"/{DAY}=")[2].partition("/")[0]
            hour = file.name.partition(f"/{HOUR}=")[2].partition("/")[0]
            at = datetime.fromisoformat(day).replace(hour=int(hour), tzinfo=UTC)
            found.setdefault(at, []).append(file)
        return found

    def recorded(self, days: Collection[date], hours: Collection[datetime]) -> DataFrame:
        """Return the changes that were recorded on some *days*, and in some *hours* of others."""
        at, day = f.col("recorded_at"), f.col(DAY)
        within = [(at >= f.lit(start)) & (at < f.lit(end)) for start, end in _spans(sorted(hours))]
        wanted = reduce(Column.__or__, within, day.isin(list(days)))
        return self.days(CHANGES, {*days, *(hour.date() for hour in hours)}).where(wanted)

    def days(self, table: Table, days: Iterable[date]) -> DataFrame:
        """Return the rows of some *days*."""
        wanted = sorted(days)
        since = wanted[0] if wanted else None
        return self.read(table, since).where(f.col(DAY).isin(wanted))

    def raw(self, days: Iterable[date], hours: Iterable[datetime] = ()) -> DataFrame:
        """Return the raw lines of whole *days* and of single *hours*, which must be there."""
        paths = [self.path(RAW, f"{DAY}={day}") for day in sorted(days)]
        paths += [
            self.path(RAW, f"{DAY}={hour:%Y-%m-%d}", f"{HOUR}={hour:%H}") for hour in sorted(hours)
        ]
        reader = self.spark.read.schema(_raw_ddl()).option("basePath", self.path(RAW))
        return reader.json(paths).select(*(name for name in CHANGES.names if name != DAY))

    def write(self, frame: DataFrame, table: Table, days: Collection[date]) -> None:
        """Replace *days* by the rows of *frame*, which has none of others.

        In a folder a day of which it has no rows stays as it is.
        """
        if (log := self.log) is not None:
            self._commit(log, frame, table, days, ())
            return
        ordered = frame.select(*table.names).sortWithinPartitions(DAY, *table.order)
        self.may_write()
        self._written(ordered, self.path("tables", table.name), DAY)

    def write_hours(self, frame: DataFrame, table: Table, hours: Collection[datetime]) -> None:
        """Replace the rows of some *hours*, be it by none; other hours stay as they are.

        In a folder the files of an hour are named after it.  They are written elsewhere, put in
        their place, and then those from before go: whoever ends in between leaves an hour to be
        made again.
        """
        if (log := self.log) is not None:
            self._commit(log, frame, table, (), hours)
            return
        files, beside = SparkFiles(self.spark), self.path(STAGING, table.name)
        files.remove(beside)
        ordered = frame.select(*table.names, HOUR).sortWithinPartitions(DAY, HOUR, *table.order)
        self._written(ordered, beside, DAY, HOUR)
        self.may_write()
        for day, of_day in groupby(sorted(hours), datetime.date):
            place = self.path("tables", table.name, f"{DAY}={day}")
            there = files.names(place)
            for hour in of_day:
                mark = f"{hour_mark(hour)}-"
                made = f"{beside}/{DAY}={day}/{HOUR}={hour.hour}"
                files.move(made, place, mark)
                for name in there:
                    if name.startswith(mark):
                        files.remove(f"{place}/{name}")
        files.remove(beside)

    def _commit(
        self,
        log: TableLog,
        frame: DataFrame,
        table: Table,
        days: Collection[date],
        hours: Collection[datetime],
    ) -> None:
        """Write the files of *days* or *hours*, then let the log replace those that were there."""
        by = (DAY_OF_FILES, HOUR) if hours else (DAY_OF_FILES,)
        of_hour = [HOUR] if hours else []
        name = f"tables/{table.name}/{DATA}/{name_of_write(datetime.now(UTC), uuid.uuid4().hex)}"
        columns = frame.select(*table.names, f.col(DAY).alias(DAY_OF_FILES), *of_hour)
        self._written(columns.sortWithinPartitions(*by, *table.order), self.path(name), *by)
        new = [DataFile(self.path(one.name), one.size) for one in self.files.list(f"{name}/")]
        every = {*days, *(hour.date() for hour in hours)}
        old = [
            file for file in log.files(table, min(every)) if file.day in days or file.hour in hours
        ]
        self.may_write()
        if old or new:
            log.replace(table, old, new)

    def tidy(self, table: Table) -> None:
        """Remove files of *table* that nobody has needed for days: of versions before the present.

        In a folder there are none.
        """
        log = self.log
        if log is None:
            return
        before = datetime.now(UTC) - VERSIONS_KEPT
        files = {self.path(one.name) for one in self.files.list(f"tables/{table.name}/{DATA}/")}
        old = {path for path in files if written_before(path, before)}
        for path in sorted(log.unneeded(table, before, old)):
            self.remove(path.removeprefix(self.path("")))

    def _written(self, ordered: DataFrame, place: str, *by: str) -> None:
        (
            ordered.write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("maxRecordsPerFile", ROWS_OF_A_FILE)
            .option("compression", "zstd")
            .partitionBy(*by)
            .parquet(place)
        )

    def remove(self, *parts: str) -> None:
        """Remove what is there, and all below it; a star stands for any name."""
        SparkFiles(self.spark).remove_matching(self.path(*parts))

    def views(self) -> None:
        """Give SQL the tables by their names."""
        for table in TABLES:
            self.read(table).createOrReplaceTempView(table.name)


def absolute(address: str) -> str:
    """Return *address* as Spark and everyone else understand it the same way."""
    return address if urlsplit(address).scheme else str(Path(address).absolute())
