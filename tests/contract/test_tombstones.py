"""What every store promises of tasks that are done and not kept: nobody makes them anew by mistake.

Their id stays taken for a quarter of an hour, longer than anybody repeats a request for.
"""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.domain import limits
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DeadLetterConfig
from headrace.domain.retry import RetryStrategy
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult
from tests.contract.conftest import World

pytestmark = pytest.mark.gate

NOT_KEPT: dict[str, Any] = {
    "history_retention_in_seconds": 0,
    "dead_letter_queue_config": DeadLetterConfig(enable=False),
    "retry_strategy": RetryStrategy(max_retries=0),
    "keepalive_timeout_in_seconds": 5,
    "expires_in_seconds": 60,
}
QUARTER = limits.TOMBSTONE_SECONDS


def succeeded(world: World, queue: str) -> None:
    assert world.say(world.one(queue), "SUCCEEDED", result="1").outcome is ReportOutcome.OK


def failed(world: World, queue: str) -> None:
    assert world.say(world.one(queue), "FAILED").outcome is ReportOutcome.OK


def expired(world: World, _queue: str) -> None:
    world.clock.forward(60)
    world.use.reaping.run()


End = Callable[[World, str], None]
ENDS = [succeeded, failed, expired]


def again(world: World, queue: str, payload: str = '"again"', **fields: Any) -> EnqueueResult:
    (result,) = world.use.tasks.enqueue(queue, [TaskSpec(payload, id="order-1", **fields)])
    return result


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("end", ENDS)
def test_an_enqueue_repeated_after_its_task_was_done_makes_no_second_one(
    world: World, end: End, *, keyed: bool
) -> None:
    queue = world.queue(**NOT_KEPT)
    key = "key" if keyed else None
    world.put(queue, id="order-1", dedupe_key=key, tags={"a": "b"})
    end(world, queue)

    repeated = again(world, queue, dedupe_key=key)

    assert repeated.outcome is EnqueueOutcome.EXISTING
    assert (repeated.id, repeated.queue, repeated.task) == ("order-1", queue, None)
    assert repeated.detail == "the task of this id is done, and was not kept"
    assert world.take(queue, 5) == ()


def test_the_id_is_free_again_after_a_quarter_of_an_hour(world: World) -> None:
    """Even if the table has not swept up what was left of the task."""
    queue, key = world.queue(**NOT_KEPT), "key"
    world.put(queue, id="order-1", dedupe_key=key)
    succeeded(world, queue)

    world.clock.forward(QUARTER - 1)
    assert again(world, queue, dedupe_key=key).outcome is EnqueueOutcome.EXISTING
    world.clock.forward(2)

    assert again(world, queue, dedupe_key=key).outcome is EnqueueOutcome.CREATED
    assert world.one(queue).payload == '"again"'
