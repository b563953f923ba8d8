"""The workers of each queue.

Workers name their queues in their heartbeats.  A worker without heartbeats shows itself by its
deliveries: tasks of the queue were started in this minute or the one before.  So a queue counts as
silent only if no worker names it and no task was started lately.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain.queue import Queue
from headrace.domain.times import MINUTE, micros_of
from headrace.domain.transitions import Event
from headrace.domain.worker import QueueWorkers
from headrace.ops.shared.service_part import ServicePart
from headrace.store.call_scope import flat_rate
from headrace.store.records.queues import WORKERS, worker_of

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_PAGE: Final = 250
_PAGES: Final = 8  # more workers are not counted
_LATELY: Final = timedelta(seconds=10)  # a third of the time between two heartbeats


@dataclass(frozen=True, slots=True)
class OnDuty:
    """The workers of each queue; not ``complete`` if there were too many to count.

    ``versions`` has for each queue the versions of its workers, with the start of the first one.
    """

    by_queue: Mapping[str, QueueWorkers]
    complete: bool
    versions: Mapping[str, Mapping[str, datetime]] = field(default_factory=dict)

    def of(self, queue: str, started: float = 0.0) -> QueueWorkers:
        """Return the workers of *queue*, which start *started* of its tasks a second."""
        return replace(self.by_queue.get(queue, QueueWorkers()), started=started)

    def silent(self, queue: Queue, started: float, now: datetime) -> bool:
        """Return whether *queue* lacks workers; *started* tasks were delivered lately.

        A paused queue and a queue with a target need no workers.
        """
        if not self.complete or started > 0 or queue.settings.target is not None:
            return False
        return not queue.is_paused(now) and queue.name not in self.by_queue


class Listening(ServicePart):
    """Counts the workers of queues."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._known: tuple[datetime, OnDuty] | None = None

    def on_duty_lately(self) -> OnDuty:
        """Return the workers of the last ten seconds, for pages that are reloaded often."""
        now = self.now()
        if self._known is None or not timedelta() <= now - self._known[0] < _LATELY:
            self._known = now, self.on_duty()
        return self._known[1]

    def on_duty(self) -> OnDuty:
        """Return the workers of now; this reads the workers, not the queues."""
        now = self.now()
        found: dict[str, QueueWorkers] = {}
        versions: dict[str, dict[str, datetime]] = {}
        after, more, pages = "", True, 0
        with flat_rate():  # the cost must not disclose workers of others
            while more and pages < _PAGES:
                records, more = self.store.records(
                    WORKERS, after=after, limit=_PAGE, consistent=False
                )
                pages += 1
                for record in records:
                    after = record.name
                    worker = worker_of(record)
                    queues = worker.on_duty(now)
                    for queue in queues:
                        one = found.get(queue, QueueWorkers())
                        slots = one.slots + worker.heartbeat.concurrency
                        found[queue] = QueueWorkers(one.count + 1, one.busy + worker.busy, slots)
                    if (version := worker.heartbeat.version) != "":
                        began = worker.heartbeat.started_at
                        for queue in queues:
                            first = versions.setdefault(queue, {})
                            first[version] = min(began, first.get(version, began))
        return OnDuty(found, not more, versions)

    def of(self, queue: Queue) -> QueueWorkers | None:
        """Return the workers of *queue*, None if it lacks them; too many to count are not busy.

        The cost does not depend on other queues.
        """
        now = self.now()
        with flat_rate():
            buffers = self.service.counters.buffers()
            last = micros_of(now) // MINUTE
            minutes = self.service.counters.minutes(queue.name, buffers, last - 1, last + 1)
            started = sum(activity.number(Event.STARTED) for _, activity in minutes)
        on_duty = self.on_duty()
        if on_duty.silent(queue, started, now):
            return None
        seconds = (micros_of(now) - (last - 1) * MINUTE) / 1_000_000
        return on_duty.of(queue.name, started / seconds) if on_duty.complete else QueueWorkers()
