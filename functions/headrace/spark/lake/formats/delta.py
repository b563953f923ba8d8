"""Tables of a lake as Delta's: Spark writes the files, this commits them with ``deltalake``."""

import json
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from headrace.spark.lake.formats.base import DataFile, parts_of, refused
from headrace.spark.lake.schemas import DAY, TABLES, Table
from headrace.store.lake import s3_place

_AT_ONCE: Final = CommitProperties(max_commit_retries=0)
"""Whoever comes second is refused, whatever it would write."""
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

    Its tables have no partitions, whose column would be in no file and whose folders would be named
    after it: the log has the day of each file.
    """

    def __init__(self, address: str, *, held: bool = False) -> None:
        self._address = address.rstrip("/").replace("s3a://", "s3://", 1)
        self._options = {"conditional_put": "etag"} if s3_place(address) else None
        self._held: dict[str, DeltaTable] | None = {} if held else None

    def pinned(self) -> "DeltaLog":
        """Return the same for one job: tables stay as it saw them first, save its own writes."""
        log = DeltaLog(self._address, held=True)
        for table in TABLES:
            log._table(table)
        return log

    def files(self, table: Table, since: date | None = None) -> list[DataFile]:
        """Return the files of *table*, or of its days from *since* on."""
        there = self._table(table)
        adds = pa.table(there.get_add_actions(flatten=True)).select(["path", "size_bytes"])
        found = (
            DataFile(f"{self._place(table)}/{one['path']}", one["size_bytes"])
            for one in adds.to_pylist()
        )
        return sorted(file for file in found if since is None or file.day >= since)

    def replace(self, table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Let *new* files take the place of *old* ones, in one version.

        Raises Conflict if another has written the table since this one looked at it.
        """
        there, root = self._table(table), f"{self._place(table)}/"
        now = int(datetime.now(UTC).timestamp() * 1000)
        adds = [
            AddAction(
                file.path.removeprefix(root),
                file.size,
                {},
                now,
                data_change=True,
                stats=_of_a_day(file.day),
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
                [*removes, *adds], "append", _schema(table), commit_properties=_AT_ONCE
            )
        except CommitFailedError as error:
            raise refused(table) from error
        there.load_as_version(there.version() + 1)

    def unneeded(self, table: Table, before: datetime, files: Collection[str]) -> set[str]:
        """Forget how the table was *before* a time; return which *files* nobody needs any more."""
        there = self._table(table)
        hours = max(0, int((datetime.now(UTC) - before).total_seconds() // 3600))
        gone = there.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        return set(files) & {f"{self._place(table)}/{name}" for name in gone}

    def _place(self, table: Table) -> str:
        return f"{self._address}/tables/{table.name}"

    def _table(self, table: Table) -> DeltaTable:
        if self._held is not None and table.name in self._held:
            return self._held[table.name]
        place, schema = self._place(table), _schema(table)
        if DeltaTable.is_deltatable(place, self._options):
            there = DeltaTable(place, storage_options=self._options)
        else:
            there = DeltaTable.create(
                place,
                schema,
                mode="ignore",
                storage_options=self._options,
            )
        known = {one.name for one in there.schema().fields}
        more = [one for one in schema.fields if one.name not in known]
        if more:
            there.alter.add_columns(more)
        if self._held is not None:
            self._held[table.name] = there
        return there


def _of_a_day(day: date) -> str:
    """Return what the log says of a file's rows: by this readers find those of a day."""
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
