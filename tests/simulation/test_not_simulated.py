"""Faults that the simulation cannot find, each with a short story that does.

Every story is told twice: by the product as it is, and with its fault planted.  The comment above
each group says why the simulation does not find them.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from threading import Event
from typing import Any, cast

import pytest

from headrace.domain import plan, settle
from headrace.domain.access import Role
from headrace.domain.change import Change, Entry
from headrace.domain.errors import KeyExists, Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import AlertSettings, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settle import Held
from headrace.domain.task import State
from headrace.ops.delivery.indexing import Indexing
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.tasks.wait import Waiting
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Done, Store
from headrace.store.objects import MemoryObjects
from headrace.store.records import keys as key_records
from headrace.store.sqlite import SqliteStore
from headrace.testing.stores import SHARD, Streamed
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.simulation.planted import planted

Story = Callable[[], None]
STORIES: list[tuple[str, Story]] = []


def finds(*faults: str) -> Callable[[Story], Story]:
    """Say which planted faults the decorated story finds."""

    def keep(story: Story) -> Story:
        STORIES.extend((fault, story) for fault in faults)
        return story

    return keep


class Between(SqliteStore):
    """A store that lets others act once, just before records are written."""

    meanwhile: Callable[[], object] | None = None

    def put_records(self, writes: Any, *, tasks: Any = ()) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().put_records(writes, tasks=tasks)


def world_over(store: SqliteStore) -> World:
    return new_world(cast("Store", store), ManualClock())


# -- the simulation polls for the end of a task: events would wake real threads --------------------


@finds(
    "a wait forgets a wake-up between its look and its pause",
    "a wait subscribes only after its look",
)
def a_task_ends_between_the_look_and_the_pause() -> None:
    world = world_over(SqliteStore())
    (task_id,) = world.put(world.queue())

    class Pause(Event):
        def wait(self, timeout: float | None = None) -> bool:
            del timeout
            assert self.is_set(), "the wait was not told of the end"
            return True

    def cancel_once(task: Any) -> None:
        if task.state is State.ENQUEUED:
            world.use.cancelling.cancel(task_id)

    waiting = Waiting(world.store, world.clock, ends=world.store.ends, new_event=Pause)
    assert waiting.wait(task_id, seconds=20, check=cancel_once).state is State.DEAD


@finds("a wait pauses longer and longer", "a wait pauses beyond its timeout")
def a_wait_looks_every_few_seconds_until_its_timeout() -> None:
    world = world_over(SqliteStore())
    (task_id,) = world.put(world.queue())
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        world.clock.forward(seconds)

    Waiting(world.store, world.clock, sleep=sleep).wait(task_id, seconds=60.5)

    assert max(pauses) <= 5
    assert sum(pauses) == pytest.approx(60.5)


@finds("a wait that ends forgets the others for its task", "a wait is never forgotten")
def one_of_two_waits_ends() -> None:
    ends, woken = SqliteStore().ends, list[str]()
    with ends.told("task", lambda: woken.append("stays")):
        with ends.told("task", lambda: woken.append("ends")):
            pass
        ends.ended(["task"])
    assert woken == ["stays"]


# -- the simulation keeps no payloads outside of the table -----------------------------------------


@finds("payloads of a write that failed are dropped at once")
def the_answer_to_an_enqueue_is_lost() -> None:
    class Forgetful(SqliteStore):
        def commit(self, changes: Sequence[Change], **how: Any) -> Any:
            super().commit(changes, **how)
            raise Unavailable("the answer was lost")

    clock, objects = ManualClock(), MemoryObjects()
    settings = Settings(admin_key="test", payload_offload_bytes=10)
    store = cast("Store", Forgetful())
    use = build(settings, store, now=clock, objects=objects)
    use.queues.create("mail", QueueSettings())
    payload = '"' + "x" * 100 + '"'
    with suppress(Unavailable):
        use.tasks.enqueue("mail", [TaskSpec(payload, id="task")])
    (task,) = use.texts.filled([use.tasks.get("task")], ("payload",))
    assert task.payload == payload


# -- the simulation has no alerts, keys and search: they meet nothing else in it ------------------


@finds(
    "the state of alerts is written unseen, with random ids",
    "the state of alerts is written before their tasks",
)
def two_timers_see_an_alert_and_one_of_them_dies() -> None:
    store = Between()
    world = world_over(store)
    world.queue("ops")
    world.put(world.queue("work", alerts=AlertSettings("ops", oldest_ready_seconds=60)))
    world.clock.forward(61)

    def look() -> None:
        with suppress(Unavailable):
            new_world(world.store, world.clock).use.alerts.look().judge("work")

    store.meanwhile = look
    look()
    look()

    assert len(world.take("ops", 9)) == 1


@finds("alerts of an earlier queue of the same name count")
def a_queue_with_an_alert_is_deleted_and_made_again() -> None:
    world = world_over(SqliteStore())
    use, alerts = world.use, AlertSettings("ops", oldest_ready_seconds=60)
    world.queue("ops")
    for _ in range(2):
        world.put(world.queue("work", alerts=alerts))
        world.clock.forward(61)
        use.alerts.look().judge("work")
        use.queues.delete("work")
        world.clock.forward(61)

    assert len(world.take("ops", 9)) == 2


@finds("the name of a key is read and then written")
def two_keys_of_one_name_are_made_at_once() -> None:
    _make_two(Between())


@finds("a name is taken from whichever key has it")
def two_keys_are_made_of_a_name_that_is_free_again() -> None:
    store = Between()
    keys = world_over(store).use.keys
    first = keys.create(BOOTSTRAP, "sensors", Role.PRODUCER).key
    store.drop_record(key_records.KIND, first.id)  # a revocation that was cut off
    _make_two(store)


def _make_two(store: Between) -> None:
    keys, others = world_over(store).use.keys, world_over(store).use.keys
    store.meanwhile = lambda: others.create(BOOTSTRAP, "sensors", Role.VIEWER)
    with pytest.raises(KeyExists):
        keys.create(BOOTSTRAP, "sensors", Role.WORKER)


@finds("the index of values forgets a task that waits again")
def tasks_are_released_while_their_index_is_built() -> None:
    for steps in range(6):
        assert not _missed(steps), f"after {steps} steps of building"


def _missed(steps: int) -> set[str]:
    """Release tasks after so many steps of building an index; return those not found by it."""
    clock = ManualClock()
    stream = Streamed(cast("Store", SqliteStore()), clock)
    world = new_world(stream.store, clock)
    at_once = RetryStrategy(Backoff.FIXED, base_seconds=0, jitter=0)
    queue = world.queue(retry_strategy=at_once, keepalive_timeout_in_seconds=600)
    use = world.use

    def tick() -> datetime:
        clock.forward(0.005)  # so that a run is over after a step or two
        return clock()

    building = Indexing(use.indexing.store, use.queues, use.inspect, use.texts, tick, 0.015, 2)
    for _ in range(3):
        world.put(queue, tags={"tenant": "a"})
    leased = world.take(queue, 2)
    use.recording.record(SHARD, stream.taken())
    settings = QueueSettings(
        retry_strategy=at_once, keepalive_timeout_in_seconds=600, indexed_fields=("tag:tenant",)
    )
    use.queues.replace(queue, settings)
    clock.forward(95)
    for _ in range(steps):
        building.run()
    for task in leased:
        world.say(task, "RELEASED")
    use.recording.record(SHARD, stream.taken())
    for _ in range(10):
        building.run()
    found = use.inspect.list(queue, TaskFilter(tags={"tenant": "a"}))
    assert found.by_creation
    return {task.id for task in use.inspect.list(queue).tasks} - {one.id for one in found.tasks}


# -- in the simulation nothing happens within a call of the store ---------------------------------


@finds("changes judged ahead are not judged again in their transaction")
def a_task_is_taken_between_the_judging_and_the_transaction() -> None:
    class Overtaken(SqliteStore):
        foreseen_from = 1
        meanwhile: Callable[[], object] | None = None

        def _foreseen(self, changes: Sequence[Change]) -> Any:
            foreseen = super()._foreseen(changes)
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            return foreseen

    store = Overtaken()
    world = world_over(store)
    (task_id,) = world.put(world.queue())
    queue, waits = world.use.queues.get("mail"), store.read([task_id])[task_id]
    ours, theirs = (
        plan.dequeue(
            Entry.of(waits), queue, lease_id=who, now=world.clock(), worker=who, keepalive=None
        )
        for who in ("us", "them")
    )
    taken = theirs.apply(waits)
    assert taken is not None
    done = settle.succeed(Held.of(taken), queue, now=world.clock(), result="1")
    store.meanwhile = lambda: store.commit([theirs, done])

    assert not isinstance(store.commit([ours])[0], Done)
    assert store.read([task_id])[task_id].state is State.SUCCEEDED


@pytest.mark.parametrize("story", dict.fromkeys(story for _, story in STORIES))
def test_the_product_passes(story: Story) -> None:
    story()


@pytest.mark.parametrize(("fault", "story"), STORIES, ids=[fault for fault, _ in STORIES])
def test_a_planted_fault_is_found(fault: str, story: Story) -> None:
    with planted(fault), pytest.raises((AssertionError, pytest.fail.Exception)):
        story()
