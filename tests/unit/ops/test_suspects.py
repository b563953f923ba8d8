"""Which overdue leases a dequeue looks at: surely those that lapsed, and few of the others."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from headrace.domain.change import Entry
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Place, State, Task
from headrace.ops.shared.observed import GivenLease, LeaseWatch, SuspectStanding
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=9, base_seconds=0, jitter=0)
MAIL = Place("mail", State.INFLIGHT, 0)


class Reads(MemoryStore):
    """Counts the tasks that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks_read = 0

    def read(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> dict[str, Task]:
        ids = list(task_ids)
        self.tasks_read += len(ids)
        return super().read(ids, payload=payload, consistent=consistent)


@pytest.fixture
def world() -> World:
    made = new_world(Reads(), ManualClock())
    made.queue(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    return made


def in_flight(world: World, count: int) -> list[Task]:
    tasks: list[Task] = []
    while len(tasks) < count:
        world.put("mail", *["1"] * min(25, count - len(tasks)))
        tasks += world.take("mail", 25)
    return tasks


def another(world: World) -> World:
    """Return another process over the same store."""
    return new_world(world.store, world.clock)


def reads(world: World) -> int:
    assert isinstance(world.store, Reads)
    read, world.store.tasks_read = world.store.tasks_read, 0
    return read


def test_all_leases_that_a_process_gave_out_and_heard_no_more_of_are_taken_back(
    world: World,
) -> None:
    in_flight(world, 20)
    world.clock.forward(5)
    reads(world)

    assert len(world.take("mail", 25)) == 20
    assert reads(world) == 20


def test_leases_that_a_process_has_heard_of_are_not_read(world: World) -> None:
    for task in in_flight(world, 20):
        world.say(task, "INFLIGHT", keepalive=60)
    world.clock.forward(10)
    reads(world)

    for _ in range(5):
        assert world.take("mail", 25) == ()
    assert reads(world) == 0
    world.clock.forward(60)
    assert len(world.take("mail", 25)) == 20


def test_a_process_that_knows_nothing_takes_a_few_back_at_once(world: World) -> None:
    in_flight(world, 3)
    world.clock.forward(5)

    assert len(another(world).take("mail", 25)) == 3


def test_of_many_that_it_does_not_know_it_takes_the_lapsed_back_at_its_second_call(
    world: World,
) -> None:
    in_flight(world, 20)
    world.clock.forward(5)
    other = another(world)

    assert [len(other.take("mail", 25)) for _ in range(2)] == [0, 20]


def test_of_many_long_tasks_it_reads_one_each_second_call(world: World) -> None:
    for task in in_flight(world, 20):
        world.say(task, "INFLIGHT", keepalive=600)
    world.clock.forward(10)
    other = another(world)
    reads(world)

    read = []
    for _ in range(8):
        assert other.take("mail", 25) == ()
        read.append(reads(world))

    assert read == [0, 1, 0, 1, 0, 1, 0, 1]


def test_a_lapsed_lease_among_long_tasks_is_found_by_who_gave_it_out(world: World) -> None:
    tasks = in_flight(world, 60)
    for task in tasks[:-1]:
        world.say(task, "INFLIGHT", keepalive=600)
    world.clock.forward(10)

    assert [task.id for task in world.take("mail", 25)] == [tasks[-1].id]


def test_where_heartbeats_go_through_others_what_seems_lapsed_is_doubted(world: World) -> None:
    other = another(world)
    for task in in_flight(world, 20):
        other.say(task, "INFLIGHT", keepalive=600)
    world.clock.forward(10)
    reads(world)

    read = []
    for _ in range(6):
        assert world.take("mail", 25) == ()
        read.append(reads(world))

    assert read[0] == 1
    assert max(read) == 1


def test_a_read_that_comes_before_any_look_knows_what_was_given_out(world: World) -> None:
    watch, (one, other) = LeaseWatch(), in_flight(world, 2)
    for task in (one, other):
        key = (task.id, task.scheduled_at)
        watch.given.append(GivenLease(key, task.lease_expires_at, task.lease_id))
    world.clock.forward(10)

    watch.read(one, world.clock() + timedelta(seconds=60), now=world.clock())

    assert watch.standing(_entry(other), world.clock()) is SuspectStanding.OLD  # not MISSED


def test_tasks_of_a_group_that_was_extended_are_not_read(world: World) -> None:
    group = world.use.leases.open(None, keepalive=5)
    world.put("mail", *["1"] * 20)
    world.take("mail", 20, lease_id=group.id)
    world.clock.forward(4)
    world.use.leases.extend(group.id)
    world.clock.forward(4)
    reads(world)

    assert world.take("mail", 25) == ()
    assert reads(world) == 0
    world.clock.forward(2)
    assert len(world.take("mail", 25)) == 20


def test_of_a_group_that_others_extend_one_task_tells_for_all(world: World) -> None:
    other = another(world)
    group = world.use.leases.open(None, keepalive=5)
    world.put("mail", *["1"] * 20)
    world.take("mail", 20, lease_id=group.id)
    world.clock.forward(4)
    other.use.leases.extend(group.id)
    world.clock.forward(4)
    reads(world)

    for _ in range(5):
        assert world.take("mail", 25) == ()
    assert reads(world) == 1


def test_the_newest_are_looked_at_of_more_than_half_a_unit_shows(world: World) -> None:
    in_flight(world, 60)
    world.clock.forward(10)

    suspects = LeaseWatch().suspects(world.store, MAIL, world.clock())

    assert [*suspects.likely, *suspects.others] == []
    watch = LeaseWatch()
    for _ in range(2):
        suspects = watch.suspects(world.store, MAIL, world.clock())
    looked_at = [entry.scheduled_at for entry in suspects.others]
    everything = world.store.entries(MAIL, limit=99).entries
    assert looked_at == sorted((entry.scheduled_at for entry in everything), reverse=True)[:25]


def test_what_is_known_is_bounded(world: World) -> None:
    watch, task = LeaseWatch(), in_flight(world, 1)[0]
    until = world.clock()
    for number in range(20_100):
        watch.read(_named(task, number), until, now=world.clock())

    assert watch.standing(_entry(_named(task, 0)), until) is SuspectStanding.NEW
    assert watch.standing(_entry(_named(task, 20_099)), until) is SuspectStanding.OLD


def _named(task: Task, number: int) -> Task:
    return replace(task, id=f"t-{number}")


def _entry(task: Task) -> Entry:
    return Entry(task.id, task.place, task.scheduled_at)
