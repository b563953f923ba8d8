"""What the reaper does to a queue, page by page: nothing stays stuck, or is looked for in vain.

Lapsed leases are taken back and the expired dead-lettered every minute for every queue (see
``reaper``), and by any dequeue that finds too little in its own.  The index only proposes: each
task is read before it is judged, and judged again in the write.

**Upkeep** is what is found out of a queue once its settings have been changed, and left on its
record.  A queue that had more shards or lanes has tasks there until they are gone, and every
dequeue has to look there; a limit that is new or was lowered has tasks in flight that it does not
count.  Both end by themselves.  The reaper sees when, and leaves a note, which is no change of the
settings.

That one is empty the index says, which may lag, and whoever has old settings may put a task
there: so it is believed only once nobody has (``AGREED_AFTER``), and looked at again each hour.  A
task that should still turn up there waits for an hour, and is then found.

Queues take turns (``Turns``): whichever has had the least time comes next.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final, Self

from headrace.domain import plan, settle
from headrace.domain.change import Change, Entry
from headrace.domain.ids import group_of
from headrace.domain.lease import GroupState
from headrace.domain.queue import AGREED_AFTER, Queue
from headrace.domain.settle import Held, ReleaseReason
from headrace.domain.task import Place, State, Task
from headrace.ops.shared.commits import commit, commit_proposed
from headrace.ops.shared.leases import GroupStatuses
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import halts, note_dying
from headrace.store.base import Done, Position, Store
from headrace.store.records.queues import KIND, from_record, note_of


class Reaping(ServicePart):
    """The use case, with what it needs from outside; *spread* gives random numbers in [0, 1)."""

    def lapsed(self, queue: Queue, place: Place) -> Iterator[Task]:
        """Take back leases at one *place* that seem to have lapsed, and yield the tasks.

        For a dequeue that helps out: it reads few tasks unless those have lapsed (``lease_watch``).
        """
        suspects = self.service.leases.watch.suspects(self.store, place, self.now())
        statuses = GroupStatuses(self.store, self.now)
        for entries, at_first in ((suspects.likely, 1), (suspects.others, suspects.few)):
            rest, count = entries, at_first
            while rest:
                some, rest = rest[:count], rest[count:]
                taken = list(self.take_back(queue, some, statuses))
                yield from taken
                if 2 * len(taken) < len(some):
                    break
                count *= 2
            self.service.leases.watch.put_off(place, rest)

    def take_back(
        self, queue: Queue, entries: Sequence[Entry], statuses: GroupStatuses
    ) -> Iterator[Task]:
        """Read each of the overdue *entries*, take back those that are lapsed and yield the tasks.

        A group is judged once for all its tasks (*statuses*), and marked before the first of them
        is touched.
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
        """Return how *task* is taken back, or until when its lease is good."""
        end = task.lease_expires_at or now
        group_id = group_of(task.lease_id)
        if group_id is not None:
            group = statuses.of(group_id)
            if group is not None and group.state is GroupState.CLOSED:
                return settle.release(
                    Held.of(task), queue, now=now, reason=ReleaseReason.GROUP_CLOSED
                )
            if group is not None and group.state is GroupState.OPEN:
                self.service.leases.watch.extended(group)
                return group.expires_at
        elif end > now:
            return end
        return settle.reclaim(task, queue, now=now, spread=self.service.random.random())

    def dead_letter(self, queue: Queue, entries: Sequence[Entry]) -> Iterator[Task]:
        """End the expired *entries*; those that are not what the index says are left alone."""
        now = self.now()
        if halts(queue):
            ids = [entry.task_id for entry in entries]
            note_dying(self.store, queue, self.store.read(ids, payload=False).values())
        expire = partial(plan.expire, queue=queue, now=now)
        for outcome in commit_proposed(self.service, entries, expire):
            if isinstance(outcome, Done):
                yield outcome.task


_PAGE: Final = 100


@dataclass(slots=True)
class Scan:
    """A look at all entries of a partition whose time has come, page by page.

    It begins behind *start*, and when it has come to the end looks at what is before *start*.
    ``at`` is behind the latest page: where another scan may go on; None when this one is over.
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
    """The use case, with what it needs from outside."""

    def needed(self, queue: Queue) -> bool:
        """Tell whether there is something to find out of *queue*."""
        return self._may_drain(queue) or self._may_count(queue)

    def look(self, name: str, *, again: bool = False) -> None:
        """Find out what has ended by now; *again* looks at places that were found empty before."""
        record = self.store.record(KIND, name)
        if record is None:
            return
        queue = from_record(record)
        found = self._reopened(queue) if again else queue
        if self._may_drain(found):
            gone = {
                state
                for state in State
                if state not in found.drained and self._empty(found.retiring(state))
            }
            found = found.with_drained(found.drained | gone)
        if self._may_count(found) and self.service.slots.beyond(found).number == 0:
            found = replace(found, uncounted_since=None)
        if found != queue:
            self.store.leave_note(KIND, name, note_of(found), expects=record.note)

    def _may_drain(self, queue: Queue) -> bool:
        changed_at = queue.resharded_at or queue.created_at
        return queue.retires and self.now() >= changed_at + AGREED_AFTER

    def _may_count(self, queue: Queue) -> bool:
        since = queue.uncounted_since
        return since is not None and self.now() >= since + AGREED_AFTER

    def _empty(self, places: Sequence[Place]) -> bool:
        """Tell whether no task shows at any of the *places*."""
        return not any(self.store.entries(place, limit=1).entries for place in places)

    def _reopened(self, queue: Queue) -> Queue:
        """Return the queue with the places in use again where something shows after all."""
        back = frozenset(state for state in State if not self._empty(queue.retired(state)))
        return queue.with_undrained(back) if back else queue


@dataclass(slots=True)
class Job:
    """Something to do, step by step; of the time there is it gets *share* parts."""

    name: str
    steps: Iterator[None]
    share: float = 1.0


@dataclass(order=True, slots=True)
class _Turn:
    used: float  # seconds by the job's share
    number: int  # the order of those that have had the same
    job: Job = field(compare=False)


class Turns:
    """The steps of several jobs, one at a time; itself the steps of a job.

    Each step is one of the job that has had the least time by its share, and of several such the
    one that has waited for longest.  So a slow job holds up nobody, and each gets a first step
    before any gets a second.
    """

    def __init__(self, jobs: Iterable[Job], now: Callable[[], datetime]) -> None:
        self._now = now
        self._waiting = [_Turn(0.0, number, job) for number, job in enumerate(jobs)]
        self._number = self._first = self._new = len(self._waiting)

    @property
    def next(self) -> str | None:
        """The name of the job whose turn it is; None when all are done."""
        return self._waiting[0].job.name if self._waiting else None

    @property
    def new(self) -> int:
        """How many jobs have not had a step yet."""
        return self._new

    def __iter__(self) -> Self:
        """Return the steps."""
        return self

    def __next__(self) -> None:
        """Take a step.  What it raises, its job raises, which is then over."""
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
