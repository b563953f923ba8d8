"""A table that throttles or is away: calls are unavailable, and what was done stays right."""

import random
from collections.abc import Callable, Sequence

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DequeuingSettings, RateLimiting
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import SHOWN_STATES, State, Task
from headrace.ops.delivery.reports import ReportOutcome, ReportResult, ReportStatus, TaskReport
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store import keys
from tests.contract.conftest import World, lease_name
from tests.contract.faults.client import WRITES, Answer
from tests.contract.faults.service import AT_ONCE, REPORTS, FaultyService, everything, tasks_of

NEVER = RetryStrategy(max_retries=0)
LIMITS = {
    "none": DequeuingSettings(),
    "slots": DequeuingSettings(max_inflight_tasks=100),
    "tokens": DequeuingSettings(rate_limiting=RateLimiting(100, 1)),
}


@pytest.mark.parametrize("sender", ["batch"], indirect=True)  # the SDK repeats single writes
@pytest.mark.parametrize("seed", range(3))
def test_statements_that_are_throttled_for_a_moment_are_sent_again_alone(
    service: FaultyService, world: World, seed: int
) -> None:
    queue = world.queue()

    with service.suffering(throttled=0.3, chance=random.Random(seed)):
        results = world.use.tasks.enqueue(queue, [TaskSpec(str(n)) for n in range(25)])
        tasks = world.take(queue, 25)
        reported = report_all(world, tasks, "SUCCEEDED")

    assert {result.outcome for result in results} == {EnqueueOutcome.CREATED}
    assert [task.id for task in tasks] == [result.id for result in results]
    assert {result.outcome for result in reported} == {ReportOutcome.OK}
    assert world.use.inspect.count(queue).by_state[State.SUCCEEDED] == 25


ACTS: list[tuple[str, Callable[[World, Task], object]]] = [
    ("enqueue", lambda world, _: world.put("mail")),
    ("enqueue keyed", lambda world, _: world.put("mail", dedupe_key="k")),
    ("dequeue", lambda world, _: world.take("mail")),
    *(
        (status, lambda world, task, of=status, more=fields: world.say(task, of, **more))
        for status, fields, _ in REPORTS
    ),
    ("delete", lambda world, task: world.use.tasks.delete(task.id)),
    ("purge", lambda world, _: world.use.queues.purge("mail", SHOWN_STATES)),
    ("create", lambda world, _: world.queue("new")),
    ("pause", lambda world, _: world.use.queues.pause("mail")),
]


@pytest.mark.parametrize("fault", [{"throttled": 1}, {"away": 1}], ids=["throttled", "away"])
@pytest.mark.parametrize(("_name", "act"), ACTS, ids=[name for name, _ in ACTS])
def test_a_table_that_throttles_or_is_away_is_unavailable_and_unchanged(
    service: FaultyService,
    world: World,
    _name: str,
    act: Callable[[World, Task], object],
    fault: dict[str, float],
) -> None:
    queue, _ = world.queue(keepalive_timeout_in_seconds=5), world.queue("other")
    world.put(queue, "1", "2", dedupe_key=None)
    task = world.one(queue)
    world.clock.forward(5)
    before = everything(service)

    with service.suffering(**fault), pytest.raises(Unavailable):
        act(world, task)

    assert everything(service) == before


@pytest.mark.parametrize("fault", [{"throttled": 1}, {"away": 1}], ids=["throttled", "away"])
def test_the_reaper_stops_while_the_table_throttles_and_says_so(
    service: FaultyService, world: World, fault: dict[str, float]
) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue)
    world.one(queue)
    world.clock.forward(5)
    before = everything(service)

    with service.suffering(**fault):
        reaped = world.use.reaping.run()

    assert (reaped.throttled, reaped.retried) == (True, 0)
    assert everything(service) == before


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "RELEASED"])
def test_reports_of_which_a_part_was_throttled_may_be_repeated(
    service: FaultyService, world: World, status: str
) -> None:
    queue = world.queue(retry_strategy=AT_ONCE)
    world.put(queue, *["{}"] * 10)
    tasks = world.take(queue, 10)

    with service.suffering(stuck=about(tasks[4].id), blocked=alone(tasks[4].id)):
        with pytest.raises(Unavailable):
            report_all(world, tasks, status)
        assert service.see(tasks[4].id) == tasks[4]

    results = report_all(world, tasks, status)
    assert {result.outcome for result in results} == {ReportOutcome.OK}
    assert {service.see(task.id).version for task in tasks} == {3}


def test_enqueues_of_which_a_part_was_throttled_may_be_repeated_by_their_ids(
    service: FaultyService, world: World
) -> None:
    queue = world.queue()
    entries = [TaskSpec("{}", id=f"order-{number}") for number in range(10)]

    with (
        service.suffering(stuck=about("order-4"), blocked=alone("order-4")),
        pytest.raises(Unavailable),
    ):
        world.use.tasks.enqueue(queue, entries)

    outcomes = [result.outcome for result in world.use.tasks.enqueue(queue, entries)]
    assert outcomes[4] is EnqueueOutcome.CREATED
    assert set(outcomes) <= {EnqueueOutcome.CREATED, EnqueueOutcome.EXISTING}
    assert world.use.inspect.count(queue).count == 10


def test_a_dequeue_of_which_a_part_was_throttled_hands_out_what_it_has_leased(
    service: FaultyService, world: World
) -> None:
    """A lease that reaches no worker lapses and costs an attempt, for nothing."""
    queue = world.queue(retry_strategy=NEVER)
    ids = world.put(queue, *["{}"] * 10)

    with service.suffering(stuck=about(ids[4]), blocked=alone(ids[4])):
        delivered = tasks_of(lambda: world.take(queue, 10))

    assert_no_attempt_was_spent_in_vain(world, ids, delivered)


def test_a_dequeue_hands_out_what_it_has_leased_though_no_answer_confirmed_it(
    service: FaultyService, world: World
) -> None:
    queue = world.queue(retry_strategy=NEVER)
    ids = world.put(queue, *["{}"] * 10)

    with service.suffering(cut=1):
        delivered = tasks_of(lambda: world.take(queue, 10))

    assert len(delivered) == 10
    assert_no_attempt_was_spent_in_vain(world, ids, delivered)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_dequeue_hands_out_what_it_has_leased_though_the_table_is_away_from_then_on(
    service: FaultyService, world: World, limit: str
) -> None:
    queue = world.queue(retry_strategy=NEVER, dequeuing_settings=LIMITS[limit])
    ids = world.put(queue, *["{}"] * 10)

    with service.suffering(blocked=away_after_a_lease(service), stuck=about(ids[4])):
        delivered = tasks_of(lambda: world.take(queue, 10))

    assert delivered
    assert_no_attempt_was_spent_in_vain(world, ids, delivered)


def report_all(world: World, tasks: Sequence[Task], status: str) -> list[ReportResult]:
    reports = [TaskReport(task.id, str(lease_name(task)), ReportStatus(status)) for task in tasks]
    return world.use.reports.report(tasks[0].queue, reports)


def about(task_id: str) -> Callable[[Answer], bool]:
    """Tell the statements that are about *task_id*."""
    return lambda statement: {"S": task_id} in statement["Parameters"]


def alone(task_id: str) -> Callable[[str, Answer], bool]:
    """Tell the single writes that are about *task_id*."""

    def block(name: str, arguments: Answer) -> bool:
        item = arguments.get("Item") or arguments.get("Key") or {}
        return name in WRITES and item.get(keys.TASK_ID) == {"S": task_id}

    return block


def away_after_a_lease(service: FaultyService) -> Callable[[str, Answer], bool]:
    """Let the table answer no more once a task has been leased."""
    leased = False

    def block(name: str, arguments: Answer) -> bool:
        nonlocal leased
        before = leased
        leased |= name in {"batch_execute_statement", "transact_write_items"} or (
            name == "update_item" and arguments["TableName"] == service.tables.tasks
        )
        return before

    return block


def assert_no_attempt_was_spent_in_vain(
    world: World, ids: Sequence[str], delivered: Sequence[Task]
) -> None:
    """Check that only those tasks are leased that a worker was handed."""
    leased = {task.id for task in world.store.read(ids).values() if task.state is State.INFLIGHT}
    assert leased == {task.id for task in delivered}
