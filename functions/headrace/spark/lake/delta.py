"""The log of a lake in a folder, as Delta tables: ``deltalake`` commits what Spark wrote."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, Literal, overload

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from headrace.spark.lake.schemas import DAY, EVERY_TABLE, Table
from headrace.spark.lake.table_log import DataFile, parts_of, refused

_NO_RETRY: Final = CommitProperties(max_commit_retries=0)
"""A job replaces rows that it has read, so a retry on a newer version would bring back old rows."""
_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}


class DeltaLog:
    """The logs beside the tables of one lake.

    The tables have no partition column: Delta expects it in no file, and readers take the names of
    folders for columns.  Instead the log has the day of each file as statistics of ``dt``.
    """

    def __init__(self, address: str, *, pinned: bool = False) -> None:
        self._address = address.rstrip("/")
        self._pinned: dict[str, DeltaTable] | None = {} if pinned else None

    def pinned(self) -> "DeltaLog":
        """Return a log for one job: it sees each table as of now, and the job's own commits.

        Make the tables that are missing.
        """
        log = DeltaLog(self._address, pinned=True)
        for table in EVERY_TABLE:
            log._table(table, make=True)
        return log

    def files(self, table: Table, since: date | None = None) -> list[DataFile]:
        """Return the files of *table*, or of its days from *since* on; none if it is missing."""
        there = self._table(table)
        if there is None:
            return []
        adds = pa.table(there.get_add_actions(flatten=True)).select(["path", "size_bytes"])
        found = (
            DataFile(f"{self._place(table)}/{one['path']}", one["size_bytes"])
            for one in adds.to_pylist()
        )
        return sorted(file for file in found if since is None or file.day >= since)

    def replace(self, table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Replace *old* files of *table* by *new* ones; make the table if it is missing.

        Raises Conflict if another job has committed since this log read the table.
        """
        there, root = self._table(table, make=True), f"{self._place(table)}/"
        now = int(datetime.now(UTC).timestamp() * 1000)
        adds = [
            AddAction(
                file.path.removeprefix(root),
                file.size,
                {},
                now,
                data_change=True,
                stats=_statistics(file.day),
            )
            for file in new
        ]
        removes = [
            RemoveAction(
                file.path.removeprefix(root),
                data_change=True,
                deletion_timestamp=now,
                size=file.size,
                partition_values={},
            )
            for file in old
        ]
        try:
            there.create_write_transaction(
                [*removes, *adds], "append", _schema(table), commit_properties=_NO_RETRY
            )
        except CommitFailedError as error:
            raise refused(table) from error
        there.load_as_version(there.version() + 1)

    def remove_versions(self, table: Table, before: datetime) -> None:
        """Forget the versions of *table* from *before* a time, and remove the files of these."""
        there = self._table(table)
        if there is not None:
            hours = max(0, int((datetime.now(UTC) - before).total_seconds() // 3600))
            there.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)

    def _place(self, table: Table) -> str:
        return f"{self._address}/tables/{table.name}"

    @overload
    def _table(self, table: Table, *, make: Literal[True]) -> DeltaTable: ...

    @overload
    def _table(self, table: Table) -> DeltaTable | None: ...

    def _table(self, table: Table, *, make: bool = False) -> DeltaTable | None:
        if self._pinned is not None and table.name in self._pinned:
            return self._pinned[table.name]
        place = self._place(table)
        if make:
            there = DeltaTable.create(place, _schema(table), mode="ignore")
        elif DeltaTable.is_deltatable(place):
            there = DeltaTable(place)
        else:
            return None
        known = {one.name for one in there.schema().fields}
        more = [one for one in _schema(table).fields if one.name not in known]
        if more:
            there.alter.add_columns(more)
        if self._pinned is not None:
            self._pinned[table.name] = there
        return there


def _statistics(day: date) -> str:
    """Return the statistics of a file in the log, by which readers find the rows of a day."""
    bound = {DAY: str(day)}
    return json.dumps({"minValues": bound, "maxValues": bound, "nullCount": {DAY: 0}})


def _schema(table: Table) -> Schema:
    columns: list[tuple[str, Any]] = [(one.name, _type(one.type)) for one in table.columns]
    return Schema.from_arrow(pa.schema(columns))


def _type(kind: str) -> pa.DataType:
    match parts_of(kind):
        case "map", key, value:
            return pa.map_(_TYPES[key], _TYPES[value])
        case "array", element:
            return pa.list_(_TYPES[element])
    return _TYPES[kind]
