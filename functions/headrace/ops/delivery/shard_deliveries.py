"""Handing out what is due in one shard of a queue, thousands of tasks at a time, under a group.

For workers beside the tables, such as the stations on Spark, which divide a queue by its shards.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.change import Entry
from headrace.domain.lease import Group
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State, Task
from headrace.ops.delivery.dequeue import Deliveries
from headrace.ops.delivery.reaping import Reaping
from headrace.ops.shared.leases import Leases
from headrace.ops.shared.limiting import limited
from headrace.ops.shared.queues import QueueOperations
from headrace.store.base import Position, Store

_LOOK_EVERY: Final = timedelta(seconds=1)  # at the group


@dataclass(slots=True)
class ShardDeliveries:
    """The use cases, with what they need from outside."""

    store: Store
    queues: QueueOperations
    reaping: Reaping
    deliveries: Deliveries
    leases: Leases
    now: Callable[[], datetime]

    def due(self, queue: str, *, by: datetime | None = None) -> bool:
        """Tell whether a task of *queue* could be dequeued now that was due *by* an instant.

        Where there is none, lapsed leases are taken back first, as by any dequeue.
        Raises NotFound when there is no such queue.
        """
        source = self.queues.cached(queue)
        now = self.now()
        until = now if by is None else min(by, now)
        if source.paused(now):
            return False
        if any(self._shows(place, until) for place in source.places(State.ENQUEUED)):
            return True
        return any(
            task.state is State.ENQUEUED and task.due_at <= until
            for shard in range(source.shards_of(State.INFLIGHT))
            for task in self.reaping.lapsed(source, shard)
        )

    def dequeue(
        self,
        queue: str,
        shard: int,
        *,
        count: int,
        worker: str,
        lease_id: str,
        page: Callable[[], int],
    ) -> Iterator[list[Task]]:
        """Yield up to *count* due tasks of one shard, *page* at a time, leased under a group.

        They come in order of their due time, no page is empty, and each is leased only when it is
        asked for.  Ends early where nothing more is due, or the queue's limits allow no more.
        Raises NotFound when there is no such queue, and LeaseLost unless the group is open.
        """
        after: Position | None = None
        looked_at = None
        group: Group | None = None
        while count > 0:
            now = self.now()
            source = self.queues.cached(queue)
            if source.paused(now):
                return
            if group is None or looked_at is None or now - looked_at >= _LOOK_EVERY:
                group, looked_at = self.leases.open_for(lease_id, queue), now
            place = Place(queue, State.ENQUEUED, shard)
            limit = min(count, max(1, page()))
            found = self.store.entries(place, until=now, after=after, limit=limit)
            ready = self._alive(source, found.entries)
            tasks = self.deliveries.lease(source, ready, worker=worker, group=group)
            count -= len(tasks)
            if tasks:
                yield tasks
            after = found.last
            if after is None or (ready and not tasks and limited(source)):
                return

    def _alive(self, queue: Queue, entries: tuple[Entry, ...]) -> list[Entry]:
        """Return those of *entries* that have not expired; the others are dead-lettered."""
        now = self.now()
        over = [entry for entry in entries if entry.expires_at and entry.expires_at <= now]
        if not over:
            return list(entries)
        list(self.reaping.dead_letter(queue, over))
        return [entry for entry in entries if entry not in over]

    def _shows(self, place: Place, until: datetime) -> bool:
        page = self.store.entries(place, until=until, limit=1)
        return bool(page.entries)
