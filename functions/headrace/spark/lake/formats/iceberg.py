"""Tables of a lake as Iceberg's: Spark writes the files, this commits them.

The catalog is the one that PyIceberg's own settings have under the name ``headrace``, such as
``PYICEBERG_CATALOG__HEADRACE__TYPE=rest``; else Glue's for a lake in S3, and for a folder a file of
SQLite in it.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

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

from headrace.spark.lake.formats.base import DataFile, parts_of, refused
from headrace.spark.lake.schemas import DAY, TABLES, Table
from headrace.store.lake import s3_place

CATALOG: Final = "headrace"
FILE: Final = "iceberg.db"
"""The catalog of a lake in a folder, beside its tables."""
_NAMES: Final = "schema.name-mapping.default"
_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "commit.manifest-merge.enabled": "true",
    "commit.retry.num-retries": "0",  # whoever comes second is refused, whatever it would write
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

    def __init__(self, address: str, *, held: bool = False) -> None:
        self._address = address.rstrip("/").replace("s3a://", "s3://", 1)
        self._catalog = catalog_of(self._address)
        self._space = namespace_of(self._address)
        self._held: dict[str, IcebergTable] | None = {} if held else None

    def pinned(self) -> "IcebergLog":
        """Return the same for one job: tables stay as it saw them first, save its own writes."""
        log = IcebergLog(self._address, held=True)
        for table in TABLES:
            log._table(table)
        return log

    def files(self, table: Table, since: date | None = None) -> list[DataFile]:
        """Return the files of *table*, or of its days from *since* on."""
        tasks = self._scanned(self._table(table), since)
        return sorted(DataFile(one.file_path, one.file_size_in_bytes) for one in tasks)

    def replace(self, table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Let *new* files take the place of *old* ones, in one snapshot.

        Raises Conflict if another has written the table since this one looked at it.
        """
        there, gone = self._table(table), {file.path for file in old}
        since = min(file.day for file in (*old, *new))
        try:
            with there.transaction() as change, change.update_snapshot().overwrite() as update:
                for file in self._scanned(there, since):
                    if file.file_path in gone:
                        update.delete_data_file(file)
                added = parquet_files_to_data_files(
                    there.io, there.metadata, iter([file.path for file in new])
                )
                for file in added:
                    update.append_data_file(file)
        except CommitFailedException as error:
            raise refused(table) from error

    def unneeded(self, table: Table, before: datetime, files: Collection[str]) -> set[str]:
        """Forget how the table was *before* a time; return which *files* nobody needs any more."""
        there, until = self._table(table), before.astimezone(UTC).replace(tzinfo=None)
        there.maintenance.expire_snapshots().older_than(until).commit()
        there.refresh()
        return set(files) - set(there.inspect.all_files().column("file_path").to_pylist())

    def _table(self, table: Table) -> IcebergTable:
        if self._held is not None and table.name in self._held:
            return self._held[table.name]
        self._catalog.create_namespace_if_not_exists(self._space)
        schema = _schema(table)
        (day,) = (one.field_id for one in schema.fields if one.name == DAY)
        there = self._catalog.create_table_if_not_exists(
            (*self._space, table.name),
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
        if self._held is not None:
            self._held[table.name] = there
        return there

    def _scanned(self, there: IcebergTable, since: date | None) -> Iterator[Any]:
        scan = there.scan() if since is None else there.scan(f"{DAY} >= '{since}'")
        return (task.file for task in scan.plan_files())


def catalog_of(address: str) -> Catalog:
    """Return the catalog that has the tables of the lake at *address*."""
    if Config().get_catalog_config(CATALOG):
        return load_catalog(CATALOG)
    tables = f"{address}/tables"
    if s3_place(address) is not None:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        where = {"s3.endpoint": endpoint} if endpoint else {}
        return load_catalog(CATALOG, type="glue", warehouse=tables, **where)
    Path(tables).mkdir(parents=True, exist_ok=True)
    return load_catalog(CATALOG, type="sql", uri=f"sqlite:///{tables}/{FILE}", warehouse=tables)


def namespace_of(address: str) -> tuple[str]:
    """Return the namespace, or database, of the lake at *address*: of a folder's ``headrace``.

    Of S3 it has the bucket's name, because an account has one catalog for all its lakes.
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
