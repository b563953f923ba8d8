"""``headrace.export``: an export of the tasks table to S3, full or incremental, verified.

One partition for each of its files.  An incremental export has one state of each task that was
written in its window, the last one: what happened in between it does not tell.

What the table still holds of a task that is gone, its id and how it ended, is no task: a full
export shows none, an incremental one the task as deleted.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.spark.sources import EXPORT, decode
from headrace.spark.sources.columns import DEFAULT, TaskColumn, columns_of, ddl
from headrace.spark.sources.manifest import DataFile, Export, blocks, export_at, illegible
from headrace.spark.sources.options import SourceOption, flag, parsed, refused
from headrace.store import keys

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTIONS: Final = (
    SourceOption(
        "verify", flag, "compare manifests and files with their checksums and counts", default=True
    ),
)
DELETED: Final = TaskColumn(
    "deleted", "boolean", "own", "", "the task is gone; what else there is shows it as it last was"
)
WRITTEN: Final = TaskColumn(
    "written_at", "timestamp", "own", "", "when it was last written; of incremental exports"
)
OWN: Final = (DELETED, WRITTEN)

_KEY: Final = pa.struct([(keys.TASK_ID, pa.struct([("S", pa.string())]))])
_WRITTEN: Final = pa.struct([("WriteTimestampMicros", pa.struct([("N", pa.string())]))])


class ExportSource(DataSource):
    """The tasks in an export; a schema that names some columns reads those alone."""

    @classmethod
    def name(cls) -> str:
        return EXPORT

    def schema(self) -> str:
        return ddl((*DEFAULT, *OWN))

    def reader(self, schema: "StructType") -> "ExportReader":
        chosen = parsed(OPTIONS, self.options, of=EXPORT)
        path = self.options.get("path")
        if not path:
            raise refused(
                [FieldError("path", "must be given, such as …/AWSDynamoDB/<id>")], of=EXPORT
            )
        fields = [(one.name, one.dataType.simpleString()) for one in schema.fields]
        return ExportReader(path, columns_of(fields, OWN), verify=chosen["verify"])


class ExportPart(InputPartition):
    """One file of an export."""

    def __init__(self, export: Export, file: DataFile) -> None:
        super().__init__((export, file))


class ExportReader(DataSourceReader):
    """Reads the files of one export."""

    def __init__(self, path: str, columns: tuple[TaskColumn, ...], *, verify: bool) -> None:
        self.path = path
        self.columns = columns
        self.verify = verify

    def partitions(self) -> Sequence[InputPartition]:
        export = export_at(self.path, verify=self.verify)
        return [ExportPart(export, file) for file in export.files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark makes one up where there are none
            return
        export, file = partition.value
        for lines in blocks(export, file, verify=self.verify):
            try:
                rows = exported(lines, self.columns, incremental=export.incremental)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise illegible(export, file, error) from error
            yield rows


def exported(lines: bytes, columns: Sequence[TaskColumn], *, incremental: bool) -> pa.RecordBatch:
    """Return the rows of some *lines* of an export.

    Raises InvalidRequest if they are of another table, or of another kind of export.
    """
    image = decode.wire_struct((_ID, _QUEUE, _SPENT, *(one for one in columns if one not in OWN)))
    if incremental:
        parts = {"Metadata": _WRITTEN, "Keys": _KEY, "OldImage": image, "NewImage": image}
    else:
        parts = {"Item": image}
    found = decode.parsed(lines, pa.schema(parts))
    images = {name: found.column(name).combine_chunks() for name in parts}
    items = images["NewImage" if incremental else "Item"]
    ids = decode.column_of(images.get("Keys", items), _ID)
    removed, spent = pc.is_null(items), _there(items, _SPENT)
    gone = pc.or_(removed, spent)
    _check(_ID, missing=ids.null_count)
    known = pc.or_(gone, _there(items, _QUEUE))
    _check(_QUEUE, missing=len(known) - known.true_count)
    no_task = spent
    if incremental:
        no_task = pc.and_(removed, _there(images["OldImage"], _SPENT))
        items = pc.if_else(gone, images["OldImage"], items)
    own: dict[str, Any] = {
        DELETED.name: gone,
        _ID.name: ids,
        WRITTEN.name: pa.nulls(len(ids), decode.INSTANT),
    }
    if incremental:
        own[WRITTEN.name] = decode.timestamps(
            pc.struct_field(images["Metadata"], ["WriteTimestampMicros", "N"])
        )
    rows = decode.batch_of(
        [own[one.name] if one.name in own else decode.column_of(items, one) for one in columns],
        columns,
    )
    return rows.filter(pc.invert(no_task))


def _there(items: decode.Array, column: TaskColumn) -> decode.Array:
    """Whether each of *items* has what *column* is made of."""
    return pc.is_valid(pc.struct_field(items, [*column.path, "S"]))


def _check(column: TaskColumn, *, missing: int) -> None:
    """Raise InvalidRequest where *missing* items lack what every task has."""
    if missing:
        message = (
            f"the export is not of a table of tasks: there are items without {column.attribute}"
        )
        raise InvalidRequest(message, errors=[FieldError("path", message)])


_SPENT: Final = TaskColumn("spent", "string", "text", keys.SPENT, "what is left of a task")
_ID, _QUEUE = (
    next(column for column in DEFAULT if column.name == name) for name in ("id", "queue")
)
