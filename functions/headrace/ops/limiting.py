"""What holds deliveries back: slots for tasks in flight, and a token bucket.

A slot is a mark that names the delivery which has it, taken in the transaction of that delivery.
It is given up by nobody: a slot whose task is no longer in flight under that lease is free, and a
lease once over is never valid again.  So no worker that dies, no delete and no purge can leak one.
Queues without limits never come here.
"""

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from headrace.domain.change import Mark
from headrace.domain.errors import Unavailable
from headrace.domain.queue import IntervalUnit, Queue, RateLimiting
from headrace.domain.task import Place, State, Task
from headrace.ops.counting import counted
from headrace.store.base import Record, Store

_BUCKET: Final = "bucket"
_TRIES: Final = 50
_UNIT_SECONDS: Final = {
    IntervalUnit.SECONDS: 1,
    IntervalUnit.MINUTES: 60,
    IntervalUnit.HOURS: 3600,
}


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
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.Random)

    def tokens(self, queue: Queue, wanted: int) -> tuple[int, float]:
        """Take up to *wanted* tokens; return how many, and seconds until there is another.

        The bucket starts full and refills continuously.  Raises Unavailable when too many others
        take tokens at the same time.
        """
        rate = queue.settings.dequeuing_settings.rate_limiting
        if rate is None:
            return wanted, 0.0
        per_second = _per_second(rate)
        for _ in range(_TRIES):
            record = self.store.record(_BUCKET, queue.name)
            held = self._filled(record, rate)
            taken = min(wanted, math.floor(held + 1e-9))
            if taken == 0:
                return 0, (1 - held) / per_second
            if self._write(queue.name, record, held - taken):
                return taken, 0.0
            self.sleep(self.chance.uniform(0, 0.02))
        message = "too many workers ask for tokens of this queue at once"
        raise Unavailable(message)

    def wait_seconds(self, queue: Queue) -> float:
        """Return in how many seconds there is a token; 0 when there is one or none is needed."""
        rate = queue.settings.dequeuing_settings.rate_limiting
        if rate is None:
            return 0.0
        held = self._filled(self.store.record(_BUCKET, queue.name), rate)
        return max(0.0, (1 - held) / _per_second(rate))

    def give_back(self, queue: Queue, count: int) -> None:
        """Put *count* tokens back that were not used."""
        rate = queue.settings.dequeuing_settings.rate_limiting
        for _ in range(_TRIES if rate is not None and count > 0 else 0):
            record = self.store.record(_BUCKET, queue.name)
            if rate is None or self._write(queue.name, record, self._filled(record, rate) + count):
                return
            self.sleep(self.chance.uniform(0, 0.02))

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
        self.store.drop_record(_BUCKET, queue)
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

    def _filled(self, record: Record | None, rate: RateLimiting) -> float:
        if record is None:
            return float(rate.max_tokens)
        since = self.now() - datetime.fromisoformat(record.body["at"])
        refill = max(0.0, since.total_seconds()) * _per_second(rate)
        return min(float(rate.max_tokens), float(record.body["tokens"]) + refill)

    def _write(self, queue: str, record: Record | None, tokens: float) -> bool:
        now = self.now()
        if record is not None:
            now = max(now, datetime.fromisoformat(record.body["at"]))  # clocks may differ
        body = {"tokens": tokens, "at": now.isoformat()}
        version = record.version if record else None
        return self.store.put_record(
            Record(_BUCKET, queue, body, (version or 0) + 1), replaces=version
        )


def limited(queue: Queue) -> bool:
    """Tell whether *queue* has limits at all."""
    dequeuing = queue.settings.dequeuing_settings
    return dequeuing.max_inflight_tasks > 0 or dequeuing.rate_limiting is not None


def _per_second(rate: RateLimiting) -> float:
    return rate.max_tokens / (rate.interval * _UNIT_SECONDS[rate.interval_unit])


def _kind(queue: str) -> str:
    return f"slot:{queue}"


def _delivered(task: Task | None, queue: str, lease_id: str) -> bool:
    return task is not None and (task.queue, task.state, task.lease_id) == (
        queue,
        State.INFLIGHT,
        lease_id,
    )
