"""SQLite without us: the same three writes per task from a client that does nothing else.

Its rows are made once by our own code and then only filled in, and its tables are ours, so what
it reaches is what the file can do.
"""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headrace.domain import plan, settle
from headrace.domain.change import Change, Entry
from headrace.domain.ids import new_task_id
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.settle import ReportedLease
from headrace.domain.task import Task
from headrace.domain.times import micros_of
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.rows import COLUMNS, Row, row_of
from headrace.store.sqlite.schema import begin

PAYLOAD: Final = {"sensor": "urn:ngsi-ld:WeatherObserved:0042", "values": list(range(40))}
"""Of every task the benchmark makes: some 200 bytes, so that a task stays below 1 KB."""

_LEASE: Final = "lse_00000000000000000000000000"
_INSERT: Final = f"INSERT INTO tasks ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)"  # noqa: S608  ours
_UPDATE: Final = (
    "UPDATE tasks SET state = ?, scheduled_at = ?, expires_at = ?, retained_until = ?, task = ?"
    " WHERE id = ? AND state = ?"
)


class BareWriteFailed(Exception):
    """A write of the bare client did not meet the tasks that it was for."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """One task as a row at each step of its life."""

    id: str
    waiting: Row
    leased: Row
    succeeded: Row


def _rows(queue: str) -> _Rows:
    now = datetime.now(UTC)
    target = Queue(queue, QueueSettings(), now, now)
    new = TaskSpec(json.dumps(PAYLOAD))
    waiting = _after(
        plan.enqueue(new, target, task_id=new_task_id(now), due_at=now, now=now, token=None), None
    )
    entry = Entry(waiting.id, waiting.place, now, waiting.expires_at)
    dequeued = plan.dequeue(
        entry, target, lease_id=_LEASE, now=now, worker="bench:1", keepalive=None
    )
    leased = _after(dequeued, waiting)
    lease = ReportedLease(waiting.id, queue, _LEASE)
    succeeded = _after(settle.succeed(lease, target, now=now, result=None), leased)
    return _Rows(waiting.id, row_of(waiting), row_of(leased), row_of(succeeded))


def _after(change: Change, task: Task | None) -> Task:
    after = change.apply(task)
    if after is None:
        raise BareWriteFailed("a task of the benchmark is not kept")
    return after


class BareClient:
    """One connection to a file, without our store; each call is a transaction, and synced."""

    def __init__(self, path: Path, queue: str) -> None:
        """Open the file at *path*, which `new_file` has made."""
        self._rows = _rows(queue)
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA busy_timeout = 0")  # begin() waits

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._db.close()

    def insert(self, count: int) -> list[str]:
        """Insert tasks; return their ids."""
        now = datetime.now(UTC)
        ids = sorted(new_task_id(now) for _ in range(count))
        _, *place, _, expires_at, retained_until, _, task, payload = self._rows.waiting
        before, after = task.split(self._rows.id)
        due = micros_of(now)
        dates = (due, expires_at, retained_until, due)
        self._write(
            _INSERT, [(id_, *place, *dates, f"{before}{id_}{after}", payload) for id_ in ids]
        )
        return ids

    def lease(self, ids: Sequence[str]) -> None:
        """Lease tasks."""
        self._change(ids, self._rows.waiting, self._rows.leased)

    def succeed(self, ids: Sequence[str]) -> None:
        """Finish leased tasks."""
        self._change(ids, self._rows.leased, self._rows.succeeded)

    def _change(self, ids: Sequence[str], before: Row, after: Row) -> None:
        _, _, state, _, scheduled_at, expires_at, retained_until, _, task, _ = after
        fields = (state, scheduled_at, expires_at, retained_until)
        head, tail = task.split(self._rows.id)
        self._write(_UPDATE, [(*fields, f"{head}{id_}{tail}", id_, before[2]) for id_ in ids])

    def _write(self, statement: str, values: Sequence[tuple[object, ...]]) -> None:
        begin(self._db)
        written = self._db.executemany(statement, values).rowcount
        self._db.execute("COMMIT")
        if written != len(values):
            raise BareWriteFailed(f"{written} of {len(values)} tasks were written")


def new_file(path: Path) -> None:
    """Make a file with our tables at *path*."""
    with closing(SqliteStore(str(path))):
        pass
