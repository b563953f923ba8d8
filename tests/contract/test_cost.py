"""What each call costs on the real engine, in DynamoDB's own units: the floor of design 2.

On SQLite it is what the same would cost there.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest

from headrace.domain.ids import new_idempotency_key
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DequeuingSettings, PrioritySettings
from headrace.domain.repeat import KeyedRequest
from headrace.domain.task import Priority, State, Task
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.local.tables import TableNames
from headrace.ops.delivery.idempotency import DeliveryBatch
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.store.call_scope import Meter, metered
from headrace.store.dynamo import DynamoStore, Sender
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World, lease_name, new_world
from tests.manual_clock import ManualClock

TASKS = 50
A_PASS = 75  # what a pass of the reaper reads besides is shared by as many
BATCH = 25
SMALL = '{"id": "urn:ngsi:Device:1", "temperature": 21.5, "at": "2026-11-21T08:00:00Z"}'
TAGS = {"service": "smartcity", "path": "/madrid/centro"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Measure on SQLite, or with single writes, for which alone DynamoDB Local gives units.

    There tests/dynamodb/test_statements.py holds the one against the other, change by change.
    """
    if "sender" in metafunc.fixturenames:
        on_tables = metafunc.config.getoption("--engine") == "dynamodb"
        metafunc.parametrize("sender", ["single"] if on_tables else ["sqlite"])


@pytest.fixture
def world(request: pytest.FixtureRequest, sender: Sender | Literal["sqlite"]) -> World:
    if sender == "sqlite":
        return new_world(SqliteStore(), ManualClock())
    tables: TableNames = request.getfixturevalue("tables")
    store = DynamoStore(
        request.getfixturevalue("dynamodb"),
        tasks_table=tables.tasks,
        control_table=tables.control,
        sender=sender,
    )
    return new_world(store, ManualClock())


def spend(calls: Callable[[], object], tasks: int = TASKS) -> tuple[float, float]:
    """Return the write and read units per task that *calls* cost."""
    with metered() as meter:
        calls()
    return per_task(meter, tasks)


def per_task(meter: Meter, tasks: int = TASKS) -> tuple[float, float]:
    return meter.write / tasks, meter.read / tasks


def fill(world: World, queue: str, count: int = TASKS) -> None:
    for _ in range(count // BATCH):
        world.use.tasks.enqueue(queue, [TaskSpec(SMALL, tags=TAGS)] * BATCH)
        world.clock.forward(0.001)


def lease_all(world: World, queue: str, count: int = TASKS) -> list[Task]:
    """Lease everything that *queue* has, in full batches."""
    return [
        task
        for _ in range(count // BATCH)
        for task in world.take(queue, BATCH, worker="host-12:34567")
    ]


def report_all(world: World, queue: str, tasks: list[Task], status: str, **fields: Any) -> None:
    for start in range(0, len(tasks), BATCH):
        reports = [
            TaskReport(task.id, str(lease_name(task)), ReportStatus(status), **fields)
            for task in tasks[start : start + BATCH]
        ]
        results = world.use.reports.report(queue, reports)
        assert {result.outcome for result in results} == {ReportOutcome.OK}


@pytest.mark.gate
@pytest.mark.parametrize("history", [86_400, 0], ids=["kept", "not kept"])
def test_the_life_of_a_task(world: World, history: int) -> None:
    floor = 8 if history else 7
    queue = world.queue(history_retention_in_seconds=history)

    with metered() as meter:
        fill(world, queue)
        report_all(world, queue, lease_all(world, queue), "SUCCEEDED", result='{"rows": 3}')

    write, read = per_task(meter)
    assert floor <= write <= floor + 0.1
    assert read <= 0.2
    done = TASKS if history else 0
    assert world.use.inspect.count(queue).by_state[State.SUCCEEDED] == done


def test_a_batch_under_a_key_is_noted_for_one_unit_more(world: World) -> None:
    queue = world.queue()
    fill(world, queue)
    request = KeyedRequest("key_0123456789abcdef0123", new_idempotency_key(), "0" * 24)
    batch = DeliveryBatch(world.use, request, timedelta(seconds=30), attempt=1)
    world.clock.forward(0.001)

    cost_of_batch = spend(
        lambda: world.use.deliveries.dequeue(
            queue, batch_size=BATCH, worker="host-12:34567", batch=batch
        ),
        1,
    )

    assert cost_of_batch == (3 * BATCH + 1, 1.0)


def test_a_heartbeat_writes_one_unit(world: World) -> None:
    queue = world.queue()
    fill(world, queue, BATCH)
    tasks = lease_all(world, queue, BATCH)

    write, read = spend(
        lambda: report_all(world, queue, tasks, "INFLIGHT", progress='{"n": 3}'), BATCH
    )

    assert write <= 1.05
    assert read == 0.0


@pytest.mark.parametrize("status", ["FAILED", "RELEASED", "MOVED"])
def test_a_report_that_needs_its_task_reads_one_unit(world: World, status: str) -> None:
    queue, target = world.queue(), world.queue("letters")
    fill(world, queue, BATCH)
    tasks = lease_all(world, queue, BATCH)
    fields = {"to_queue": target} if status == "MOVED" else {}

    write, read = spend(lambda: report_all(world, queue, tasks, status, **fields), BATCH)

    assert write <= 3.1
    assert read == 1.0


def a_queue_of_long_tasks(world: World, count: int = 100) -> str:
    """Return a queue of tasks whose leases heartbeats have put off beyond what the index knows."""
    queue = world.queue(keepalive_timeout_in_seconds=5)
    fill(world, queue, count)
    tasks = lease_all(world, queue, count)
    world.clock.forward(3)
    report_all(world, queue, tasks, "INFLIGHT", keepalive=300)
    world.clock.forward(3)
    return queue


@pytest.mark.gate
def test_an_empty_dequeue_reads_at_most_one_unit_whatever_is_in_flight(world: World) -> None:
    queue = a_queue_of_long_tasks(world)

    polls = [spend(lambda: world.take(queue, BATCH), tasks=1) for _ in range(5)]

    assert max(polls) <= (0.0, 1.0)


def test_a_pass_of_the_reaper_reads_half_a_unit_of_each_long_task(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    fill(world, queue, A_PASS)
    tasks = lease_all(world, queue, A_PASS)
    report_all(world, queue, tasks, "INFLIGHT", keepalive=1000)
    world.clock.forward(6)
    world.use.reaping.run()

    write, read = spend(world.use.reaping.run, A_PASS)

    assert write == 0.0
    assert read <= 0.6


def test_a_dequeue_of_a_queue_that_is_full_looks_at_so_much_and_no_more(world: World) -> None:
    queue = world.queue(dequeuing_settings=DequeuingSettings(max_inflight_tasks=100))
    inflight = 0
    while inflight < 100:  # a batch may be short of a few, as its pool was
        world.put(queue, *[SMALL] * BATCH)
        inflight += len(world.take(queue, BATCH))
    assert world.take(queue, BATCH) == ()

    first = spend(lambda: world.take(queue, BATCH), tasks=1)
    again = spend(lambda: world.take(queue, BATCH), tasks=1)
    pools, tasks, ready = 4.5, 16.0, 1.5
    assert first <= (0.0, pools + tasks + ready)
    assert again <= (0.0, pools + ready)


# -- priorities ------------------------------------------------------------------------------------


def one_life(world: World, queue: str, **fields: Any) -> tuple[float, float, float]:
    """Return the write units of a life, and the read units of its dequeue and of all else."""
    world.use.queues.get(queue)  # that it is in the cache
    enqueued = spend(lambda: world.put(queue, **fields), 1)
    with metered() as dequeued:
        task = world.one(queue)
    reported = spend(lambda: world.say(task, "SUCCEEDED"), 1)
    write = enqueued[0] + dequeued.write + reported[0]
    return write, dequeued.read, enqueued[1] + reported[1]


def test_a_life_without_priorities_costs_what_it_always_did(world: World) -> None:
    assert one_life(world, world.queue()) == (8, 0.5, 0)


@pytest.mark.parametrize("level", [None, Priority.HIGH])
def test_priorities_cost_one_read_unit_more_for_a_dequeue(
    world: World, level: Priority | None
) -> None:
    queue = world.queue(priority=PrioritySettings())

    write, dequeued, more = one_life(world, queue, priority=level)
    assert (write, more) == (8, 0)
    # DynamoDB Local takes nothing for a lane without tasks, AWS half a unit.
    assert dequeued == (0.5 if isinstance(world.store, DynamoStore) else 1.5)


FAIR = GroupSettings(GroupMode.FAIR)


def test_a_call_writes_once_for_each_group(world: World) -> None:
    queue, plain = world.queue(groups=FAIR), world.queue("plain")
    new = [TaskSpec("1", group_key="a")] * 5 + [TaskSpec("1", group_key="b")] * 5
    world.use.tasks.enqueue(queue, new)

    write, read = spend(lambda: world.use.tasks.enqueue(queue, new), 1)
    usual = [TaskSpec("1")] * 10
    without = spend(lambda: world.use.tasks.enqueue(plain, usual), 1)
    assert (write - without[0], read - without[1]) == (2, 0)


def test_a_dequeue_reads_two_lanes_more(world: World) -> None:
    queue = world.queue(groups=FAIR)
    world.put(queue, group_key="a")
    world.put(queue, group_key="a")
    world.one(queue)
    write, read = spend(lambda: world.take(queue), 1)
    assert write == 3
    # DynamoDB Local takes nothing for a lane without tasks, AWS half a unit.
    assert read == (0.5 if isinstance(world.store, DynamoStore) else 1.5)
