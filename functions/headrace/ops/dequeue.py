"""One dequeue call: which queues it looks at, how long it waits, and what fits its answer.

How tasks of one queue are leased is the business of ``deliveries``.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain import settle
from headrace.domain.errors import Unavailable
from headrace.domain.group import Group
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.settle import Held
from headrace.domain.task import Task
from headrace.ops.answer_room import AnswerRoom
from headrace.ops.batches import Batch
from headrace.ops.marked import commit

if TYPE_CHECKING:
    from headrace.ops.deliveries import Deliveries

_PAUSED_POLL_SECONDS: Final = 5.0
_LIMITED_POLL_SECONDS: Final = 1.0
_POLL_GROWTH: Final = 1.5
_POLL_CEILING: Final = 5
_HELP_EVERY: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Dequeued:
    """The tasks handed out, and when an idle worker should ask again (seconds)."""

    tasks: tuple[Task, ...]
    poll_after_seconds: float
    now: datetime
    replayed: bool = False  # whether they are what an earlier try of the same call had leased


@dataclass(slots=True)
class Call:
    """What is asked of one queue, and what is learnt of it on the way."""

    count: int
    worker: str
    keepalive: Seconds | None
    group: Group | None = None
    batch: Batch | None = None
    next_due: datetime | None = None  # when the next task falls due, as far as seen
    limited_for: float | None = None  # seconds until a limit may let something through


@dataclass(slots=True)
class Dequeue:
    """One call, with what it asks for.

    *go_on* tells whether there is time to wait on, *still_may* raises when that is over.
    """

    deliveries: "Deliveries"
    queue: str
    batch_size: int
    wait_seconds: float
    worker: str
    keepalive: Seconds | None
    lease_id: str | None
    batch: Batch | None
    go_on: Callable[[], bool]
    still_may: Callable[[], object]
    group: Group | None = field(default=None, init=False)
    helped_at: datetime | None = field(default=None, init=False)

    def run(self) -> Dequeued:
        """Lease what there is, and wait for it if there is nothing.  Raises as Deliveries do."""
        deliveries = self.deliveries
        until = deliveries.now() + timedelta(seconds=self.wait_seconds)
        pause, first_look = deliveries.poll_after_seconds, True
        while True:
            source = deliveries.queues.cached(self.queue)
            helps = self._helps()
            if first_look and (held := self._leased_before(source)) is not None:
                return held
            first_look = False
            call = Call(self.batch_size, self.worker, self.keepalive, self.group, self.batch)
            tasks = self._fitting(source, deliveries.take(source, call, helps=helps))
            now = deliveries.now()
            if tasks or now >= until or not self.go_on():
                if not tasks and self.batch is not None and not self.batch.note_nothing(now=now):
                    return self._leased_before(source) or Dequeued((), 0.0, now)
                return Dequeued(tasks, self._poll_after(source, call, now), now)
            nap = min(deliveries.crowd.pause(pause), (until - now).total_seconds())
            if call.next_due is not None:
                nap = min(nap, max(0.001, (call.next_due - now).total_seconds()))
            with deliveries.crowd:
                deliveries.sleep(nap)
            self.still_may()  # after the nap: what is leased next is leased by its answer
            pause = min(pause * _POLL_GROWTH, deliveries.poll_after_seconds * _POLL_CEILING)

    def _helps(self) -> bool:
        """Tell whether to reclaim leases this time: once in a while, as is looking at the group."""
        now = self.deliveries.now()
        if self.helped_at is not None and now - self.helped_at < _HELP_EVERY:
            return False
        self.helped_at = now
        if self.lease_id is not None:
            self.group = self.deliveries.leases.open_for(self.lease_id, self.queue)
        return True

    def _leased_before(self, queue: Queue) -> Dequeued | None:
        """Return what is left of what an earlier try has leased, if there was one."""
        if self.batch is None:
            return None
        deliveries = self.deliveries
        held = self.batch.leased_before(self.group, [queue])
        if held is None:
            return None
        tasks = self._fitting(queue, sorted(held, key=in_turn))
        return Dequeued(tasks, deliveries.poll_after_seconds, deliveries.now(), replayed=True)

    def _poll_after(self, queue: Queue, call: Call, now: datetime) -> float:
        usual = self.deliveries.poll_after_seconds
        if queue.paused(now):
            longer = max(_PAUSED_POLL_SECONDS, usual)
            if queue.resume_at is None:
                return longer
            return min(longer, (queue.resume_at - now).total_seconds())
        if call.limited_for is not None:
            return max(usual, min(call.limited_for, _LIMITED_POLL_SECONDS))
        if call.next_due is None:
            return usual
        return max(0.0, min(usual, (call.next_due - now).total_seconds()))

    def _fitting(self, queue: Queue, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return what fits one answer; the surplus goes back at once, its turn kept."""
        fitting: list[Task] = []
        surplus: list[Task] = []
        room = AnswerRoom()
        for task in tasks:
            (fitting if room.takes_task(task) or not fitting else surplus).append(task)
        now = self.deliveries.now()
        changes = [settle.give_back(Held.of(task), queue, now=now) for task in surplus]
        with suppress(Unavailable):  # then their leases lapse
            commit(self.deliveries.store, changes)
        self.deliveries.let_go(surplus)
        return tuple(fitting)


def in_turn(task: Task) -> tuple[datetime, str]:
    """Return what tasks are sorted by in the order they are handed out."""
    return (task.due_at, task.id)
