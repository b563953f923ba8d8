"""``headrace.export``: an export of the tasks table to S3, full or incremental, verified.

The layout is AWS's, of both kinds alike:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html

There is one partition for each file, which is read in pieces.  An incremental export has only the
last state of each task that was written in its window.

The table keeps the id of a removed task and how it ended.  A full export leaves such items out; an
incremental one has the task as deleted.  The same holds for a deleted task that an undo could
restore, unless the option ``hidden`` asks for it.
"""

import base64
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import md5
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.offload import Lake
from headrace.domain.task import State
from headrace.spark.sources import EXPORT, decode
from headrace.spark.sources.columns import BY_NAME, DEFAULT, TaskColumn, columns_of, ddl
from headrace.spark.sources.options import (
    SourceOption,
    flag,
    parsed,
    plain_errors,
    refused,
    word,
)
from headrace.store import keys
from headrace.store.lake import S3Access, lake_at

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTIONS: Final = (
    SourceOption(
        "verify", flag, "compare manifests and files with their checksums and counts", default=True
    ),
    SourceOption(
        "hidden",
        flag,
        "show deleted tasks that an undo could bring back, in the state `DELETED`",
        default=False,
    ),
    SourceOption("role_arn", word, "a role of AWS to read as; else as this job is signed in"),
    SourceOption("region", word, "region of the bucket; else `AWS_REGION`, `AWS_DEFAULT_REGION`"),
    SourceOption("endpoint", word, "URL of another S3; else `AWS_ENDPOINT_URL_S3`, else AWS"),
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
HOME: Final = "AWSDynamoDB"
SUMMARY: Final = "manifest-summary"
FILES: Final = "manifest-files"
_SUMS: Final = ("checksum", "md5")
"""How the checksums' names end, as AWS's guide has it, and as seen in buckets."""
_FORMAT: Final = "DYNAMODB_JSON"
_INCREMENTAL: Final = "INCREMENTAL_EXPORT"
BLOCK: Final = 16 * 1024 * 1024
"""Bytes of lines that are decoded at a time."""
IN_MEMORY: Final = 16 * 1024 * 1024
"""Bytes of a file as it is packed; the rest of a larger one waits in a temporary file."""
_SPENT: Final = TaskColumn(
    "ended_in", "string", "text", keys.ENDED_IN, "the rest of a deleted task"
)
_ID, _QUEUE, _STATE = (BY_NAME[name] for name in ("id", "queue", "state"))


@dataclass(frozen=True, slots=True)
class ExportFile:
    """One file of an export: its name below ``Export.place``, its items, and its MD5 in base 64."""

    name: str
    items: int
    md5: str


@dataclass(frozen=True, slots=True)
class Export:
    """An export: the table as it was at *taken_at*, or what had changed from *since* until then.

    ``place`` is the address of the folder ``AWSDynamoDB``, in which the export's own folder is, and
    ``access`` how it is reached.
    """

    place: str
    id: str
    taken_at: datetime
    since: datetime | None
    items: int
    files: tuple[ExportFile, ...]
    access: S3Access | None = None

    @property
    def incremental(self) -> bool:
        """Whether it has what changed, and not the whole table."""
        return self.since is not None


def export_at(address: str, *, verify: bool = True, access: S3Access | None = None) -> Export:
    """Read the manifests at *address*, ``…/AWSDynamoDB/<id>``, a bucket's by *access*.

    *verify* compares them with their checksums, and their numbers with each other.
    Raises InvalidRequest for what is no export, or not as it was written.
    """
    place, _, name = address.rstrip("/").removesuffix(f"/{SUMMARY}.json").rpartition("/")
    place = place or "."
    lake = lake_at(place, access=access)
    text = _manifest(lake, name, SUMMARY, verify=verify)
    with _legible(name, SUMMARY):
        summary = json.loads(text)
        kind, items = summary["outputFormat"], int(summary["itemCount"])
        incremental = summary.get("exportType") == _INCREMENTAL
        if kind != _FORMAT:
            raise _wrong(name, f"is in {kind}; export it as {_FORMAT}")
        taken_at = datetime.fromisoformat(summary["exportToTime" if incremental else "exportTime"])
        since = datetime.fromisoformat(summary["exportFromTime"]) if incremental else None
    text = _manifest(lake, name, FILES, verify=verify)
    with _legible(name, FILES):
        files = tuple(_data_file(json.loads(line)) for line in text.splitlines() if line.strip())
        counted = sum(file.items for file in files)
    if verify and counted != items:
        raise _wrong(name, f"has {counted:,} items in its files, and {items:,} in its summary")
    return Export(place, name, taken_at, since, items, files, access)


@contextmanager
def _legible(name: str, which: str) -> Iterator[None]:
    """Raise InvalidRequest for a manifest that does not say what it must."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        message = f"has a {which}.json that AWS did not write: {type(error).__name__}: {error}"
        raise _wrong(name, message) from error


def blocks(export: Export, file: ExportFile, *, verify: bool = True) -> Iterator[bytes]:
    """Yield the lines of one file, some megabytes at a time, each line whole.

    *verify* compares the file with its checksum first, and counts its lines.
    Raises InvalidRequest for a file that is missing or not as it was written.
    """
    with SpooledTemporaryFile(IN_MEMORY) as packed:
        if _fetched(export, file, packed) != file.md5 and verify:
            raise _wrong(export.id, f"has a file {file.name} that does not match its checksum")
        yield from _whole_lines(export, file, packed, verify=verify)


def _fetched(export: Export, file: ExportFile, into: IO[bytes]) -> str:
    """Copy a file piece by piece, and go to its beginning; return its checksum."""
    found = md5(usedforsecurity=False)
    with lake_at(export.place, access=export.access).pieces(file.name) as pieces:
        if pieces is None:
            raise _wrong(export.id, f"has no file {file.name}, which its manifest names")
        for piece in pieces:
            found.update(piece)
            into.write(piece)
    into.seek(0)
    return base64.b64encode(found.digest()).decode()


def _whole_lines(
    export: Export, file: ExportFile, packed: IO[bytes], *, verify: bool
) -> Iterator[bytes]:
    lines, rest = 0, b""
    for more in _unpacked(export, file, packed):
        whole, newline, rest = (rest + more).rpartition(b"\n")
        lines += whole.count(b"\n") + bool(newline)
        if whole:
            yield whole
    if rest.strip():
        lines += 1
        yield rest
    if verify and lines != file.items:
        raise _wrong(
            export.id,
            f"has a file {file.name} of {lines:,} items; its manifest says {file.items:,}",
        )


def _unpacked(export: Export, file: ExportFile, packed: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=packed, mode="rb") as unpacked:
        while True:
            try:
                more = unpacked.read(BLOCK)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                message = f"has a file {file.name} that cannot be unpacked: {error}"
                raise _wrong(export.id, message) from error
            if not more:
                return
            yield more


def _manifest(lake: Lake, name: str, which: str, *, verify: bool) -> bytes:
    text = lake.get(f"{name}/{which}.json")
    if text is None:
        raise _wrong(name, f"is no export, or not finished: it has no {which}.json")
    if verify:
        sums = (lake.get(f"{name}/{which}.{ending}") for ending in _SUMS)
        checksum = next((found for found in sums if found is not None), None)
        if checksum is None:
            raise _wrong(name, f"has no {' nor '.join(f'{which}.{ending}' for ending in _SUMS)}")
        if checksum.decode().strip() not in (
            _md5(text),
            md5(text, usedforsecurity=False).hexdigest(),
        ):
            raise _wrong(name, f"has a {which}.json that does not match its checksum")
    return text


def _data_file(entry: dict[str, Any]) -> ExportFile:
    """Read a line of the files' manifest; an export may have been copied to another bucket."""
    name = entry["dataFileS3Key"].rpartition(f"{HOME}/")[2]
    return ExportFile(name, entry["itemCount"], entry["md5Checksum"])


def _md5(content: bytes) -> str:
    """Return the checksum in the form that AWS writes it."""
    return base64.b64encode(md5(content, usedforsecurity=False).digest()).decode()


def illegible(export: Export, file: ExportFile, error: Exception) -> InvalidRequest:
    """Return the error of a file whose lines cannot be read, which *error* says why."""
    why = str(error).partition("\n")[0]
    return _wrong(export.id, f"has a file {file.name} that is not as DynamoDB writes it: {why}")


def _wrong(name: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"export {name} {message}", errors=[FieldError("path", message)])


class ExportSource(DataSource):
    """The tasks in an export; a schema that names some columns reads those alone."""

    @classmethod
    def name(cls) -> str:
        return EXPORT

    def schema(self) -> str:
        return ddl((*DEFAULT, *OWN))

    @plain_errors()
    def reader(self, schema: "StructType") -> "ExportReader":
        chosen = parsed(OPTIONS, self.options, of=EXPORT)
        path = self.options.get("path")
        if not path:
            raise refused(
                [FieldError("path", "must be given, such as …/AWSDynamoDB/<id>")], of=EXPORT
            )
        fields = [(one.name, one.dataType.simpleString()) for one in schema.fields]
        access = S3Access(chosen["role_arn"], chosen["region"], chosen["endpoint"])
        return ExportReader(
            path,
            columns_of(fields, OWN),
            verify=chosen["verify"],
            hidden=chosen["hidden"],
            access=access,
        )


class ExportReader(DataSourceReader):
    """Reads the files of one export."""

    def __init__(
        self,
        path: str,
        columns: tuple[TaskColumn, ...],
        *,
        verify: bool,
        hidden: bool = False,
        access: S3Access | None = None,
    ) -> None:
        self.path = path
        self.access = access
        self.columns = columns
        self.verify = verify
        self.hidden = hidden

    @plain_errors()
    def partitions(self) -> Sequence[InputPartition]:
        export = export_at(self.path, verify=self.verify, access=self.access)
        about = replace(export, files=())  # each part takes its own file along, and no other
        return [InputPartition((about, file)) for file in export.files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there are no partitions, Spark makes one without a value.
        part: tuple[Export, ExportFile] | None = getattr(partition, "value", None)
        if part is None:
            return
        with plain_errors():
            yield from self._rows(*part)

    def _rows(self, export: Export, file: ExportFile) -> Iterator[pa.RecordBatch]:
        for lines in blocks(export, file, verify=self.verify):
            try:
                rows = exported(
                    lines, self.columns, incremental=export.incremental, hidden=self.hidden
                )
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise illegible(export, file, error) from error
            yield rows


def exported(
    lines: bytes, columns: Sequence[TaskColumn], *, incremental: bool, hidden: bool = False
) -> pa.RecordBatch:
    """Return the rows of some *lines* of an export, *hidden* tasks with them or not.

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
    removed = pc.is_null(items)
    spent = _there(items, _SPENT) if hidden else pc.or_(_there(items, _SPENT), _hidden(items))
    gone = pc.or_(removed, spent)
    _check(_ID, missing=ids.null_count)
    known = pc.or_(gone, _there(items, _QUEUE))
    _check(_QUEUE, missing=len(known) - known.true_count)
    no_task = spent
    if incremental:
        old = images["OldImage"]
        no_task = pc.and_(removed, _there(old, _SPENT))
        if not hidden:
            no_task = pc.or_(no_task, pc.and_(gone, _hidden(old)))  # it was gone before
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


def _hidden(items: decode.Array) -> decode.Array:
    """Whether each of *items* is a task that was deleted and that an undo could bring back."""
    return pc.fill_null(
        pc.equal(decode.column_of(items, _STATE), str(State.DELETED)), pa.scalar(value=False)
    )


def _check(column: TaskColumn, *, missing: int) -> None:
    """Raise InvalidRequest where *missing* items lack what every task has."""
    if missing:
        message = (
            f"the export is not of a table of tasks: there are items without {column.attribute}"
        )
        raise InvalidRequest(message, errors=[FieldError("path", message)])
