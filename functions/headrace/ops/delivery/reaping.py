"""The reaper's work on one queue, page by page: reclaim, dead-letter, evict, and upkeep.

Lapsed leases are reclaimed and expired tasks dead-lettered every minute for every queue (see
``reaper``), and by any dequeue that finds too few tasks in its queue.  The index only proposes:
each task is read before it is judged, and the write repeats the judgement as a condition.

**Upkeep** finds out when the effects of changed settings have ended, and notes it on the queue's
record.  A queue that had more shards or lanes has tasks there until they are gone, and every
dequeue has to read there.  A limit that is new or was lowered has tasks in flight that it does not
count.

The index shows that such a place is empty.  It may lag, and a process with old settings may still
put a task there, so it is believed only after all processes have the new settings
(``AGREED_AFTER``), and checked again each hour.  A task that appears there later waits for at most
an hour.

Queues take turns (``Turns``): the one with the least used time comes next.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Self

from headrace.domain import plan, settle
from headrace.domain.change import Change, Done, Entry
from headrace.domain.ids import group_of
from headrace.domain.lease import GroupState
from headrace.domain.queue import AGREED_AFTER, Queue
from headrace.domain.settle import ReleaseReason
from headrace.domain.task import Place, State, Task
from headrace.ops.shared.commits import commit, commit_proposed
from headrace.ops.shared.lease_watch import FEW
from headrace.ops.shared.leases import GroupStatuses
from headrace.ops.shared.paging import counted
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import halts, note_dying
from headrace.store.base import Position, Store
from headrace.store.records.queues import KIND, from_record, note_of


class Reaping(ServicePart):
    """Reclaims lapsed leases, dead-letters expired tasks, and evicts dead ones."""

    def lapsed(self, queue: Queue, place: Place) -> Iterator[Task]:
        """Reclaim leases at one *place* that seem to have lapsed, and yield the tasks.

        For a dequeue that helps the reaper: it reads few tasks unless they have lapsed
        (``lease_watch``).
        """
        rest = self.service.leases.watch.suspects(self.store, place, self.now())
        statuses = GroupStatuses(self.store, self.now)
        count = FEW if len(rest) <= FEW else 1
        while rest:
            some, rest = rest[:count], rest[count:]
            taken = list(self.take_back(queue, some, statuses))
            yield from taken
            if 2 * len(taken) < len(some):
                return
            count *= 2

    def take_back(
        self, queue: Queue, entries: Sequence[Entry], statuses: GroupStatuses
    ) -> Iterator[Task]:
        """Read each of the overdue *entries*, reclaim the lapsed ones and yield the tasks.

        A group is judged once for all its tasks (*statuses*), and marked before the first of them
        is changed.
        """
        now = self.now()
        # What is read may be a moment old: the lease and its end are conditions of the write.
        ids = [entry.task_id for entry in entries]
        tasks = self.store.read(ids, consistent=False) if ids else {}
        changes = []
        for entry in entries:
            task = tasks.get(entry.task_id)
            if task is None or task.state is not State.INFLIGHT or task.queue != queue.name:
                continue
            judged = self._judged(task, queue, now, statuses)
            if isinstance(judged, Change):
                changes.append(judged)
            else:
                self.service.leases.watch.read(task, judged, now=now)
        for outcome in commit(self.service, changes):
            if isinstance(outcome, Done):
                yield outcome.task

    def _judged(
        self, task: Task, queue: Queue, now: datetime, statuses: GroupStatuses
    ) -> Change | datetime:
        """Return the change that reclaims *task*, or the end of its lease."""
        end = task.lease_expires_at or now
        group_id = group_of(task.lease_id)
        if group_id is not None:
            group = statuses.of(group_id)
            if group is not None and group.state is GroupState.CLOSED:
                return settle.release(task, queue, now=now, reason=ReleaseReason.GROUP_CLOSED)
            if group is not None and group.state is GroupState.OPEN:
                self.service.leases.watch.extended(group)
                return group.expires_at
        elif end > now:
            return end
        # Not *now*: the group may have been extended, and have lapsed, after that.
        return settle.reclaim(task, queue, now=self.now(), spread=self.service.random.random())

    def dead_letter(self, queue: Queue, entries: Sequence[Entry]) -> Iterator[Task]:
        """End the expired *entries*; entries that differ from their tasks are skipped."""
        now = self.now()
        if halts(queue):
            ids = [entry.task_id for entry in entries]
            note_dying(self.store, queue, self.store.read(ids, payload=False).values())
        expire = partial(plan.expire, queue=queue, now=now)
        for outcome in commit_proposed(self.service, entries, expire):
            if isinstance(outcome, Done):
                yield outcome.task

    def evict(self, queue: Queue) -> Iterator[int]:
        """Remove the oldest dead tasks over the queue's ``max_size``; yield the number removed.

        Yields at least once a second.
        """
        while True:
            began = self.now()
            places = queue.places(State.DEAD)
            dead = 0
            for place in places:
                for page in counted(self.store, place, now=began):
                    dead += page.number
                    if self.now() - began > _SLICE:
                        yield 0
            surplus = dead - queue.settings.dead_letter_queue_config.max_size
            until, removed = self.now() + _SLICE, 0
            while surplus > 0 and self.now() < until:
                removed_now = self._evict_page(places, min(_PAGE, surplus))
                removed += removed_now
                surplus -= removed_now
                if not removed_now:
                    surplus = 0  # the index lags; the next pass sees better
            yield removed
            if surplus <= 0:
                return  # else count again: another process may have removed some

    def _evict_page(self, places: Sequence[Place], most: int) -> int:
        now = self.now()
        oldest = sorted(
            (
                entry
                for place in places
                for entry in self.store.entries(place, limit=most).entries
                if not entry.is_hidden(now)
            ),
            key=lambda entry: (entry.scheduled_at, entry.task_id),
        )[:most]
        outcomes = self.store.commit([plan.purge(entry) for entry in oldest])
        return sum(isinstance(outcome, Done) for outcome in outcomes)


_SLICE: Final = timedelta(seconds=1)
_PAGE: Final = 100


@dataclass(slots=True)
class Scan:
    """Reads all due entries of a partition, page by page.

    It begins behind *start*, and reads the entries before *start* at the end.  ``at`` is the
    position behind the latest page, where another scan may resume; None when this one is over.
    """

    store: Store
    place: Place
    now: Callable[[], datetime]
    start: Position | None = None
    at: Position | None = field(default=None, init=False)

    def pages(self) -> Iterator[tuple[Entry, ...]]:
        """Yield the pages, none of them empty."""
        until = self.now()
        after = self.start
        while True:
            page = self.store.entries(self.place, until=until, after=after, limit=_PAGE)
            after = self.at = page.last
            if page.entries:
                yield page.entries
            if after is None:
                break
        while self.start is not None:
            page = self.store.entries(
                self.place, until=self.start.scheduled_at, after=after, limit=_PAGE
            )
            entries = tuple(entry for entry in page.entries if _position(entry) <= self.start)
            over = page.last is None or len(entries) < len(page.entries)
            after = self.at = None if over else page.last
            if entries:
                yield entries
            if over:
                break


def _position(entry: Entry) -> Position:
    return Position(entry.scheduled_at, entry.task_id)


class Upkeep(ServicePart):
    """Finds out when the effects of changed settings have ended."""

    def needed(self, queue: Queue) -> bool:
        """Return whether an effect of changed settings may still last."""
        return self._may_drain(queue) or self._may_count(queue)

    def look(self, name: str, *, again: bool = False) -> None:
        """Note the effects that have ended; *again* reads places that were empty before."""
        record = self.store.record(KIND, name)
        if record is None:
            return
        queue = from_record(record)
        found = self._reopened(queue) if again else queue
        if self._may_drain(found):
            gone = {
                state
                for state in State
                if state not in found.drained and self._empty(found.retiring_places(state))
            }
            found = found.with_drained(found.drained | gone)
        if self._may_count(found) and self.service.slots.uncounted(found).number == 0:
            found = replace(found, uncounted_since=None)
        if found != queue:
            self.store.leave_note(KIND, name, note_of(found), expects=record.note)

    def _may_drain(self, queue: Queue) -> bool:
        changed_at = queue.resharded_at or queue.created_at
        return queue.has_retiring_places and self.now() >= changed_at + AGREED_AFTER

    def _may_count(self, queue: Queue) -> bool:
        since = queue.uncounted_since
        return since is not None and self.now() >= since + AGREED_AFTER

    def _empty(self, places: Sequence[Place]) -> bool:
        """Return whether none of the *places* shows a task."""
        return not any(self.store.entries(place, limit=1).entries for place in places)

    def _reopened(self, queue: Queue) -> Queue:
        """Return the queue with the retired places in use again that show a task."""
        back = frozenset(state for state in State if not self._empty(queue.former_places(state)))
        return queue.with_undrained(back) if back else queue


@dataclass(slots=True)
class Job:
    """Work in steps; it gets *share* parts of the time."""

    name: str
    steps: Iterator[None]
    share: float = 1.0


@dataclass(order=True, slots=True)
class _Turn:
    used: float  # seconds by the job's share
    number: int  # the order of jobs that used the same time
    job: Job = field(compare=False)


class Turns:
    """The steps of several jobs, one at a time; this is itself the steps of a job.

    The next step belongs to the job with the least used time by its share, and of several such to
    the one that has waited longest.  So a slow job delays no other, and each job gets a first step
    before any gets a second.
    """

    def __init__(self, jobs: Iterable[Job], now: Callable[[], datetime]) -> None:
        self._now = now
        self._waiting = [_Turn(0.0, number, job) for number, job in enumerate(jobs)]
        self._number = self._first = self._new = len(self._waiting)

    @property
    def next(self) -> str | None:
        """The name of the next job; None when all are done."""
        return self._waiting[0].job.name if self._waiting else None

    @property
    def new(self) -> int:
        """The number of jobs without a step so far."""
        return self._new

    def __iter__(self) -> Self:
        """Return the steps."""
        return self

    def __next__(self) -> None:
        """Take a step.  An error of a step ends its job and is raised."""
        if not self._waiting:
            raise StopIteration
        turn = heapq.heappop(self._waiting)
        self._new -= turn.number < self._first
        began = self._now()
        try:
            next(turn.job.steps)
        except StopIteration:
            return
        turn.used += (self._now() - began).total_seconds() / turn.job.share
        turn.number = self._number
        self._number += 1
        heapq.heappush(self._waiting, turn)
