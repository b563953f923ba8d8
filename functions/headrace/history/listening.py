"""Whether anybody takes the tasks of a queue.

Workers say so with their heartbeats.  One that sends none is known by what it does: tasks of the
queue were started in this minute or the one before.  So nobody is said to listen only where no
worker says that it does, and nothing was started lately.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.instants import MINUTE, micros_of
from headrace.domain.queue import Queue
from headrace.domain.transitions import Event
from headrace.domain.worker import QueueWorkers
from headrace.history.counters import Counters
from headrace.store.base import Store
from headrace.store.call_scope import flat_rate
from headrace.store.records.workers import KIND, from_record

_PAGE: Final = 250
_PAGES: Final = 8  # of so many workers some listen to any queue
_LATELY: Final = timedelta(seconds=10)  # a third of what passes between two heartbeats


@dataclass(frozen=True, slots=True)
class OnDuty:
    """How many workers take tasks of each queue; ``complete`` unless there were more of them.

    ``busy`` is how many of them run as many tasks as they can.
    ``versions`` are those of its workers, by queue, each with when the first of them began.
    """

    by_queue: Mapping[str, int]
    complete: bool
    versions: Mapping[str, Mapping[str, datetime]] = field(default_factory=dict)
    busy: Mapping[str, int] = field(default_factory=dict)

    def all_busy(self, queue: str) -> int:
        """Return how many workers *queue* has if all of them are busy, else 0."""
        workers = self.by_queue.get(queue, 0)
        return workers if self.complete and workers == self.busy.get(queue, 0) else 0

    def silent(self, queue: Queue, started: float, now: datetime) -> bool:
        """Tell whether nobody listens to *queue*, in which *started* tasks were begun lately.

        A queue that is paused may rest, and one with a target needs no workers.
        """
        if not self.complete or started > 0 or queue.settings.target is not None:
            return False
        return not queue.paused(now) and self.by_queue.get(queue.name, 0) == 0


@dataclass(slots=True, eq=False, repr=False)
class Listening:
    """The use case, with what it needs from outside."""

    store: Store
    counters: Counters
    now: Callable[[], datetime]
    _known: tuple[datetime, OnDuty] | None = None

    def on_duty_lately(self) -> OnDuty:
        """Return who was on duty some seconds ago at most: for pages that are asked for again."""
        now = self.now()
        if self._known is None or not timedelta() <= now - self._known[0] < _LATELY:
            self._known = now, self.on_duty()
        return self._known[1]

    def on_duty(self) -> OnDuty:
        """Return who is on duty now: a look at the workers, not at any queue."""
        now = self.now()
        found: Counter[str] = Counter()
        busy: Counter[str] = Counter()
        versions: dict[str, dict[str, datetime]] = {}
        after, more, pages = "", True, 0
        with flat_rate():  # it tells of queues, not of workers that may be others'
            while more and pages < _PAGES:
                records, more = self.store.records(KIND, after=after, limit=_PAGE, consistent=False)
                pages += 1
                for record in records:
                    after = record.name
                    worker = from_record(record)
                    queues = worker.on_duty(now)
                    found.update(queues)
                    if worker.busy:
                        busy.update(queues)
                    if (version := worker.heartbeat.version) != "":
                        began = worker.heartbeat.started_at
                        for queue in queues:
                            first = versions.setdefault(queue, {})
                            first[version] = min(began, first.get(version, began))
        return OnDuty(found, not more, versions, busy)

    def of(self, queue: Queue) -> QueueWorkers:
        """Return how the workers of *queue* are; what it costs depends on no other queue."""
        now = self.now()
        with flat_rate():
            buffers = self.counters.buffers()
            last = micros_of(now) // MINUTE
            minutes = self.counters.minutes(queue.name, buffers, last - 1, last + 1)
            started = sum(activity.number(Event.STARTED) for _, activity in minutes)
        on_duty = self.on_duty()
        return QueueWorkers(on_duty.silent(queue, started, now), on_duty.all_busy(queue.name))
