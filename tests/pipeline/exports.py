"""Exports of a table in AWS's own layout: files, manifests and checksums, full and incremental."""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import md5
from typing import Any

from headrace.domain.offload import Lake
from headrace.domain.task import Task
from headrace.domain.times import micros_of
from headrace.store.items import to_item

Record = dict[str, Any]
TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/headrace-tasks"
BUCKET = "exports-of-ours"
FULL = "01795219200000-a1b2c3d4"
INCREMENTAL = "01795305600000-d4c3b2a1"


def full(lake: Lake, tasks: Iterable[Task], *, at: datetime, files: int = 2) -> str:
    """Write a full export of *tasks*; return where below the lake it is."""
    records = [{"Item": to_item(task)} for task in tasks]
    keys = [f"AWSDynamoDB/{FULL}/data/part{number}.json.gz" for number in range(files)]
    about = {"version": "2020-06-30", "exportTime": _stamp(at)}
    return written(lake, FULL, records, keys, about)


def incremental(
    lake: Lake,
    before: Mapping[str, Task],
    after: Mapping[str, Task],
    *,
    since: datetime,
    until: datetime,
    view: str = "NEW_AND_OLD_IMAGES",
    name: str = INCREMENTAL,
) -> str:
    """Write an export of what changed from *before* to *after*; return where it is.

    Of a task that came and went in between there is nothing, as in AWS's.
    """
    records = []
    for task_id in sorted({*before, *after}):
        old, new = before.get(task_id), after.get(task_id)
        if old == new:
            continue
        record: Record = {
            "Metadata": {"WriteTimestampMicros": {"N": str(micros_of(until) - 1_000_000)}},
            "Keys": {"task_id": {"S": task_id}},
        }
        if old is not None and view == "NEW_AND_OLD_IMAGES":
            record["OldImage"] = to_item(old)
        if new is not None:
            record["NewImage"] = to_item(new)
        records.append(record)
    keys = [f"AWSDynamoDB/data/{name}-{number}.json.gz" for number in range(2)]
    about = {
        "version": "2023-08-01",
        "exportFromTime": _stamp(since),
        "exportToTime": _stamp(until),
        "outputView": view,
        "exportType": "INCREMENTAL_EXPORT",
    }
    return written(lake, name, records, keys, about)


def written(
    lake: Lake, name: str, records: Sequence[Record], keys: Sequence[str], about: Record
) -> str:
    """Write data files under *keys*, the last of them empty, and what belongs to them."""
    prefix, entries = "exports/", []
    full_files = max(1, len(keys) - 1)
    for number, key in enumerate(keys):
        some = records[number::full_files] if number < full_files else []
        text = "".join(
            json.dumps(one, separators=(",", ":"), ensure_ascii=False) + "\n" for one in some
        )
        packed = gzip.compress(text.encode(), mtime=0)
        lake.put(prefix + key, packed)
        entries.append(
            {
                "itemCount": len(some),
                "md5Checksum": _md5(packed),
                "etag": md5(packed, usedforsecurity=False).hexdigest() + "-1",
                "dataFileS3Key": prefix + key,
            }
        )
    folder = f"{prefix}AWSDynamoDB/{name}"
    summary = {
        "exportArn": f"{TABLE}/export/{name}",
        "startTime": _stamp(datetime.now(UTC)),
        "endTime": _stamp(datetime.now(UTC)),
        "tableArn": TABLE,
        "tableId": "12345a12-abcd-123a-ab12-1234abc12345",
        "s3Bucket": BUCKET,
        "s3Prefix": prefix.strip("/"),
        "s3SseAlgorithm": "AES256",
        "s3SseKmsKeyId": None,
        "manifestFilesS3Key": f"{folder}/manifest-files.json",
        "billedSizeBytes": 0,
        "itemCount": len(records),
        "outputFormat": "DYNAMODB_JSON",
        **about,
    }
    files = "".join(json.dumps(entry) + "\n" for entry in entries)
    for which, text in (("summary", json.dumps(summary)), ("files", files)):
        lake.put(f"{folder}/manifest-{which}.json", text.encode())
        lake.put(f"{folder}/manifest-{which}.checksum", checksum(text.encode()))
    lake.put(f"{folder}/_started", b"")
    return folder


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def checksum(content: bytes) -> bytes:
    """The checksum that AWS writes beside a manifest."""
    return _md5(content).encode()


def _md5(content: bytes) -> str:
    return base64.b64encode(md5(content, usedforsecurity=False).digest()).decode()
