"""Versions of workers: who ran them, and since when.

Workers are forgotten an hour after their last heartbeat, and a bad version outlives its workers.
So each version has a record with the names of its workers and the time at which each of its queues
first had one.  A process writes it once for each worker, so the cost is one write for each start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain.filters import TaskFilter
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record, every_record
from headrace.store.call_scope import flat_rate, visible

if TYPE_CHECKING:
    from headrace.runtime.service import Service

KIND: Final = "version"
KEPT_FOR: Final = timedelta(days=30)
_WORKERS: Final = 500  # of one version; the oldest names go first
_KNOWN: Final = 10_000  # heartbeats that are remembered between calls
_TRIES: Final = 5
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class WorkerVersion:
    """A version, its workers, and when each queue first had one of them."""

    name: str
    workers: frozenset[str]
    since: Mapping[str, datetime]


class Versions(ServicePart):
    """Notes versions, and finds their workers."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._noted: dict[WorkerHeartbeat, None] = {}

    def note(self, heartbeat: WorkerHeartbeat) -> None:
        """Note the version of a worker, unless this process has noted it before."""
        start = WorkerHeartbeat(
            heartbeat.name, heartbeat.queues, heartbeat.started_at, version=heartbeat.version
        )
        if not heartbeat.version or start in self._noted:
            return
        with flat_rate(read=0.0):  # the cost must not depend on workers of others
            noted = any(self._note(start) for _ in range(_TRIES))
        if noted:  # otherwise the next heartbeat tries again
            self._noted[start] = None
            if len(self._noted) > _KNOWN:
                self._noted.pop(next(iter(self._noted)))

    def every(self) -> list[WorkerVersion]:
        """Return all versions on the caller's queues, the newest first."""
        with flat_rate():
            records = list(every_record(self.store, KIND, page=_PAGE))
        found = [_version(record) for record in records]
        return sorted(
            (one for one in found if one.since),
            key=lambda one: max(one.since.values()),
            reverse=True,
        )

    def resolved(self, where: TaskFilter) -> TaskFilter:
        """Return *where* with the names of the workers of the versions that it names."""
        if all(one.version is None for one in where.parts):
            return where
        return where.with_workers({one.name: one.workers for one in self.every()})

    def _note(self, start: WorkerHeartbeat) -> bool:
        """Write the record; return whether no other write was faster."""
        now = self.now()
        before = self.store.record(KIND, start.version)
        body = before.body if before else {"workers": [], "since": {}}
        if start.name in body["workers"] and set(start.queues) <= set(body["since"]):
            return True
        names = [name for name in body["workers"] if name != start.name]
        began = {queue: start.started_at.isoformat() for queue in start.queues}
        body = {
            "workers": [*names, start.name][-_WORKERS:],
            "since": {**began, **body["since"]},
        }
        version = before.version if before else 0
        record = Record(KIND, start.version, body, version + 1, now + KEPT_FOR)
        return self.store.put_record(record, replaces=version or None)


def _version(record: Record) -> WorkerVersion:
    since = {
        queue: datetime.fromisoformat(text)
        for queue, text in record.body["since"].items()
        if visible(queue)
    }
    return WorkerVersion(record.name, frozenset(record.body["workers"]), since)
