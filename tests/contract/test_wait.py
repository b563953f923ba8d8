"""What every store promises to whoever waits for the end of a task."""

from collections.abc import Callable

import pytest

from headrace.domain.errors import NotFound
from headrace.domain.queue_settings import DeadLetterConfig
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import State
from headrace.store.call_scope import metered
from tests.contract.conftest import World


def meanwhile(world: World, *steps: Callable[[], object]) -> None:
    """Let each pause of whoever waits be one of *steps*, and after those only time."""
    left = list(steps)

    def sleep(seconds: float) -> None:
        world.clock.forward(seconds)
        if left:
            left.pop(0)()

    world.use.sleep = sleep


@pytest.mark.gate
def test_the_end_is_seen_though_it_comes_later(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue)
    meanwhile(world, lambda: world.say(world.one(queue), "SUCCEEDED", result='"done"'))

    task = world.use.waiting.wait(task_id, seconds=20)

    assert (task.state, task.result) == (State.SUCCEEDED, '"done"')


def test_a_retry_a_move_and_a_restart_are_no_end(world: World) -> None:
    queue, other = world.queue(retry_strategy=RetryStrategy(base_seconds=0)), world.queue("other")
    (task_id,) = world.put(queue)
    meanwhile(
        world,
        lambda: world.say(world.one(queue), "FAILED"),
        lambda: world.say(world.one(queue), "MOVED", to_queue=other),
        lambda: world.say(world.one(other), "SUCCEEDED", result="1"),
    )

    task = world.use.waiting.wait(task_id, seconds=20)

    assert (task.queue, task.state, task.result) == (other, State.SUCCEEDED, "1")


def test_when_time_is_over_it_is_shown_as_it_stands(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    task = world.one(queue, keepalive=60)
    began = world.clock()

    assert world.use.waiting.wait(task.id, seconds=5).state is State.INFLIGHT
    assert (world.clock() - began).total_seconds() == pytest.approx(5, abs=0.1)


def test_what_is_not_there_is_missing_at_once_and_what_goes_as_soon_as_it_is_gone(
    world: World,
) -> None:
    queue = world.queue(
        history_retention_in_seconds=0, dead_letter_queue_config=DeadLetterConfig(enable=False)
    )
    first, second = world.put(queue, "1", "2")
    began = world.clock()

    with pytest.raises(NotFound):
        world.use.waiting.wait("nobody", seconds=20)
    assert world.clock() == began

    meanwhile(world, lambda: world.say(world.one(queue), "SUCCEEDED"))
    with pytest.raises(NotFound):
        world.use.waiting.wait(first, seconds=20)
    meanwhile(world, lambda: world.use.tasks.delete(second))
    with pytest.raises(NotFound):
        world.use.waiting.wait(second, seconds=20)
    assert (world.clock() - began).total_seconds() < 1


def test_each_look_takes_half_a_read_unit(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue)
    looks = []
    meanwhile(world, *[lambda: looks.append(1)] * 100)

    with metered() as cost:
        world.use.waiting.wait(task_id, seconds=1)

    assert len(looks) > 5
    assert cost.write == 0
    assert cost.read in (0, 0.5 * (len(looks) + 1))  # none where nobody counts them: in memory
