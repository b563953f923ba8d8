"""The log of a lake's tables in an Iceberg catalog: ``pyiceberg`` commits what Spark wrote.

The catalog is the one that PyIceberg's own settings have under the name ``headrace``, such as
``PYICEBERG_CATALOG__HEADRACE__TYPE=rest``; without one it is Glue's Data Catalog.
"""

import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import count
from typing import Any, Final, Literal, overload

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)
from pyiceberg.utils.config import Config

from headrace.spark.lake.schemas import DAY, EVERY_TABLE, Table
from headrace.spark.lake.table_log import DATA, DataFile, parts_of, refused, written_before
from headrace.store.lake import lake_at, s3_place

CATALOG: Final = "headrace"
_NAMES: Final = "schema.name-mapping.default"
_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "commit.manifest-merge.enabled": "true",
    # A job replaces rows that it has read, so a retry on a newer version would bring back old rows.
    "commit.retry.num-retries": "0",
}
_TYPES: Final[dict[str, IcebergType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestamptzType(),
    "date": DateType(),
}


class IcebergLog:
    """The tables of one lake in an Iceberg catalog."""

    def __init__(self, address: str, *, pinned: bool = False) -> None:
        self._address = address.rstrip("/").replace("s3a://", "s3://", 1)
        self._catalog = catalog_of(self._address)
        self._space = namespace_of(self._address)
        self._pinned: dict[str, IcebergTable] | None = {} if pinned else None

    def pinned(self) -> "IcebergLog":
        """Return a log for one job: it sees each table as of now, and the job's own commits.

        Make the tables that are missing.
        """
        log = IcebergLog(self._address, pinned=True)
        for table in EVERY_TABLE:
            log._table(table, make=True)
        return log

    def files(self, table: Table, since: date | None = None) -> list[DataFile]:
        """Return the files of *table*, or of its days from *since* on; none if it is missing."""
        there = self._table(table)
        if there is None:
            return []
        tasks = self._scanned(there, since)
        return sorted(DataFile(one.file_path, one.file_size_in_bytes) for one in tasks)

    def replace(self, table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Replace *old* files of *table* by *new* ones; make the table if it is missing.

        Raises Conflict if another job has committed since this log read the table.
        """
        there, removed = self._table(table, make=True), {file.path for file in old}
        since = min(file.day for file in (*old, *new))
        try:
            with there.transaction() as change, change.update_snapshot().overwrite() as update:
                for file in self._scanned(there, since):
                    if file.file_path in removed:
                        update.delete_data_file(file)
                added = parquet_files_to_data_files(
                    there.io, there.metadata, iter([file.path for file in new])
                )
                for file in added:
                    update.append_data_file(file)
        except CommitFailedException as error:
            raise refused(table) from error

    def remove_versions(self, table: Table, before: datetime) -> None:
        """Forget the versions of *table* from *before* a time, and remove the files of these."""
        there, folder = self._table(table), f"tables/{table.name}/{DATA}/"
        if there is None:
            return
        until = before.astimezone(UTC).replace(tzinfo=None)
        there.maintenance.expire_snapshots().older_than(until).commit()
        there.refresh()
        every = there.inspect.all_files().column("file_path").to_pylist()
        needed = {path.rpartition(f"/{folder}")[2] for path in every}  # of s3:// and s3a://
        for file in lake_at(self._address).list(folder):
            name = file.name.removeprefix(folder)
            if name not in needed and written_before(file.name, before):
                there.io.delete(f"{self._address}/{file.name}")

    @overload
    def _table(self, table: Table, *, make: Literal[True]) -> IcebergTable: ...

    @overload
    def _table(self, table: Table) -> IcebergTable | None: ...

    def _table(self, table: Table, *, make: bool = False) -> IcebergTable | None:
        if self._pinned is not None and table.name in self._pinned:
            return self._pinned[table.name]
        name = (*self._space, table.name)
        if make:
            there = self._made(table, name)
        elif self._catalog.table_exists(name):
            there = self._catalog.load_table(name)
        else:
            return None
        if self._pinned is not None:
            self._pinned[table.name] = there
        return there

    def _made(self, table: Table, name: tuple[str, ...]) -> IcebergTable:
        self._catalog.create_namespace_if_not_exists(self._space)
        schema = _schema(table)
        (day,) = (one.field_id for one in schema.fields if one.name == DAY)
        there = self._catalog.create_table_if_not_exists(
            name,
            schema=schema,
            location=f"{self._address}/tables/{table.name}",
            partition_spec=PartitionSpec(PartitionField(day, 1000, IdentityTransform(), DAY)),
            properties=_PROPERTIES,
        )
        if there.schema().column_names != schema.column_names or _NAMES not in there.properties:
            with there.transaction() as change:
                with change.update_schema() as update:
                    update.union_by_name(schema)
                mapping = change.table_metadata.schema().name_mapping.model_dump_json()
                change.set_properties({_NAMES: mapping})
        return there

    def _scanned(self, there: IcebergTable, since: date | None) -> Iterator[Any]:
        scan = there.scan() if since is None else there.scan(f"{DAY} >= '{since}'")
        return (task.file for task in scan.plan_files())


def configured() -> dict[str, Any]:
    """Return PyIceberg's settings of the catalog ``headrace``; empty without one."""
    return Config().get_catalog_config(CATALOG) or {}


def catalog_of(address: str) -> Catalog:
    """Return the catalog that has the tables of the lake at *address*."""
    if own := configured():
        return load_catalog(CATALOG, **own)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    where = {"s3.endpoint": endpoint} if endpoint else {}
    return load_catalog(CATALOG, type="glue", warehouse=f"{address}/tables", **where)


def namespace_of(address: str) -> tuple[str]:
    """Return the namespace, or database, of the lake at *address*: ``headrace`` for a folder.

    For a lake in S3 it has the bucket's name, because an account has one catalog for all lakes.
    """
    place = s3_place(address)
    if place is None:
        return (CATALOG,)
    return (re.sub(r"[^a-z0-9]+", "_", f"{CATALOG}_{''.join(place)}".lower()).strip("_"),)


def _schema(table: Table) -> Schema:
    ids = count(1)

    def type_of(kind: str) -> IcebergType:
        match parts_of(kind):
            case "map", key, value:
                of = _TYPES[key], _TYPES[value]
                return MapType(next(ids), of[0], next(ids), of[1], value_required=False)
            case "array", element:
                return ListType(next(ids), _TYPES[element], element_required=False)
        return _TYPES[kind]

    fields = (
        NestedField(next(ids), one.name, type_of(one.type), doc=one.says) for one in table.columns
    )
    return Schema(*fields)
