"""Passes of the reaper over a table whose requests take time, by a clock that moves with them.

The code is the real one, over the store in memory.  Each pass is a container of its own, with a
clock of its own that starts with its minute; what passes at the same time do touches different
partitions of the index, so they may run one after the other here.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.domain.change import Change
from headrace.domain.errors import Unavailable
from headrace.domain.ids import shard_of
from headrace.domain.lease import LeaseGroup, learn
from headrace.domain.lifecycle import Action, rules
from headrace.domain.task import Place, State, Task
from headrace.ops.delivery.reaper import HandOn, Reaped
from headrace.store.base import Outcome
from headrace.store.memory import MemoryStore
from headrace.store.records.reaper import ReaperPart
from headrace.testing.conditions import START
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

QUERY: Final = 0.005
"""Seconds that a request takes: a query of the index, or of the control table."""
READ: Final = 0.010
"""100 tasks read."""
WRITE: Final = 0.020
"""25 changes."""
WORK: Final = 0.0008
"""The processor's time for one task, at the share of it that 512 MB pay for (measured, by 0.29)."""
UNITS_PER_SECOND: Final = 1_000
"""What one partition of the index takes."""
THROTTLED: Final = 2.0
"""What it takes to give up a partition that is throttled."""
PASS_SECONDS: Final = 43.0
"""How long a pass may begin pages: see reaper.py."""

(_NEW,) = rules(Action.ENQUEUE, None)
_DELIVERED: Final = {"lease_length": timedelta(seconds=5), "worker": "gone:1", "started_at": START}


class ReaperKilled(BaseException):
    """What nobody catches: the process is gone."""


@dataclass
class SlowTable:
    """A store whose every request takes its time; tasks of some queues are *throttled*."""

    store: MemoryStore
    clock: ManualClock
    free_at: dict[Place, datetime]
    throttled: set[str] = field(default_factory=set)
    requests: int = 0
    deadly: str = ""
    killed: bool = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def slowly(*given: Any, **named: Any) -> Any:
            self._take(QUERY, given)
            return found(*given, **named)

        return slowly

    def read(self, task_ids: Any, **named: Any) -> dict[str, Task]:
        ids = list(task_ids)
        self._take(READ * -(-len(ids) // 100), ())
        return self.store.read(ids, **named)

    def commit(self, changes: Sequence[Change], **named: Any) -> list[Outcome]:
        began = self.clock()
        self._take(WRITE * -(-len(changes) // 25) + WORK * len(changes), ())
        touched = [self._place(change) for change in changes]
        outcomes = self.store.commit(changes, **named)
        touched += [self._place(change) for change in changes]
        for place in touched:
            if place is not None:
                begin = max(began, self.free_at.get(place, began))
                self.free_at[place] = begin + timedelta(seconds=1 / UNITS_PER_SECOND)
        for place in touched:
            if place is not None:
                self.clock.forward_to(self.free_at[place])
        return outcomes

    def _place(self, change: Change) -> Place | None:
        task = self.store.read([change.task_id]).get(change.task_id)
        return task.place if task is not None else None

    def _take(self, seconds: float, given: tuple[Any, ...]) -> None:
        self.requests += 1
        self.clock.forward(seconds)
        place = given[0] if given else None
        if self.killed or (isinstance(place, Place) and place.queue == self.deadly):
            self.killed = True
            raise ReaperKilled
        if isinstance(place, Place) and place.queue in self.throttled:
            self.clock.forward(THROTTLED)
            raise Unavailable("throttled")


@dataclass
class ReaperDeployment:
    """A deployment whose reaper comes every minute.

    *refused* are parts that Lambda does not take, *lost* those that it takes and never runs; a look
    at the queue *deadly* ends the process.
    """

    memory: MemoryStore = field(default_factory=MemoryStore)
    at: datetime = START
    pass_seconds: float = PASS_SECONDS
    throttled: set[str] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    may_hand_on: bool = True
    deadly: str = ""
    _free_at: dict[Place, datetime] = field(default_factory=dict)

    def container(self) -> World:
        """Start one more container: nothing is in its memory yet."""
        clock = ManualClock(self.at)
        store: Any = SlowTable(
            self.memory, clock, self._free_at, self.throttled, deadly=self.deadly
        )
        return new_world(store, clock)

    def minute(self) -> list[Reaped]:
        """Let the timer run the reaper, and it others; then a minute is over."""
        events: list[Mapping[str, Any]] = []

        def hand_on(event: Mapping[str, Any]) -> bool:
            if event["part"] in self.refused:
                return False
            events.append(json.loads(json.dumps(event)))
            return True

        reaped = [self._pass(None, hand_on if self.may_hand_on else None)]
        came = [event for event in events if event["part"] not in self.lost]
        reaped += [self._pass(ReaperPart.of(event), None) for event in came]
        self.at += timedelta(minutes=1)
        return reaped

    def minutes_until(self, done: Callable[[], bool], most: int = 60) -> int:
        """Let minutes pass until *done*; return how many it were."""
        for minute in range(1, most + 1):
            self.minute()
            if done():
                return minute
        raise AssertionError(f"not done in {most} minutes")

    def _pass(self, part: ReaperPart | None, hand_on: HandOn | None) -> Reaped:
        world = self.container()

        def time_left() -> float:
            return self.pass_seconds - (world.clock() - self.at).total_seconds()

        return world.use.reaping.run(part, time_left=time_left, hand_on=hand_on)

    # -- what there is -------------------------------------------------------------------------

    def queue(self, name: str, **settings: Any) -> str:
        """Create a queue."""
        self.container().queue(name, **settings)
        return name

    def leased(self, queue: str, number: int, *, lapsed: bool = True, first: int = 0) -> None:
        """Lease *number* tasks of *queue*: by the index, all are over; *lapsed* says what is so."""
        ended = self.at - timedelta(seconds=1)
        until = ended if lapsed else self.at + timedelta(days=1)
        lease: dict[str, Any] = {
            "attempts": 1,
            "lease_id": "lse_1",
            "lease_expires_at": until,
            **_DELIVERED,
        }
        self.put(queue, State.INFLIGHT, number, first, ended, **lease)

    def grouped(self, queue: str, number: int, group: LeaseGroup) -> None:
        """Lease *number* tasks of *queue* under a group."""
        (lease,) = [group.new_lease("lse_1")]
        at = group.granted_until
        fields: dict[str, Any] = {
            "attempts": 1,
            "lease_id": lease,
            "lease_expires_at": at,
            **_DELIVERED,
        }
        self.put(queue, State.INFLIGHT, number, 500_000, at, step=timedelta(), **fields)
        self.memory.change_group(learn(group.id, queue, now=self.at))

    def dead(self, queue: str, number: int) -> None:
        """Have *number* tasks of *queue* dead."""
        self.put(queue, State.DEAD, number, 600_000, self.at, finished_at=self.at)

    def waiting(
        self, queue: str, number: int, *, first: int = 0, expires: datetime | None = None
    ) -> None:
        """Have *number* tasks of *queue* ready; all that come later in it are due later."""
        self.put(queue, State.ENQUEUED, number, first, self.at, expires_at=expires)

    def put(
        self,
        queue: str,
        state: State,
        number: int,
        first: int,
        at: datetime,
        *,
        step: timedelta = timedelta(microseconds=1),
        **fields: Any,
    ) -> None:
        """Put *number* tasks into the store as they are, without any call."""
        shards = self.container().use.queues.get(queue).shards_in_use
        for place in range(first, first + number):
            task_id = f"{queue}-{place:07}"
            task = Task(
                id=task_id,
                place=Place(queue, state, shard_of(task_id, shards)),
                scheduled_at=at + place * step,
                due_at=at,
                created_at=at,
                enqueued_at=at,
                **fields,
            )
            self.memory.commit([Change(_NEW, task_id, insert=task)])

    def renew(self, queue: str, *, but: str, until: datetime) -> None:
        """Let heartbeats keep all tasks of *queue* that are in flight, but one."""
        with self.memory._lock:  # noqa: SLF001  as above
            for task in list(self.memory._tasks.values()):  # noqa: SLF001
                if (task.queue, task.state) == (queue, State.INFLIGHT) and task.id != but:
                    beat = replace(task, lease_expires_at=until)
                    self.memory._tasks[task.id] = beat  # noqa: SLF001

    def in_state(self, queue: str, state: State) -> int:
        """Count the tasks of *queue* in a state."""
        return sum(
            len(index)
            for place, index in self.memory._index.items()  # noqa: SLF001  a million, at once
            if (place.queue, place.state) == (queue, state)
        )

    def lapse(self, task_id: str) -> None:
        """Let the lease of a task be over."""
        with self.memory._lock:  # noqa: SLF001  as above
            task = self.memory._tasks[task_id]  # noqa: SLF001
            over = replace(task, lease_expires_at=self.at)
            self.memory._tasks[task_id] = over  # noqa: SLF001

    def by_queue(self, state: State) -> Counter[str]:
        """Count the tasks of each queue in a state."""
        index = self.memory._index.items()  # noqa: SLF001  likewise
        return Counter({place.queue: len(there) for place, there in index if place.state is state})

    def number(self, state: State) -> int:
        """Count the tasks of all queues in a state."""
        index = self.memory._index.items()  # noqa: SLF001  likewise
        return sum(len(there) for place, there in index if place.state is state)
