"""What every store promises about the life of one task: the rows of the lifecycle."""

from datetime import timedelta

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DeadLetterConfig
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import DeadReason, ErrorKind, State
from headrace.ops.delivery.reports import ReportOutcome, WorkerError
from headrace.ops.tasks.enqueue import EnqueueOutcome
from tests.contract.conftest import World

pytestmark = pytest.mark.gate

AT_ONCE = RetryStrategy(kind=Backoff.FIXED, base_seconds=0, jitter=0)
IN_TEN = RetryStrategy(kind=Backoff.FIXED, base_seconds=10, jitter=0, max_retries=2)


def test_a_task_is_enqueued_delivered_and_done(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue, '{"to": "ada", "n": 12345678901234567890}')
    due = world.see(task_id).due_at

    task = world.one(queue, worker="host-1:1")

    assert task.id == task_id
    assert task.payload == '{"to": "ada", "n": 12345678901234567890}'
    assert (task.state, task.attempts, task.worker) == (State.INFLIGHT, 1, "host-1:1")
    assert task.due_at == due
    assert task.lease_expires_at == world.clock() + timedelta(seconds=30)

    world.clock.forward(2)
    assert world.say(task, "SUCCEEDED", result='"sent"').outcome is ReportOutcome.OK

    done = world.see(task_id)
    assert (done.state, done.result, done.finished_at) == (State.SUCCEEDED, '"sent"', world.clock())
    assert done.lease_id is None
    assert done.lease_expires_at is None
    assert done.due_at == due


def test_nothing_is_delivered_before_its_time(world: World) -> None:
    queue = world.queue()
    world.put(queue, delay_in_seconds=60)

    assert world.take(queue) == ()
    world.clock.forward(59)
    assert world.take(queue) == ()
    world.clock.forward(1)
    assert len(world.take(queue)) == 1


def test_tasks_of_one_call_are_delivered_in_their_order(world: World) -> None:
    queue = world.queue()
    ids = world.put(queue, *(str(number) for number in range(20)))

    assert [task.id for task in world.take(queue, 7)] == ids[:7]
    assert [task.id for task in world.take(queue, 25)] == ids[7:]


def test_a_failed_task_comes_back_after_its_backoff_with_the_error_kept(world: World) -> None:
    queue = world.queue(retry_strategy=IN_TEN)
    world.put(queue)
    task = world.one(queue)

    result = world.say(task, "FAILED", error=WorkerError("Oops", "it broke", "line 1"))

    assert result.outcome is ReportOutcome.OK
    assert result.task is not None
    assert result.task.due_at == world.clock() + timedelta(seconds=10)
    (error,) = world.see(task.id).errors
    assert (error.attempt, error.kind, error.worker) == (1, ErrorKind.FAILED, "ada:1")
    assert (error.type, error.message, error.detail) == ("Oops", "it broke", "line 1")
    assert world.take(queue) == ()
    world.clock.forward(10)
    assert world.one(queue).attempts == 2


def test_n_retries_are_n_plus_one_deliveries(world: World) -> None:
    queue = world.queue(retry_strategy=IN_TEN)
    (task_id,) = world.put(queue)
    for attempt in (1, 2, 3):
        task = world.one(queue)
        assert task.attempts == attempt
        world.say(task, "FAILED")
        world.clock.forward(10)

    dead = world.see(task_id)

    assert (dead.state, dead.dead_reason) == (State.DEAD, DeadReason.EXHAUSTED)
    assert len(dead.errors) == 3
    assert world.take(queue) == ()


def test_a_task_with_a_retry_strategy_of_its_own_follows_it(world: World) -> None:
    queue = world.queue(retry_strategy=IN_TEN)
    own = RetryStrategy(kind=Backoff.INTERVALS, max_retries=1, intervals=(3,), jitter=0)
    world.put(queue, retry=own)
    task = world.one(queue)

    world.say(task, "FAILED")

    assert world.see(task.id).due_at == world.clock() + timedelta(seconds=3)
    world.clock.forward(3)
    world.say(world.one(queue), "FAILED")
    assert world.see(task.id).dead_reason is DeadReason.EXHAUSTED


def test_a_worker_may_choose_the_delay_or_refuse_a_retry(world: World) -> None:
    queue = world.queue(retry_strategy=IN_TEN)
    world.put(queue, "1", "2")
    first, second = world.take(queue, 2)

    world.say(first, "FAILED", delay_in_seconds=1.5)
    world.say(second, "FAILED", retryable=False)

    assert world.see(first.id).due_at == world.clock() + timedelta(seconds=1.5)
    assert world.see(second.id).dead_reason is DeadReason.REJECTED


def test_without_dead_letters_a_dead_task_is_gone(world: World) -> None:
    queue = world.queue(dead_letter_queue_config=DeadLetterConfig(enable=False))
    world.put(queue)
    task = world.one(queue)

    assert world.say(task, "FAILED", retryable=False).outcome is ReportOutcome.OK

    assert world.store.read([task.id]) == {}


def test_without_history_a_task_that_succeeded_is_gone(world: World) -> None:
    queue = world.queue(history_retention_in_seconds=0)
    world.put(queue)
    task = world.one(queue)

    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.OK

    assert world.store.read([task.id]) == {}
    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.NOT_FOUND


def test_a_released_task_gets_its_attempt_back(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    task = world.one(queue)

    world.say(task, "RELEASED", delay_in_seconds=5)

    released = world.see(task.id)
    assert (released.state, released.attempts) == (State.ENQUEUED, 0)
    assert released.due_at == world.clock() + timedelta(seconds=5)
    assert (released.worker, released.lease_id) == ("ada:1", None)


def test_a_moved_task_keeps_its_identity_and_takes_the_targets_settings(world: World) -> None:
    first = world.queue("first", retry_strategy=IN_TEN)
    second = world.queue("second", expires_in_seconds=100)
    own = RetryStrategy(max_retries=9)
    (task_id,) = world.put(first, '"in"', tags={"a": "1"}, retry=own, keepalive=77)
    created = world.see(task_id).created_at
    world.say(world.one(first), "FAILED", delay_in_seconds=1)
    world.clock.forward(1)
    task = world.one(first)

    result = world.say(task, "MOVED", to_queue=second, payload='"out"', delay_in_seconds=2)

    assert result.outcome is ReportOutcome.OK
    moved = world.see(task_id)
    assert (moved.queue, moved.state, moved.attempts) == ("second", State.ENQUEUED, 0)
    assert (moved.payload, moved.tags, moved.created_at) == ('"out"', {"a": "1"}, created)
    assert (moved.retry, moved.keepalive) == (None, None)
    assert [hop.queue for hop in moved.trail] == ["first"]
    assert len(moved.errors) == 1
    due = world.clock() + timedelta(seconds=2)
    assert (moved.due_at, moved.expires_at) == (due, due + timedelta(seconds=100))
    assert world.take(first) == ()
    world.clock.forward(2)
    assert world.one(second).payload == '"out"'


def test_a_move_to_a_missing_queue_is_invalid_and_the_lease_stays(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    task = world.one(queue)

    result = world.say(task, "MOVED", to_queue="nowhere")

    assert result.outcome is ReportOutcome.INVALID
    assert "to_queue" in str(result.detail)
    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.OK


@pytest.mark.in_process
def test_errors_and_trail_keep_only_the_newest(world: World) -> None:
    queue = world.queue(retry_strategy=AT_ONCE)
    other = world.queue("other", retry_strategy=AT_ONCE)
    world.put(queue, retry=RetryStrategy(kind=Backoff.FIXED, base_seconds=0, max_retries=100))
    for number in range(23):
        world.say(world.one(queue), "FAILED", error=WorkerError(message=str(number)))
    task = world.one(queue)
    kept = [error.message for error in task.errors]
    assert kept == [str(number) for number in range(3, 23)]

    here, there = queue, other
    for _ in range(53):
        world.say(task, "MOVED", to_queue=there)
        here, there = there, here
        task = world.one(here)
    assert len(task.trail) == 50


def test_an_expired_task_is_never_delivered_and_ends_dead(world: World) -> None:
    queue = world.queue()
    ids = world.put(queue, "1", expires_at=world.clock() + timedelta(seconds=10))
    world.put(queue, "2", delay_in_seconds=11)
    world.clock.forward(11)

    assert [task.payload for task in world.take(queue, 5)] == ["2"]
    world.use.reaping.run()

    dead = world.see(ids[0])
    assert (dead.state, dead.dead_reason) == (State.DEAD, DeadReason.EXPIRED)


def test_a_retry_that_would_come_after_the_expiry_ends_the_task(world: World) -> None:
    queue = world.queue(retry_strategy=IN_TEN)
    soon = world.clock() + timedelta(seconds=5)
    world.put(queue, "1", "2", expires_at=soon)
    first, second = world.take(queue, 2)

    world.say(first, "FAILED")
    world.say(second, "RELEASED", delay_in_seconds=60)

    assert world.see(first.id).dead_reason is DeadReason.EXPIRED
    assert world.see(second.id).dead_reason is DeadReason.EXPIRED


def test_a_task_past_its_retention_is_hidden_from_that_very_second(world: World) -> None:
    queue = world.queue(history_retention_in_seconds=60)
    (task_id,) = world.put(queue, id="mine")
    world.say(world.one(queue), "SUCCEEDED")
    world.clock.forward(61)

    assert world.use.inspect.list(queue).tasks == ()
    assert world.use.inspect.count(queue).count == 0
    (again,) = world.use.tasks.enqueue(queue, [TaskSpec("2", id=task_id)])
    assert again.outcome is EnqueueOutcome.CREATED
    assert world.see(task_id).payload == "2"


def test_the_same_id_again_changes_nothing(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    entry = TaskSpec('"first"', id="order-1")

    outcomes = [
        world.use.tasks.enqueue(queue, [entry, TaskSpec('"second"', id="order-1")]),
        world.use.tasks.enqueue(queue, [TaskSpec('"third"', id="order-1")]),
        world.use.tasks.enqueue(other, [entry]),
    ]

    assert [[result.outcome for result in results] for results in outcomes] == [
        [EnqueueOutcome.CREATED, EnqueueOutcome.EXISTING],
        [EnqueueOutcome.EXISTING],
        [EnqueueOutcome.EXISTING],
    ]
    assert (outcomes[2][0].task, outcomes[2][0].queue) == (None, queue)
    assert world.see("order-1").payload == '"first"'


def test_an_existing_id_answers_before_its_expiry_is_looked_at(world: World) -> None:
    queue = world.queue()
    world.put(queue, id="order-1")
    past = world.clock()  # the expiry passes in the moment in which the task falls due

    again, new = world.use.tasks.enqueue(
        queue, [TaskSpec("1", id="order-1", expires_at=past), TaskSpec("1", expires_at=past)]
    )

    (elsewhere,) = world.use.tasks.enqueue(
        world.queue("other"), [TaskSpec("1", id="order-1", expires_at=past)]
    )

    assert (again.outcome, new.outcome) == (EnqueueOutcome.EXISTING, EnqueueOutcome.INVALID)
    assert (elsewhere.outcome, elsewhere.queue) == (EnqueueOutcome.EXISTING, queue)


def test_an_id_repeated_after_its_task_has_moved_is_existing(world: World) -> None:
    first, second = world.queue("first"), world.queue("second")
    world.put(first, id="order-1")
    world.say(world.one(first), "MOVED", to_queue=second)

    (again,) = world.use.tasks.enqueue(first, [TaskSpec('"again"', id="order-1")])

    assert (again.outcome, again.task, again.queue) == (EnqueueOutcome.EXISTING, None, second)
    assert world.see("order-1").queue == second
