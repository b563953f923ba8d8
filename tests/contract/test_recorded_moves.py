"""What the recorder counts of each move of a task: where the task is, and what happened."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DeadLetterConfig
from headrace.domain.retry import Backoff, RetryStrategy
from tests.contract.conftest import World
from tests.contract.test_recording import Recorder, new_recorder
from tests.manual_clock import ManualClock

NO_RETRY = RetryStrategy(kind=Backoff.FIXED, base_seconds=60, jitter=0, max_retries=0)
ONE_RETRY = RetryStrategy(kind=Backoff.FIXED, base_seconds=60, jitter=0, max_retries=1)
NO_DEAD = DeadLetterConfig(enable=False)
NOTHING_KEPT: dict[str, Any] = {
    "history_retention_in_seconds": 0,
    "dead_letter_queue_config": NO_DEAD,
}

Act = Callable[[World, Any], object]


def lapse(world: World, _task: Any) -> None:
    world.clock.forward(60)
    world.use.reaping.run()


def reported(status: str, **fields: Any) -> Act:
    return lambda world, task: world.say(task, status, **fields)


def spawned(world: World, task: Any) -> None:
    world.say(task, "SUCCEEDED", spawn=(("mail", TaskSpec("1")),))


def restarted(world: World, task: Any) -> None:
    world.say(task, "FAILED")
    world.use.bulk.by_ids("mail", BulkAction.RESTART, [task.id])


def delete(world: World, task: Any) -> None:
    world.use.tasks.delete(task.id)


def cancel(world: World, task: Any) -> None:
    world.use.cancelling.cancel(task.id)


@pytest.fixture
def it(store: Any, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


# Counts: ENQUEUED, INFLIGHT, SUCCEEDED, DEAD.
# Events after the delivery: enqueued, succeeded, failed, dead, cancelled.
@pytest.mark.parametrize(
    ("act", "settings", "counts", "events"),
    [
        (reported("SUCCEEDED"), {}, (0, 0, 1, 0), [0, 1, 0, 0, 0]),
        (reported("SUCCEEDED"), NOTHING_KEPT, (0, 0, 0, 0), [0, 1, 0, 0, 0]),
        (reported("INFLIGHT", progress="1"), {}, (0, 1, 0, 0), [0, 0, 0, 0, 0]),
        (reported("RELEASED"), {}, (1, 0, 0, 0), [0, 0, 0, 0, 0]),
        (reported("FAILED"), {"retry_strategy": ONE_RETRY}, (1, 0, 0, 0), [0, 0, 1, 0, 0]),
        (reported("FAILED"), {}, (0, 0, 0, 1), [0, 0, 1, 1, 0]),
        (reported("FAILED", retryable=False), NOTHING_KEPT, (0, 0, 0, 0), [0, 0, 1, 1, 0]),
        (spawned, {}, (1, 0, 1, 0), [1, 1, 0, 0, 0]),
        (lapse, {"retry_strategy": ONE_RETRY}, (1, 0, 0, 0), [0, 0, 1, 0, 0]),
        (lapse, NOTHING_KEPT, (0, 0, 0, 0), [0, 0, 1, 1, 0]),
        (cancel, {}, (0, 0, 0, 1), [0, 0, 0, 0, 1]),
        (cancel, NOTHING_KEPT, (0, 0, 0, 0), [0, 0, 0, 0, 1]),
        (delete, {}, (0, 0, 0, 0), [0, 0, 0, 0, 0]),
        (restarted, {}, (1, 0, 0, 0), [1, 0, 1, 1, 0]),
    ],
)
def test_a_delivered_task_is_counted_by_what_became_of_it(
    it: Recorder,
    act: Act,
    settings: dict[str, Any],
    counts: tuple[int, ...],
    events: list[int],
) -> None:
    queue = it.world.queue("mail", **{"retry_strategy": NO_RETRY, **settings})
    it.world.put(queue)
    task = it.world.one(queue)
    it.world.clock.forward(3)
    it.record()

    act(it.world, task)
    it.record()

    assert it.counts(queue)[:4] == counts
    enqueued, started, *others = it.events(queue)
    assert started == 1
    assert [enqueued - 1, *others] == events


def test_a_cancel_is_neither_a_failure_nor_a_death(it: Recorder) -> None:
    queue = it.world.queue()
    (task_id,) = it.world.put(queue)

    it.world.use.cancelling.cancel(task_id)
    it.record()

    assert it.counts(queue)[:4] == (0, 0, 0, 1)
    assert it.events(queue) == [1, 0, 0, 0, 0, 1]


def test_a_move_is_an_enqueue_in_the_other_queue(it: Recorder) -> None:
    first, second = it.world.queue("first"), it.world.queue("second")
    by_worker, by_operator = it.world.put(first, "1", "2")
    (task, other) = it.world.take(first, 2)
    it.world.say(task, "MOVED", to_queue=second)
    it.world.say(other, "RELEASED", delay_in_seconds=600)

    it.world.use.bulk.by_ids(first, BulkAction.MOVE, [by_worker, by_operator], to_queue=second)
    it.record()

    assert (it.counts(first)[:4], it.counts(second)[:4]) == ((0, 0, 0, 0), (2, 0, 0, 0))
    assert it.events(second) == [2, 0, 0, 0, 0, 0]
