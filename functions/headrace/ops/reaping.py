"""Taking back lapsed leases and burying the expired: nothing stays stuck.

Run by the reaper every minute over every queue, and by any dequeue that finds too little over its
own.  The index only proposes: each task is read before it is judged, and judged again in the write.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headrace.domain import plan, settle
from headrace.domain.change import Change, Entry
from headrace.domain.errors import Unavailable
from headrace.domain.group import GroupState, group_of
from headrace.domain.lifecycle import Action
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State, Task
from headrace.ops.chores import Chores
from headrace.ops.counting import counted
from headrace.ops.leases import Leases, Verdicts
from headrace.ops.marked import commit, commit_proposed
from headrace.ops.queues import Queues
from headrace.store.base import Done, Position, Store

_PAGE: Final = 100
_FULL_PASS: Final = timedelta(hours=1)
_REMEMBERED: Final = 20_000
_TRUST_FOR: Final = timedelta(seconds=60)


@dataclass(slots=True)
class Reaped:
    """What a pass of the reaper did; ``released`` is what closed groups still held.

    ``oldest_ready_seconds`` is how long the oldest task that could be taken, in a queue that is not
    paused, has been waiting for somebody to take it.
    """

    retried: int = 0
    released: int = 0
    buried: int = 0
    expired: int = 0
    healthy: int = 0
    evicted: int = 0
    purged: int = 0
    throttled: bool = False
    oldest_ready_seconds: float = field(default=0.0, compare=False)


@dataclass(slots=True)
class Reaping:
    """The use case, with what it needs from outside; *spread* gives random numbers in [0, 1)."""

    store: Store
    queues: Queues
    chores: Chores
    now: Callable[[], datetime]
    leases: Leases
    spread: Callable[[], float] = random.random
    _healthy_until: dict[tuple[str, datetime], datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _full_pass_at: datetime | None = None

    def run(self) -> Reaped:
        """Look at every overdue lease and every due task of every queue.

        Stops and says so while the table throttles: late heartbeats are its fault then.
        """
        reaped = Reaped()
        try:
            self._run(reaped)
        except Unavailable:
            reaped.throttled = True
        return reaped

    def _run(self, reaped: Reaped) -> None:
        full = self._full_pass_at is None or self.now() - self._full_pass_at >= _FULL_PASS
        for group_id in self.leases.closings():
            reaped.released += sum(self.leases.finish_closing(group_id))
        verdicts = Verdicts(self.store, self.now)
        for queue in self._all_queues():
            for shard in range(queue.shards_in_use):
                for task in self.lapsed(queue, shard, reaped=reaped, verdicts=verdicts):
                    waits_again = task.state is State.ENQUEUED
                    released = waits_again and task.last_move == Action.RELEASE
                    reaped.released += released
                    reaped.retried += waits_again and not released
                    reaped.buried += not waits_again
                expired = self.expired(queue, shard, full=full, reaped=reaped)
                reaped.expired += sum(1 for _ in expired)
            reaped.evicted += self.evict(queue)
        if full:
            self._full_pass_at = self.now()
        for chore in self.chores.pending():
            gone: set[str] = set()
            for _ in self.chores.pages(chore, gone):
                pass
            reaped.purged += len(gone)

    def lapsed(
        self,
        queue: Queue,
        shard: int,
        *,
        reaped: Reaped | None = None,
        verdicts: Verdicts | None = None,
    ) -> Iterator[Task]:
        """Take back the lapsed leases of one shard, page after page, and yield the tasks.

        A page full of healthy long tasks, which heartbeats keep past the end the index knows, must
        not hide a dead one.  The reaper (*reaped* counts for it) reads each of them; a dequeue that
        helps out trusts for a while what was read before.  A group is judged once for all its
        tasks (*verdicts*), and marked before the first of them is touched.
        """
        verdicts = verdicts or Verdicts(self.store, self.now)
        for entries in self._overdue(Place(queue.name, State.INFLIGHT, shard)):
            now = self.now()
            suspects = entries if reaped else self._suspects(entries, now)
            # What is read may be a moment old: the lease and its end are conditions of the write.
            ids = [entry.task_id for entry in suspects]
            tasks = self.store.read(ids, consistent=False) if ids else {}
            changes = []
            for entry in suspects:
                task = tasks.get(entry.task_id)
                if task is None or task.state is not State.INFLIGHT or task.queue != queue.name:
                    continue
                judged = self._judged(task, queue, now, verdicts)
                if isinstance(judged, Change):
                    changes.append(judged)
                else:
                    self._trust(entry, min(judged, now + _TRUST_FOR))
            if reaped is not None:
                reaped.healthy += len(entries) - len(changes)
            for outcome in commit(self.store, changes):
                if isinstance(outcome, Done):
                    yield outcome.task

    def _judged(
        self, task: Task, queue: Queue, now: datetime, verdicts: Verdicts
    ) -> Change | datetime:
        """Return how *task* is taken back, or until when its lease is good."""
        end = task.lease_expires_at or now
        group_id = group_of(task.lease_id)
        if group_id is not None:
            group = verdicts.of(group_id)
            if group is not None and group.state is GroupState.CLOSED:
                return settle.hand_back(task, queue, now=now)
            if group is not None and group.state is GroupState.OPEN:
                return group.expires_at
        elif end > now:
            return end
        return settle.reclaim(task, queue, now=now, spread=self.spread())

    def expired(
        self, queue: Queue, shard: int, *, full: bool, reaped: Reaped | None = None
    ) -> Iterator[Task]:
        """Bury the tasks of one shard that waited past their ``expires_at``, and yield them.

        Waiting tasks expire after they fall due, so only due ones are looked at; from the oldest
        until a page holds nothing expired, or all of them in a *full* pass.  The oldest that goes
        on waiting is noted in *reaped*.
        """
        paused = queue.settings.dequeuing_settings.dequeuing_paused
        for entries in self._overdue(Place(queue.name, State.ENQUEUED, shard)):
            now = self.now()
            over = [entry for entry in entries if entry.expires_at and entry.expires_at <= now]
            if reaped is not None and not paused and len(over) < len(entries):
                oldest = min(entry.scheduled_at for entry in entries if entry not in over)
                waited = (now - oldest).total_seconds()
                reaped.oldest_ready_seconds = max(reaped.oldest_ready_seconds, waited)
            if not over and not full:
                return
            yield from self.bury(queue, over)

    def evict(self, queue: Queue) -> int:
        """Remove the oldest dead tasks over the queue's ``max_size``; return how many."""
        most = queue.settings.dead_letter_queue_config.max_size
        if most == 0:
            return 0
        now = self.now()
        places = [Place(queue.name, State.DEAD, shard) for shard in range(queue.shards_in_use)]
        dead = (page.number for place in places for page in counted(self.store, place, now=now))
        surplus = sum(dead) - most
        gone = 0
        while gone < surplus:
            page = min(_PAGE, surplus - gone)
            oldest = sorted(
                (
                    entry
                    for place in places
                    for entry in self.store.entries(place, limit=page).entries
                    if not entry.hidden(now)
                ),
                key=lambda entry: (entry.scheduled_at, entry.task_id),
            )[:page]
            changes = [plan.purge(entry, before=now) for entry in oldest]
            removed = sum(isinstance(done, Done) for done in self.store.commit(changes))
            if not removed:
                break  # the index lags; the next pass sees better
            gone += removed
        return gone

    def bury(self, queue: Queue, entries: Sequence[Entry]) -> Iterator[Task]:
        """End the expired *entries*; those that are not what the index says are left alone."""
        now = self.now()
        expire = partial(plan.expire, queue=queue, now=now)
        for outcome in commit_proposed(self.store, entries, expire):
            if isinstance(outcome, Done):
                yield outcome.task

    def _all_queues(self) -> Iterator[Queue]:
        cursor = None
        while True:
            page = self.queues.list(limit=_PAGE, cursor=cursor)
            yield from page.queues
            cursor = page.cursor
            if cursor is None:
                return

    def _overdue(self, place: Place) -> Iterator[tuple[Entry, ...]]:
        after: Position | None = None
        until = self.now()
        while True:
            page = self.store.entries(place, until=until, after=after, limit=_PAGE)
            if page.entries:
                yield page.entries
            after = page.last
            if after is None:
                return

    def _suspects(self, entries: Sequence[Entry], now: datetime) -> list[Entry]:
        with self._lock:
            return [
                entry
                for entry in entries
                if self._healthy_until.get(_delivery(entry), entry.scheduled_at) <= now
            ]

    def _trust(self, entry: Entry, until: datetime) -> None:
        with self._lock:
            self._healthy_until.pop(_delivery(entry), None)
            self._healthy_until[_delivery(entry)] = until
            while len(self._healthy_until) > _REMEMBERED:
                del self._healthy_until[next(iter(self._healthy_until))]


def _delivery(entry: Entry) -> tuple[str, datetime]:
    """A delivery is known by the task and the end of its lease as first granted."""
    return (entry.task_id, entry.scheduled_at)
