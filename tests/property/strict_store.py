"""A store that says of each delivery in strict order whether it comes too early.

Its index shows each new task late, and a read that need not be consistent shows what was a moment
ago.  Tasks say by their tag ``call`` which enqueue has made them.
What was acknowledged before that began must have ended before they are delivered.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.domain.task import Place, State, Task
from headrace.store.base import EntryPage
from headrace.store.memory import MemoryStore
from tests.manual_clock import ManualClock

LATEST: Final = 4.0
"""How many seconds late the index is at most."""

A_MOMENT: Final = timedelta(seconds=0.2)

_STOPS: Final = (State.ENQUEUED, State.INFLIGHT)


@dataclass
class Call:
    """An enqueue: when it began and, if it did, when it was acknowledged, in steps."""

    began: int
    acknowledged: int | None = None


class InOrder(MemoryStore):
    """The store; *halt* is whether a dead task stops its group."""

    def __init__(self, clock: ManualClock, *, halt: bool = False) -> None:
        super().__init__()
        self.clock, self.deliveries, self.steps = clock, 0, 0
        self.stops = (*_STOPS, State.DEAD) if halt else _STOPS
        self.calls: dict[str, Call] = {}
        self.live: dict[str | None, dict[str, Task]] = defaultdict(dict)
        self.inserted_at: dict[str, datetime] = {}
        self.lags: dict[str, float] = {}
        self.was: dict[str, list[tuple[datetime, Task | None]]] = defaultdict(list)
        self.own: dict[str, Call] = {}  # of tasks that an operator has put behind all others
        self.inflight: Counter[str | None] = Counter()

    def call(self) -> tuple[str, Call]:
        """Begin an enqueue; return its tag."""
        own = Call(self.steps)
        name = str(len(self.calls))
        self.calls[name] = own
        return name, own

    def put_behind(self, task_id: str) -> None:
        """Let a task count as enqueued just now."""
        self.own[task_id] = Call(self.steps)
        self.acknowledge(self.own[task_id])

    def every(self) -> list[Task]:
        """Return the tasks that are there."""
        return [one for one in self._tasks.values() if not one.remains]

    def waiting(self) -> list[Task]:
        """Return what has not ended."""
        tasks = [task for group in self.live.values() for task in group.values()]
        return [task for task in tasks if task.state in _STOPS]

    def acknowledge(self, call: Call) -> None:
        """Let its producer hear of it."""
        self.steps += 1
        call.acknowledged = self.steps
        self.steps += 1

    def _put(self, before: Task | None, after: Task | None) -> None:
        super()._put(before, after)
        one = before or after
        assert one is not None
        self.was[one.id].append((self.clock(), before))
        group = self.live[one.group_key]
        if before is None:
            self.inserted_at[one.id] = self.clock()
        elif before.spent is None and before.state is State.INFLIGHT:
            self.inflight[one.group_key] -= 1
        there = after is not None and after.spent is None
        if after is not None and there and after.state is State.INFLIGHT:
            self.inflight[one.group_key] += 1
            assert self.inflight[one.group_key] == 1, "two are in flight"
            if before is not None and before.state is State.ENQUEUED:
                self.deliveries += 1
                self._check(after, group)
        stops = after is not None and there and after.state in self.stops
        if after is not None and stops:
            group[one.id] = after
        else:
            group.pop(one.id, None)

    def _check(self, task: Task, group: dict[str, Task]) -> None:
        own = self._call_of(task)
        for other in group.values():
            before = self._call_of(other).acknowledged
            overtakes = other.id != task.id and before is not None and before < own.began
            assert not overtakes, f"{task.id} overtakes {other.id}"

    def _call_of(self, task: Task) -> Call:
        return self.own.get(task.id) or self.calls[task.tags["call"]]

    def entries(self, place: Place, **how: Any) -> EntryPage:
        page = super().entries(place, **how)
        seen = tuple(one for one in page.entries if self.shown_at(one.task_id) <= self.clock())
        return replace(page, entries=seen)

    def read(self, task_ids: Iterable[str], **how: Any) -> dict[str, Task]:
        found = super().read(task_ids, **how)
        if how.get("consistent", True):
            return found
        for name in task_ids:
            while self.was[name] and self.clock() - self.was[name][0][0] > A_MOMENT:
                self.was[name].pop(0)
            if self.was[name]:
                found.pop(name, None)
                _, was = self.was[name][0]
                if was is not None and not was.remains:
                    found[name] = was
        return found

    def shown_at(self, task_id: str) -> datetime:
        """Return from when on the index shows a task: by its id, unless ``lags`` says it."""
        seconds = self.lags.get(task_id, random.Random(task_id).uniform(0, LATEST))
        return self.inserted_at[task_id] + timedelta(seconds=seconds)
