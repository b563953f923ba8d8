"""Lease due tasks: the state that all dequeue calls of a process share, and payloads."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace.domain import plan, settle
from headrace.domain.change import Entry
from headrace.domain.errors import Unavailable
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.settle import ReleaseReason
from headrace.domain.task import Task
from headrace.ops.delivery.contention import Claims, Crowd, Members
from headrace.ops.delivery.dequeue import DequeueCall, DequeueResult, Order
from headrace.ops.delivery.group_window import GroupWindows
from headrace.ops.delivery.idempotency import DeliveryBatch
from headrace.ops.shared.commits import commit
from headrace.ops.shared.group_limits import BLOCKED_FOR, BLOCKED_WHERE_CHEAP_FOR
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Arrivals

if TYPE_CHECKING:
    from headrace.runtime.service import Service

_LANE_CYCLE: Final = 6  # a multiple of the number of lanes that take turns


class Deliveries(ServicePart):
    """Lease due tasks to workers.

    With ``pushing``, only tasks of queues with a target are leased, as a dispatcher needs.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.poll_after_seconds: float = service.settings.poll_after_seconds
        self.arrivals: Arrivals | None = service.store.arrivals
        cheap = self.arrivals is not None  # the store reads without cost
        self.look_at_groups_after = BLOCKED_WHERE_CHEAP_FOR if cheap else BLOCKED_FOR
        self.claims = Claims(service.random)
        self.crowd = Crowd()
        # A store that tells of arrivals has transactions, so no process loses a lease to another.
        self.members = None if cheap else Members(service.store, service.now)
        self.windows = GroupWindows(service.group_limits)
        self.pushing = False
        self._first_lanes: dict[str, int] = {}

    def dequeue(
        self,
        queues: str | Sequence[str],
        *,
        order: Order = Order.PREFERENCE,
        batch_size: int = 1,
        wait_seconds: float = 0,
        worker: str = "",
        keepalive: Seconds | None = None,
        lease_id: str | None = None,
        batch: DeliveryBatch | None = None,
    ) -> DequeueResult:
        """Lease up to *batch_size* due tasks to *worker*, of one queue in order of their due time.

        *order* says how tasks of several *queues* are chosen.  *lease_id* is the lease group that
        gets the tasks; *keepalive* has no effect then.  Of several calls with the same *batch* the
        first one leases, and the others return its tasks.

        If no task is due, wait up to *wait_seconds* for the first.  If the client of a waiting call
        disconnects, lease nothing, and release tasks already leased without a used attempt.

        Raises NotFound for a queue that is missing, LeaseLost unless the lease group is open,
        Unauthenticated if the key of the caller is revoked during a wait, and the errors of
        *batch*.  Nothing is leased then.
        """
        result = DequeueCall(
            self,
            queues,
            order,
            batch_size,
            wait_seconds,
            worker,
            keepalive,
            lease_id,
            batch,
        ).run()
        self.release_dedupe_keys(result.tasks)
        return result

    def first_lane(self, queue: Queue) -> int:
        """Return which of the lanes that take turns comes first: another one each time."""
        if queue.lanes == [0]:
            return 0
        number = self._first_lanes.get(queue.name, 0)
        self._first_lanes[queue.name] = (number + 1) % _LANE_CYCLE
        return number

    def release_dedupe_keys(self, tasks: Iterable[Task]) -> None:
        """Free the dedupe keys of *tasks* that hold them only until they are delivered.

        If the process dies before this, the next delivery frees the key.
        """
        for task in tasks:
            lock = plan.release_at_start(task)
            if lock is not None:
                with suppress(Unavailable):
                    self.store.set_key_lock(lock)

    def give_back(self, sources: Mapping[str, Queue], surplus: Sequence[Task]) -> None:
        """Release *surplus*, tasks of *sources* that are not delivered after all, in their turn."""
        if not surplus:
            return
        now = self.now()
        changes = [
            settle.release(task, sources[task.queue], now=now, reason=ReleaseReason.UNDELIVERED)
            for task in surplus
        ]
        with suppress(Unavailable):  # then their leases lapse
            commit(self.service, changes)
        self.claims.drop([Entry.of(task) for task in surplus])

    def with_payloads(self, sources: Mapping[str, Queue], tasks: list[Task]) -> list[Task]:
        """Return *tasks* of *sources* with offloaded payloads; dead-letter tasks without one.

        While the object store does not answer, release the tasks with an offloaded payload.
        Raises Unavailable if all tasks have one.
        """
        if not any(task.fetchable for task in tasks):
            return tasks
        try:
            filled = self.service.texts.filled(tasks)
        except Unavailable:
            inside = [task for task in tasks if not task.fetchable]
            self.give_back(sources, [task for task in tasks if task.fetchable])
            if not inside:
                raise
            return inside
        lost = [task for task in filled if "payload" in self.service.texts.lost(task)]
        if not lost:
            return filled
        now = self.now()
        changes = [settle.reject_lost(task, sources[task.queue], now=now) for task in lost]
        with suppress(Unavailable):  # then their leases lapse, and the next delivery finds it
            commit(self.service, changes)
        return [task for task in filled if task not in lost]
