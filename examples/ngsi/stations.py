"""What the demo's workers do with a batch of leased tasks: one report for each of them.

A station moves tasks on: the splitter turns a notification into rows and sends the task to the
next queue, the loader writes the rows and ends it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from examples.ngsi.ngsi import Unreadable, payload_rows, rows_payload, split
from examples.ngsi.rows_file import RowsFile
from examples.ngsi.values import instant_of

NOTIFY_QUEUE = "ngsi.notify"
ENTITIES_QUEUE = "ngsi.entities"

ONE_IN = 10
"""One task in so many fails on purpose, once."""
ON_PURPOSE = "FailedOnPurpose"
MOST_PAYLOAD_BYTES = 256 * 1024

Task = dict[str, Any]
Report = dict[str, Any]


def fails_once(task_id: str) -> bool:
    """Whether the first attempt at this task fails on purpose."""
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:4]) % ONE_IN == 0


class Station(Protocol):
    """What a loop does with a batch of leased tasks."""

    queue: str

    def work(self, tasks: Sequence[Task]) -> tuple[list[Report], Counter[str]]:
        """One report for each task, and what to add to the totals once they are accepted."""


class Splitter:
    """From a notification to its rows."""

    queue = NOTIFY_QUEUE

    def work(self, tasks: Sequence[Task]) -> tuple[list[Report], Counter[str]]:
        """Move each task on with its rows, or fail it."""
        reports = [split_report(task) for task in tasks]
        return reports, Counter(report["status"] for report in reports)


class Loader:
    """From rows to the file."""

    queue = ENTITIES_QUEUE

    def __init__(self, path: Path) -> None:
        """Write to the SQLite file at that path."""
        self._path = path
        self._file: RowsFile | None = None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def work(self, tasks: Sequence[Task]) -> tuple[list[Report], Counter[str]]:
        """Write the rows of all tasks first, report after; a crash between costs nothing."""
        # Opened here, because an SQLite connection belongs to the thread that opened it.
        self._file = self._file or RowsFile(self._path)
        rows, reports = {}, []
        for task in tasks:
            try:
                rows[task["id"]] = payload_rows(task["payload"])
            except Unreadable as error:
                reports.append(_rejected(task, str(error)))
            else:
                reports.append(_report(task, "SUCCEEDED", result={"rows": len(rows[task["id"]])}))
        written = self._file.write(rows)
        totals = Counter({"rows_new": written.new, "rows_known": written.known})
        return reports, totals + Counter(report["status"] for report in reports)


def split_report(task: Task) -> Report:
    """What to report on a task of ``ngsi.notify``."""
    if task["attempts"] == 1 and fails_once(task["id"]):
        error = {"type": ON_PURPOSE, "message": "first attempt, one task in ten"}
        return _report(task, "FAILED", error=error)
    received_at = instant_of(task["created_at"])
    if received_at is None:
        return _rejected(task, f"created_at is no instant: {task['created_at']}")
    try:
        payload = rows_payload(split(task["payload"], task["tags"], received_at))
    except Unreadable as error:
        return _rejected(task, str(error))
    size = len(json.dumps(payload))  # as the client sends it: ASCII, so characters are bytes
    if size > MOST_PAYLOAD_BYTES:
        return _rejected(task, f"its rows take {size:,} bytes, more than a payload may have")
    return _report(task, "MOVED", to_queue=ENTITIES_QUEUE, payload=payload)


def _report(task: Task, status: str, **fields: object) -> Report:
    return {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": status, **fields}


def _rejected(task: Task, message: str) -> Report:
    error = {"type": Unreadable.__name__, "message": message}
    return _report(task, "FAILED", error=error, retryable=False)
