"""What an export of the tasks table to S3 says of itself: its manifests, verified.

The layout is AWS's, of full and of incremental exports alike:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
"""

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import md5
from io import BytesIO
from typing import Any, Final

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.store.base import Lake
from headrace.store.lake import lake_at

HOME: Final = "AWSDynamoDB"
SUMMARY: Final = "manifest-summary"
FILES: Final = "manifest-files"
_SUMS: Final = ("checksum", "md5")
"""How the checksums' names end, as AWS's guide has it, and as seen in buckets."""
_FORMAT: Final = "DYNAMODB_JSON"
_INCREMENTAL: Final = "INCREMENTAL_EXPORT"
BLOCK: Final = 16 * 1024 * 1024
"""Bytes of lines that are decoded at a time."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of an export: its name below ``Export.place``, its items, and its MD5 in base 64."""

    name: str
    items: int
    md5: str


@dataclass(frozen=True, slots=True)
class Export:
    """An export: the table as it was at *taken_at*, or what had changed from *since* until then.

    ``place`` is the address of the folder ``AWSDynamoDB``, in which the export's own folder is.
    """

    place: str
    id: str
    taken_at: datetime
    since: datetime | None
    items: int
    files: tuple[DataFile, ...]

    @property
    def incremental(self) -> bool:
        """Whether it has what changed, and not the whole table."""
        return self.since is not None


def export_at(address: str, *, verify: bool = True) -> Export:
    """Read the manifests at *address*, ``…/AWSDynamoDB/<id>``.

    *verify* compares them with their checksums, and their numbers with each other.
    Raises InvalidRequest for what is no export, or not as it was written.
    """
    place, _, name = address.rstrip("/").removesuffix(f"/{SUMMARY}.json").rpartition("/")
    place, lake = place or ".", lake_at(place or ".")
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
    return Export(place, name, taken_at, since, items, files)


@contextmanager
def _legible(name: str, which: str) -> Iterator[None]:
    """Raise InvalidRequest for a manifest that does not say what it must."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        message = f"has a {which}.json that AWS did not write: {type(error).__name__}: {error}"
        raise _wrong(name, message) from error


def blocks(export: Export, file: DataFile, *, verify: bool = True) -> Iterator[bytes]:
    """Yield the lines of one file, some megabytes at a time, each line whole.

    *verify* compares the file with its checksum first, and counts its lines.
    Raises InvalidRequest for a file that is missing or not as it was written.
    """
    packed = lake_at(export.place).get(file.name)
    if packed is None:
        raise _wrong(export.id, f"has no file {file.name}, which its manifest names")
    if verify and _md5(packed) != file.md5:
        raise _wrong(export.id, f"has a file {file.name} that does not match its checksum")
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


def _unpacked(export: Export, file: DataFile, packed: bytes) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=BytesIO(packed)) as unpacked:
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


def _data_file(entry: dict[str, Any]) -> DataFile:
    """Read a line of the files' manifest; an export may have been copied to another bucket."""
    name = entry["dataFileS3Key"].rpartition(f"{HOME}/")[2]
    return DataFile(name, entry["itemCount"], entry["md5Checksum"])


def _md5(content: bytes) -> str:
    """Return the checksum in the form that AWS writes it."""
    return base64.b64encode(md5(content, usedforsecurity=False).digest()).decode()


def illegible(export: Export, file: DataFile, error: Exception) -> InvalidRequest:
    """Return the error of a file whose lines cannot be read, which *error* says why."""
    why = str(error).partition("\n")[0]
    return _wrong(export.id, f"has a file {file.name} that is not as DynamoDB writes it: {why}")


def _wrong(name: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"export {name} {message}", errors=[FieldError("path", message)])
