"""What random orders of calls have found, each as the few calls that show it."""

from datetime import timedelta

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DeadLetterConfig
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome
from tests.contract.conftest import World

KEEPS_NO_DEAD = DeadLetterConfig(enable=False)
ONCE = RetryStrategy(Backoff.FIXED, max_retries=0, base_seconds=0, jitter=0)


def test_an_id_twice_in_one_call_exists_whatever_the_second_entry_says(world: World) -> None:
    """An id that exists answers EXISTING before anything else of its entry is looked at."""
    queue = world.queue()
    past = world.clock() - timedelta(seconds=1)

    first, again = world.use.tasks.enqueue(
        queue, [TaskSpec("1", id="order-1"), TaskSpec("2", id="order-1", expires_at=past)]
    )

    assert (first.outcome, again.outcome) == (EnqueueOutcome.CREATED, EnqueueOutcome.EXISTING)


def test_the_reaper_counts_an_expired_task_that_nobody_keeps_as_expired(world: World) -> None:
    queue = world.queue(dead_letter_queue_config=KEEPS_NO_DEAD, expires_in_seconds=5)
    world.put(queue)
    world.clock.forward(5)

    reaped = world.use.reaping.run()

    assert (reaped.expired, reaped.retried) == (1, 0)


def test_a_failure_that_took_effect_may_be_repeated_where_no_dead_are_kept(world: World) -> None:
    """The first guess is that the task is out of retries and gone; its own strategy says no."""
    queue = world.queue(dead_letter_queue_config=KEEPS_NO_DEAD, retry_strategy=ONCE)
    world.put(queue, retry=RetryStrategy(max_retries=9))
    task = world.one(queue)
    assert world.say(task, "FAILED").outcome is ReportOutcome.OK

    assert world.say(task, "FAILED").outcome is ReportOutcome.OK
    assert len(world.see(task.id).errors) == 1


def test_a_success_may_be_repeated_after_history_was_switched_off(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    task = world.one(queue)
    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.OK
    settings = world.use.queues.get(queue).settings
    world.use.queues.replace(queue, type(settings)(history_retention_in_seconds=0))

    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.OK


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "RELEASED"])
def test_a_repeat_by_the_path_of_another_queue_is_not_found(world: World, status: str) -> None:
    queue, other = world.queue(), world.queue("other")
    world.put(queue)
    task = world.one(queue)
    assert world.say(task, status).outcome is ReportOutcome.OK

    assert world.say(task, status, queue=other).outcome is ReportOutcome.NOT_FOUND
