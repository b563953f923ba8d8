"""What holds deliveries back: slots for tasks in flight, and tokens (see ``tokens``).

A slot is a mark that names the delivery which has it, taken in the transaction of that delivery.
It is given up by nobody: a slot whose task is no longer in flight under that lease is free, and a
lease once over is never valid again.  So no worker that dies, no delete and no purge can leak one.
Queues without limits never come here.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headrace.domain.change import Mark
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State, Task
from headrace.ops.counting import counted
from headrace.ops.tokens import Tokens
from headrace.store.base import Store


@dataclass(frozen=True, slots=True)
class Slot:
    """A free place for one task in flight; ``expects`` is what its mark says now."""

    number: int
    expects: str | None

    def mark(self, queue: str, task_id: str, lease_id: str) -> Mark:
        """Return the mark that gives this slot to a delivery."""
        return Mark(_kind(queue), str(self.number), f"{task_id} {lease_id}", self.expects)


@dataclass(slots=True)
class Limiting:
    """The use case, with what it needs from outside."""

    store: Store
    now: Callable[[], datetime]
    tokens: Tokens
    chance: random.Random = field(default_factory=random.Random)

    def slots(self, queue: Queue, wanted: int) -> list[Slot]:
        """Return up to *wanted* slots that look free; whether one is got, its write tells."""
        limit = queue.settings.dequeuing_settings.max_inflight_tasks
        used = {int(name): value for name, value in self.store.marks(_kind(queue.name)).items()}
        free = [Slot(number, None) for number in range(limit) if number not in used]
        over = {number: value for number, value in used.items() if number >= limit}
        if len(free) < wanted or over:
            for number, value in self._stale(queue, used).items():
                if number < limit:
                    free.append(Slot(number, value))
                else:
                    self.store.set_mark(Mark(_kind(queue.name), str(number), None, value))
                    del over[number]
        for number, value in over.items():  # the limit was higher when these were taken
            if not free:
                return []
            slot = free.pop()
            moved = Mark(_kind(queue.name), str(slot.number), value, slot.expects)
            if self.store.set_mark(moved):
                self.store.set_mark(Mark(_kind(queue.name), str(number), None, value))
        self.chance.shuffle(free)
        return free[: min(wanted, max(0, limit - self._inflight(queue)))]

    def forget(self, queue: str) -> None:
        """Drop everything kept of the limits of a queue that is deleted."""
        self.tokens.forget(queue)
        for name, value in self.store.marks(_kind(queue)).items():
            self.store.set_mark(Mark(_kind(queue), name, None, value))

    def _stale(self, queue: Queue, used: Mapping[int, str]) -> dict[int, str]:
        """Return the used slots whose delivery is over."""
        holders = {number: value.split(" ") for number, value in used.items()}
        tasks = self.store.read((task_id for task_id, _ in holders.values()), payload=False)
        return {
            number: used[number]
            for number, (task_id, lease_id) in holders.items()
            if not _delivered(tasks.get(task_id), queue.name, lease_id)
        }

    def _inflight(self, queue: Queue) -> int:
        """Count by the index, for tasks that were delivered before there was a limit."""
        places = (Place(queue.name, State.INFLIGHT, shard) for shard in range(queue.shards_in_use))
        return sum(
            page.number for place in places for page in counted(self.store, place, now=self.now())
        )


def limited(queue: Queue) -> bool:
    """Tell whether *queue* has limits at all."""
    dequeuing = queue.settings.dequeuing_settings
    return dequeuing.max_inflight_tasks > 0 or dequeuing.rate_limiting is not None


def _kind(queue: str) -> str:
    return f"slot:{queue}"


def _delivered(task: Task | None, queue: str, lease_id: str) -> bool:
    return task is not None and (task.queue, task.state, task.lease_id) == (
        queue,
        State.INFLIGHT,
        lease_id,
    )
