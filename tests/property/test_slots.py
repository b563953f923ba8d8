"""Limits of tasks in flight under crashes, lost answers, old views and each other's steps.

The services are the real code, each with a memory of its own, over one store; a fuse cuts one off
before or after any call of the store, and lets others act in between.
"""

import itertools
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headrace.domain.errors import Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DequeuingSettings, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.slots import Reservation
from headrace.domain.task import SHOWN_STATES, Place, State, Task
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.base import Store
from headrace.store.memory import MemoryStore
from tests.contract.conftest import lease_name
from tests.manual_clock import ManualClock
from tests.property.stores import STORES, everything
from tests.property.walks import in_part

_SERVICES: Final = 3
_AT_ONCE: Final = RetryStrategy(Backoff.FIXED, max_retries=100, base_seconds=0, jitter=0)
_WATCHED: Final = frozenset({"commit", "reserve", "free", "read", "entries", "pools"})


class Died(BaseException):
    """The process is gone: nothing it would have done next is done."""


class Fused:
    """A store as one service sees it; its next calls may be cut, or overtaken."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls_left: int | None = None
        self.before = True
        self.error: BaseException = Died()
        self.meanwhile: Callable[[], None] | None = None
        self.old: dict[str, Any] = {}  # what is answered once instead of what is there

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in _WATCHED:
            return real

        def call(*given: Any, **how: Any) -> Any:
            if name in self.old:
                return self.old.pop(name)
            blown = self._blown()
            if blown and self.meanwhile is not None:
                others, self.meanwhile = self.meanwhile, None
                others()
                blown = False
            if blown and self.before:
                raise self.error
            answer = real(*given, **how)
            if blown:
                raise self.error
            return answer

        return call

    def _blown(self) -> bool:
        if self.calls_left is None:
            return False
        self.calls_left -= 1
        if self.calls_left >= 0:
            return False
        self.calls_left = None
        return True


fuses = st.none() | st.tuples(
    st.integers(0, 4),
    st.booleans(),
    st.sampled_from(["died", "lost", "overtaken", "overtaken while asleep"]),
)
services = st.integers(0, _SERVICES - 1)


class Limited(RuleBasedStateMachine):
    """Nothing is ever delivered beyond the limit, and no place is lost for good."""

    def make_store(self) -> Store:
        return MemoryStore()

    def __init__(self) -> None:
        super().__init__()
        self.store, self.clock = self.make_store(), ManualClock()
        self.limit = 2
        self.numbers = itertools.count()
        self.views = [Fused(self.store) for _ in range(_SERVICES)]
        self.use = [self._service(view, seed) for seed, view in enumerate(self.views)]
        self.use[0].queues.create("q", self._settings())
        self.held: list[Task] = []
        self.before: dict[str, Any] = {}
        self.use[0].tasks.enqueue("q", [TaskSpec("1")] * 9)

    def _service(self, view: Fused, seed: int) -> UseCases:
        quick = Settings(admin_key="test", settings_ttl_seconds=0)
        use = build(quick, cast("Store", view), now=self.clock)
        numbers = self.numbers  # so that the same calls end the same way
        use.tasks.new_id = lambda _: f"tsk_{next(numbers):026}"
        use.tasks.new_token = use.deliveries.new_lease = lambda: f"{next(numbers):020}"
        use.deliveries.limiting.slots.new_token = use.tasks.new_token
        use.deliveries.limiting.slots.chance = use.deliveries.chance = random.Random(seed)
        use.reaping.spread = use.reports.spread = lambda: 0.5
        use.deliveries.sleep = self.clock.forward
        return use

    def _settings(self) -> QueueSettings:
        limits = DequeuingSettings(max_inflight_tasks=self.limit)
        return QueueSettings(
            dequeuing_settings=limits,
            keepalive_timeout_in_seconds=30,
            retry_strategy=_AT_ONCE,
            shards=2,  # so that services meet different tasks
        )

    def _with_fuse(
        self, who: int, fuse: tuple[int, bool, str] | None, act: Callable[[], None]
    ) -> None:
        """Let *who* act until its fuse blows."""
        self.clock.forward(0.001)
        view = self.views[who]
        if fuse is not None:
            view.calls_left, view.before, how = fuse
            view.error = Unavailable("lost") if how == "lost" else Died()
            seconds = {"overtaken": 0.0, "overtaken while asleep": 4.0}.get(how)
            view.meanwhile = None if seconds is None else self._meanwhile(who, seconds)
        with suppress(Died, Unavailable):
            act()
        view.calls_left, view.meanwhile, view.old = None, None, {}
        if fuse is not None and fuse[2] == "died":  # another process takes its place
            self.views[who] = Fused(self.store)
            self.use[who] = self._service(self.views[who], who)

    def _meanwhile(self, who: int, seconds: float) -> Callable[[], None]:
        def others() -> None:
            self.clock.forward(seconds)
            self._dequeue((who + 1) % _SERVICES, 3)
            if self.held and not seconds:
                self._report((who + 2) % _SERVICES, self.held[-1], ReportStatus.FAILED)

        return others

    def _flying(self) -> list[Task]:
        return [task for task in self._tasks() if task.state is State.INFLIGHT]

    def _tasks(self) -> list[Task]:
        return everything(self.store)

    def _dequeue(self, who: int, count: int) -> None:
        self.held += self.use[who].deliveries.dequeue("q", batch_size=count).tasks

    def _report(self, who: int, task: Task, status: ReportStatus) -> None:
        self.use[who].reports.report("q", [TaskReport(task.id, lease_name(task), status)])

    @rule(count=st.integers(1, 25))
    def enqueue(self, count: int) -> None:
        waiting = sum(task.state is State.ENQUEUED for task in self._tasks())
        self.clock.forward(0.001)
        if waiting < count:
            self.use[0].tasks.enqueue("q", [TaskSpec("1")] * (count - waiting))

    @rule(who=services, count=st.integers(1, 4), fuse=fuses, old=st.booleans())
    def dequeue(
        self, who: int, count: int, fuse: tuple[int, bool, str] | None, *, old: bool
    ) -> None:
        before = {task.id: task.lease_id for task in self._flying()}
        if old:
            self.views[who].old = self.before
        waiting = Place("q", State.ENQUEUED, 0)
        self.before = {
            "pools": self.store.pools("q", 0, 9),
            "entries": self.store.entries(waiting, limit=5),
        }
        self._with_fuse(who, fuse, lambda: self._dequeue(who, count))
        flying = {task.id: task.lease_id for task in self._flying()}
        delivered = flying.items() - before.items()
        assert not delivered or len(flying) <= self.limit

    @rule(
        who=services,
        which=st.integers(1, 6),
        status=st.sampled_from(
            [ReportStatus.SUCCEEDED, ReportStatus.FAILED, ReportStatus.RELEASED]
        ),
        fuse=fuses,
    )
    def report(
        self, who: int, which: int, status: ReportStatus, fuse: tuple[int, bool, str] | None
    ) -> None:
        if self.held:
            task = self.held[-which % len(self.held)]  # some are reported on twice
            self._with_fuse(who, fuse, lambda: self._report(who, task, status))

    dequeue_too = dequeue  # oftener than the others
    dequeue_as_well = dequeue

    report_too = report

    @rule(who=services, fuse=fuses)
    def purge_what_is_in_flight(self, who: int, fuse: tuple[int, bool, str] | None) -> None:
        def purge() -> None:
            self.use[who].queues.purge("q", (State.INFLIGHT,))

        self._with_fuse(who, fuse, purge)

    @rule(who=services, seconds=st.sampled_from([0.5, 4, 31]))
    def let_time_pass_and_reap(self, who: int, seconds: float) -> None:
        self.clock.forward(seconds)
        self.use[who].reaping.run()

    @rule(limit=st.sampled_from([1, 2, 3, 17, 20]))
    def change_the_limit(self, limit: int) -> None:
        self.clock.forward(0.001)
        self.limit = limit
        self.use[0].queues.replace("q", self._settings())

    @rule(count=st.integers(1, 5))
    def do_without_a_limit_for_a_while(self, count: int) -> None:
        self.clock.forward(0.001)
        limit, self.limit = self.limit, 0
        self.use[0].queues.replace("q", self._settings())
        self._dequeue(0, count)
        self.limit = limit
        self.use[0].queues.replace("q", self._settings())

    @invariant()
    def what_is_in_flight_under_a_slot_has_it(self) -> None:
        held = self.store.pools("q", 0, 9)
        for task in self._flying():
            slot = Reservation.of(task)
            if slot is not None and slot.due_at == task.due_at:
                assert slot.text in held.get(slot.pool, ())

    def teardown(self) -> None:
        """Nothing is stuck; and as many as allowed can be in flight at the end as at the start."""
        for _ in range(100):
            self.clock.forward(31)
            self.use[0].reaping.run()
            self._dequeue(0, 25)
            for task in self._flying():
                self._report(1, task, ReportStatus.SUCCEEDED)
            if not any(task.state is State.ENQUEUED for task in self._tasks()):
                break
        assert {task.state for task in self._tasks()} <= {State.SUCCEEDED}
        self.use[0].queues.purge("q", SHOWN_STATES)
        self.use[0].tasks.enqueue("q", [TaskSpec("1")] * 25)
        self.use[0].tasks.enqueue("q", [TaskSpec("1")] * 25)
        for turn in range(40):
            self.clock.forward(1)
            self._dequeue(turn % _SERVICES, 25)
            if len(self._flying()) == self.limit:
                break
        assert len(self._flying()) == self.limit


MACHINE: Final = settings(
    max_examples=25,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


LONGER: Final = settings(MACHINE, max_examples=in_part(80))
QUICK: Final = settings(MACHINE, max_examples=3)
QUICKEST: Final = settings(MACHINE, max_examples=1)


@pytest.mark.parametrize(
    ("store", "some"),
    [
        ("memory", QUICK),
        pytest.param("memory", LONGER, marks=pytest.mark.slow),
        ("sqlite", QUICKEST),
        pytest.param("sqlite", MACHINE, marks=pytest.mark.slow),
    ],
)
def test_no_fault_puts_more_in_flight_than_allowed_or_loses_a_place(
    store: str, some: settings
) -> None:
    class InMemory(Limited):
        def make_store(self) -> Store:
            return STORES[store]()

    run_state_machine_as_test(InMemory, settings=some)


class FreesByNumber(MemoryStore):
    """Counts the places that are taken: who frees one twice frees another's too."""

    def free(self, queue: str, pool: int, texts: Collection[str]) -> frozenset[str]:
        held = sorted(self.pools(queue, pool, pool).get(pool, ()))
        there = [text for text in held if text in texts]
        return super().free(queue, pool, [*there, *held][: len(texts)])


def test_a_slot_that_is_released_twice_is_noticed() -> None:
    def is_reported_twice(machine: Limited) -> None:
        machine.dequeue(0, 2, None, old=False)
        for _ in range(2):
            machine.report(0, 1, ReportStatus.SUCCEEDED, None)
            machine.what_is_in_flight_under_a_slot_has_it()

    class Planted(Limited):
        def make_store(self) -> Store:
            return FreesByNumber()

    is_reported_twice(Limited())

    with pytest.raises(AssertionError):
        is_reported_twice(Planted())
