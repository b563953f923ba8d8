"""Passes of the reaper over a table whose requests take time, by a clock that moves with them.

Each pass is a container of its own, with a clock of its own that starts with its minute.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.domain.change import Change
from headrace.domain.errors import Unavailable
from headrace.domain.ids import shard_of
from headrace.domain.lease import LeaseGroup, learn
from headrace.domain.lifecycle import Action, rules
from headrace.domain.task import Place, State, Task
from headrace.ops.delivery.reaper import HandOn, Reaped
from headrace.store.records.reaper import ReaperPart
from headrace.store.sqlite import SqliteStore
from headrace.testing.clock import START
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.wrapped_store import WrappedStore

QUERY: Final = 0.005
"""Seconds that a request takes: a query of the index, or of the control table."""
READ: Final = 0.010
"""100 tasks read."""
WRITE: Final = 0.020
"""25 changes."""
WORK: Final = 0.0008
"""The processor's time for one task, at the share of it that 512 MB pay for."""
THROTTLED: Final = 2.0
"""What it takes to give up a partition that is throttled."""
PASS_SECONDS: Final = 43.0
"""How long a pass may begin pages: see reaper.py."""

(_NEW,) = rules(Action.ENQUEUE, None)
_LEASED: Final[dict[str, Any]] = {
    "attempts": 1,
    "lease_length": timedelta(seconds=5),
    "worker": "gone:1",
    "started_at": START,
}


@dataclass
class SlowTable:
    """Lets each request take its time; requests about *throttled* queues fail."""

    clock: ManualClock
    throttled: set[str]

    def __call__(self, name: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name == "read":
            given = ([*given[0]],)
            self.clock.forward(READ * -(-len(given[0]) // 100))
        elif name == "commit":
            self.clock.forward(WRITE * -(-len(given[0]) // 25) + WORK * len(given[0]))
        else:
            self.clock.forward(QUERY)
        if given and isinstance(given[0], Place) and given[0].queue in self.throttled:
            self.clock.forward(THROTTLED)
            raise Unavailable("throttled")
        return call(*given, **named)


@dataclass
class ReaperDeployment:
    """A deployment whose reaper comes every minute; Lambda never runs the parts that are *lost*."""

    store: SqliteStore = field(default_factory=lambda: SqliteStore(":memory:"))
    at: datetime = START
    pass_seconds: float = PASS_SECONDS
    throttled: set[str] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    may_hand_on: bool = True

    def container(self) -> World:
        """Start one more container: nothing is in its memory yet."""
        clock = ManualClock(self.at)
        store: Any = WrappedStore(self.store, SlowTable(clock, self.throttled))
        return new_world(store, clock)

    def minute(self) -> list[Reaped]:
        """Let the timer run the reaper, and it others; then a minute is over."""
        events: list[Mapping[str, Any]] = []

        def hand_on(event: Mapping[str, Any]) -> bool:
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
        lease = {"lease_id": "lse_1", "lease_expires_at": until, **_LEASED}
        self.put(queue, State.INFLIGHT, number, first, ended, **lease)

    def grouped(self, queue: str, number: int, group: LeaseGroup) -> None:
        """Lease *number* tasks of *queue* under a group."""
        at = group.granted_until
        lease = {"lease_id": group.with_delivery("lse_1"), "lease_expires_at": at, **_LEASED}
        self.put(queue, State.INFLIGHT, number, 500_000, at, **lease)
        self.store.patch(learn(group.id, queue, now=self.at))

    def dead(self, queue: str, number: int) -> None:
        """Have *number* tasks of *queue* dead."""
        self.put(queue, State.DEAD, number, 600_000, self.at, finished_at=self.at)

    def put(
        self, queue: str, state: State, number: int, first: int, at: datetime, **fields: Any
    ) -> None:
        """Put *number* tasks into the store as they are, without any call."""
        shards = self.container().use.queues.get(queue).shards_in_use
        births = []
        for place in range(first, first + number):
            task_id = f"{queue}-{place:07}"
            due = at if "lsg" in fields.get("lease_id", "") else at + timedelta(microseconds=place)
            task = Task(
                id=task_id,
                place=Place(queue, state, shard_of(task_id, shards)),
                scheduled_at=due,
                due_at=at,
                created_at=at,
                enqueued_at=at,
                **fields,
            )
            births.append(Change(_NEW, task_id, insert=task))
        for begin in range(0, number, 1000):
            self.store.commit(births[begin : begin + 1000])

    def in_state(self, queue: str, state: State) -> int:
        """Count the tasks of *queue* in a state."""
        counted = new_world(self.store, ManualClock(self.at)).use.inspect.count(queue)
        assert not counted.partial
        return counted.by_state[state]

    def number(self, state: State) -> int:
        """Count the tasks of all queues in a state."""
        names = [queue.name for queue in self.container().use.queues.list(limit=100).shown]
        return sum(self.in_state(name, state) for name in names)
