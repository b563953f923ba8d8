"""Lease thousands of due tasks of one shard of a queue at a time, under a lease group.

Used by workers with direct access to the store, such as Spark, which read a queue shard by shard.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.change import Change, Done, Entry
from headrace.domain.errors import InvalidRequest
from headrace.domain.lease import LeaseGroup
from headrace.domain.operate import BulkAction, operate
from headrace.domain.queue import Queue
from headrace.domain.task import TURN_LANE, State, Task
from headrace.ops.delivery.queue_dequeue import QueueDequeue
from headrace.ops.shared.commits import commit
from headrace.ops.shared.lanes import ShardReader, oldest_ready_of, some_due
from headrace.ops.shared.service_part import ServicePart

_LOOK_EVERY: Final = timedelta(seconds=1)  # at the group


class ShardDeliveries(ServicePart):
    """The use cases, with what they need from outside."""

    def due(self, queue: str, *, by: datetime | None = None) -> bool:
        """Return whether *queue* has a task to dequeue now that was due *by* an instant.

        If it has none, reclaim lapsed leases first, as any dequeue does.
        Raises NotFound when there is no such queue, and InvalidRequest for one with a target.
        """
        source = self.source(queue)
        now = self.now()
        until = now if by is None else min(by, now)
        if source.is_paused(now):
            return False
        places = source.places(State.ENQUEUED)
        if any(some_due(self.store, place, until) for place in places):
            return True
        return any(
            task.state is State.ENQUEUED and task.due_at <= until
            for place in source.places(State.INFLIGHT)
            for task in self.service.reaping.lapsed(source, place)
        )

    def queries(self, queue: str) -> float:
        """Return how many queries of each shard due() makes where nothing is.

        Raises as it does.
        """
        source = self.source(queue)
        every = [*source.places(State.ENQUEUED), *source.places(State.INFLIGHT)]
        return len(every) / source.shards_of(State.ENQUEUED)

    def waiting(self, queue: str) -> list[int]:
        """Return how many tasks of *queue* seem due in each shard, as far as one request counts.

        Raises as due() does.
        """
        source, now = self.source(queue), self.now()
        due = [0] * source.shards_of(State.ENQUEUED)
        for place in source.places(State.ENQUEUED):
            until = None if place.lane == TURN_LANE else now  # that lane is in another order
            due[place.shard] += self.store.count(place, until=until, now=None).number
        return due

    def oldest_ready(self, queue: str) -> float | None:
        """Return for how many seconds the oldest task of *queue* has been due; None without one.

        Raises as due() does.
        """
        return oldest_ready_of(self.store, self.source(queue), self.now())

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

        The tasks come in the order of their turns.  No page is empty, and a page is leased only
        when the caller asks for it.  Ends early if no further task is due, or a limit is
        reached.  Raises NotFound when there is no such queue, InvalidRequest for one with a target,
        and LeaseLost unless the group is open.
        """
        reader: ShardReader | None = None
        looked_at = None
        group: LeaseGroup | None = None
        while count > 0:
            now = self.now()
            source = self.source(queue)
            if source.is_paused(now):
                return
            if group is None or looked_at is None or now - looked_at >= _LOOK_EVERY:
                group, looked_at = self.service.leases.open_for(lease_id, queue), now
            reader = reader or ShardReader(self.store, source, shard, self.now)
            reader.until = now
            ready = self._alive(source, reader.page(min(count, max(1, page()))))
            tasks = self._lease(source, ready, worker=worker, group=group)
            count -= len(tasks)
            if tasks:
                yield tasks
            if reader.exhausted or (ready and not tasks and source.limited):
                return

    def take(self, queue: str, tasks: Sequence[Task], *, worker: str, lease_id: str) -> list[Task]:
        """Lease *tasks* that wait in *queue*, due or not, under a group; return those it has now.

        For a caller whose work on them is done, and who only settles them: neither a pause nor a
        rate limit matters, but a limit of tasks in flight does.  A task that is not due yet is made
        due, which is one write more; one that has changed since it was read is left alone.
        Raises NotFound when there is no such queue, InvalidRequest for one with a target, and
        LeaseLost unless the group is open.
        """
        source, now = self.source(queue), self.now()
        group = self.service.leases.open_for(lease_id, queue)
        planned = [operate(BulkAction.RUN, task, source, target=None, now=now) for task in tasks]
        changes = [one for one in planned if isinstance(one, Change)]
        made_due = [one.task for one in commit(self.service, changes) if isinstance(one, Done)]
        due = [task for task in tasks if task.due_at <= now] + made_due
        versions = {task.id: task.version + 1 for task in due}
        entries = [Entry.of(task) for task in due]
        leased = self._lease(source, entries, worker=worker, group=group, rated=False)
        changed = [task for task in leased if task.version != versions[task.id]]
        self.service.deliveries.give_back({queue: source}, changed)
        return [task for task in leased if task not in changed]

    def _lease(
        self,
        queue: Queue,
        entries: Sequence[Entry],
        *,
        worker: str,
        group: LeaseGroup,
        rated: bool = True,
    ) -> list[Task]:
        """Lease *entries*, which the index shows as due, under *group*; return the tasks.

        The limits of *queue* apply.  If not *rated*, the tasks do not count for its rate.
        """
        deliveries = self.service.deliveries
        call = QueueDequeue(deliveries, queue, len(entries), worker, group=group, rated=rated)
        tasks = deliveries.with_payloads({queue.name: queue}, call.lease(entries, len(entries)))
        deliveries.release_dedupe_keys(tasks)
        return tasks

    def contended(self, queue: str, shard: int) -> bool:
        """Return whether tasks of a shard seem due that only other workers' leasing delays.

        Raises NotFound when there is no such queue, and InvalidRequest for one with a target.
        """
        source, now = self.source(queue), self.now()
        if source.is_paused(now) or source.limited:
            return False
        places = (place for place in source.places(State.ENQUEUED) if place.shard == shard)
        return any(some_due(self.store, place, now) for place in places)

    def source(self, queue: str) -> Queue:
        """Return *queue*.  Raises NotFound, and InvalidRequest for one with a target."""
        source = self.service.queues.cached(queue)
        if source.settings.target is not None:
            message = f"queue {queue} has a target: its tasks are pushed, not dequeued"
            raise InvalidRequest(message)
        return source

    def _alive(self, queue: Queue, entries: list[Entry]) -> list[Entry]:
        """Return those of *entries* that have not expired; the others are dead-lettered."""
        now = self.now()
        over = [entry for entry in entries if entry.expires_at and entry.expires_at <= now]
        if not over:
            return entries
        list(self.service.reaping.dead_letter(queue, over))
        return [entry for entry in entries if entry not in over]
