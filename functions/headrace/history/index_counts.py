"""Numbers of tasks by the index: exact if few entries show all, otherwise estimated from them.

The recorder's numbers are a second or so behind.  The first entries of a state divide them: into
ready and scheduled tasks, and into tasks before and after the end of their retention.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.change import Entry
from headrace.domain.filters import TaskFilter
from headrace.domain.queue import Queue
from headrace.domain.task import State, Status, Task
from headrace.domain.times import MICROSECOND
from headrace.ops.shared.paging import Walk
from headrace.ops.tasks.inspect import Inspect
from headrace.store.base import Store

FINISHED: Final = (State.SUCCEEDED, State.DEAD)
GLANCE: Final = 50  # entries
_SHARDS_READ: Final = 4  # tasks are spread evenly, so these show whether there is a newer one
_LEAST_PART: Final = 0.001
_DEAD: Final = TaskFilter(states=(State.DEAD,))
_READ: Final = 10_000  # dead tasks, a read unit each
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """The first entries of a stretch of the index, in order; ``complete`` if there are no more."""

    entries: Sequence[Entry]
    complete: bool

    @property
    def count(self) -> int:
        """The number of entries read."""
        return len(self.entries)

    def at_least(self, number: int) -> int:
        """Return *number*, corrected by the entries read."""
        return self.count if self.complete else max(number, self.count)

    def estimate(self, begin: datetime | None, end: datetime | None) -> float:
        """Return the estimated number of entries from *begin* to *end*, if they are as dense."""
        if self.complete or begin is None or end is None or end <= begin:
            return self.count
        part = (self.entries[-1].own_time - begin) / (end - begin)
        return self.count / min(1.0, max(_LEAST_PART, part))


@dataclass(frozen=True, slots=True)
class QueueIndex:
    """The index of one queue at one moment; ``recorded`` are the recorder's numbers."""

    store: Store
    queue: Queue
    recorded: Mapping[State, int]
    now: datetime

    def ready(self, limit: int) -> Sample:
        """Return the first tasks that are due."""
        return self.first(State.ENQUEUED, until=self.now, limit=limit)

    def scheduled(self, limit: int) -> Sample:
        """Return the first tasks that are not due yet."""
        return self.first(State.ENQUEUED, since=self.now + MICROSECOND, limit=limit)

    def first(
        self,
        state: State,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int,
    ) -> Sample:
        """Return the first entries of all places of a state, about *limit* of them."""
        places = self.queue.places(state)
        each = -(-limit // len(places))
        pages = [
            self.store.entries(place, since=since, until=until, limit=each) for place in places
        ]
        entries = [entry for page in pages for entry in page.entries]
        entries.sort(key=lambda entry: entry.own_time)
        return Sample(entries, all(page.last is None for page in pages))

    def newest(self, state: State, *, until: datetime | None = None) -> Entry | None:
        """Return the last entry of a state in some of the shards."""
        found: list[Entry] = []
        for place in self.queue.places(state):
            if place.shard < _SHARDS_READ:
                page = self.store.entries(place, until=until, descending=True, limit=1)
                found += page.entries
        return max(found, key=lambda entry: entry.own_time, default=None)

    def task(self, entry: Entry) -> Task | None:
        """Return the task of *entry*."""
        return self.store.read([entry.task_id], payload=False).get(entry.task_id)

    def divide_waiting(self, ready: Sample, later: Sample) -> tuple[int, int]:
        """Return the numbers of ready and of scheduled tasks."""
        if ready.complete and later.complete:
            return ready.count, later.count
        waiting = max(self.recorded[State.ENQUEUED], ready.count + later.count)
        if later.complete:
            return waiting - later.count, later.count
        if ready.complete:
            return ready.count, waiting - ready.count
        last = self.newest(State.ENQUEUED)
        before = ready.estimate(ready.entries[0].own_time, self.now)
        after = later.estimate(self.now, last.own_time if last else None)
        share = round(waiting * before / (before + after))
        share = min(max(share, ready.count), waiting - later.count)
        return share, waiting - share

    def finished(self, state: State) -> int:
        """Return the number of finished tasks, without those past their retention.

        The table may take two days to remove these, and the recorder counts them until then.
        """
        oldest = self.first(state, limit=GLANCE)
        finished = oldest.at_least(self.recorded[state])
        hidden = sum(entry.is_hidden(self.now) for entry in oldest.entries)
        if oldest.complete or hidden < oldest.count:
            return finished - hidden
        end = self.now - self._retention(state)
        return max(0, finished - round(oldest.estimate(oldest.entries[0].own_time, end)))

    def finished_at_a_glance(self, state: State) -> int:
        """Return the recorder's number if no task can be past its retention, else finished()."""
        young = self.now - self.queue.created_at <= self._retention(state)
        if young or self.recorded[state] <= 0:
            return max(0, self.recorded[state])
        return self.finished(state)

    def _retention(self, state: State) -> timedelta:
        settings = self.queue.settings
        if state is State.SUCCEEDED:
            return timedelta(seconds=settings.history_retention_in_seconds)
        return timedelta(seconds=settings.dead_letter_queue_config.retention_period_in_seconds)


def exact_counts(inspect: Inspect, queue: Queue) -> tuple[Mapping[Status, int], int] | None:
    """Count every entry of *queue*; return the numbers and how many dead tasks were cancelled.

    None if there are more entries than one call may count.  The index does not show which tasks
    were cancelled, so each dead one is read.
    """
    scheduled = inspect.count(queue.name, TaskFilter(states=(Status.SCHEDULED,)))
    if scheduled.partial:
        return None
    others = tuple(status for status in Status if status is not Status.SCHEDULED)
    counted = inspect.count(queue.name, TaskFilter(states=others))
    if counted.partial:
        return None
    by_state = counted.by_state
    counts: dict[Status, int] = {
        Status.SCHEDULED: scheduled.count,
        Status.READY: by_state[State.ENQUEUED],
        **{status: by_state[State(status)] for status in others if status is not Status.READY},
    }
    if counts[Status.DEAD] > _READ:
        return None
    until = inspect.now() + timedelta(seconds=inspect.patience)
    cancelled = 0
    for task, _ in inspect.walk(queue, _DEAD, Walk(inspect.now()), page=_PAGE):
        cancelled += task is not None and task.cancelled
        if inspect.now() > until:
            return None
    return counts, min(cancelled, counts[Status.DEAD])
