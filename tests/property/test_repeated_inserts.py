"""A task is enqueued, and that is repeated by all who do so, in every order with its delivery.

Nobody keeps what is done here: whoever comes late finds no task, and must not make it anew.
"""

from collections.abc import Sequence
from itertools import permutations

import pytest

from headrace.domain import plan
from headrace.domain.change import Change
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DeadLetterConfig, QueueSettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import SHOWN_STATES
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store.base import Done
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.property.stores import STORES

WRITE, POST, TAKE = "write", "post", "take"
ENDS = ("SUCCEEDED", "FAILED", "lapse", "expire")


def orders(*steps: str) -> list[tuple[str, ...]]:
    """Return every order of *steps* that begins with a write."""
    return sorted({order for order in permutations(steps) if order[0] == WRITE})


# Two tries of a write and two workers; with an id of theirs its POST may come again too, twice.
OURS = orders(WRITE, WRITE, TAKE, TAKE)
THEIRS = orders(WRITE, WRITE, POST, POST, TAKE, TAKE)


def insert(world: World, queue: str, task_id: str, token: str | None) -> Change:
    now = world.clock()
    target = world.use.queues.get(queue)
    new = TaskSpec("1", id=task_id if token else None)
    return plan.enqueue(new, target, task_id=task_id, due_at=now, now=now, token=token)


@pytest.mark.parametrize("store", ["memory", pytest.param("sqlite", marks=pytest.mark.slow)])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("own", "order"),
    [
        *(pytest.param(False, order, id=f"an id of ours: {' '.join(order)}") for order in OURS),
        *(pytest.param(True, order, id=f"an id of theirs: {' '.join(order)}") for order in THEIRS),
    ],
)
def test_a_task_is_delivered_once_whoever_repeats_its_enqueue_whenever(
    order: Sequence[str], end: str, store: str, *, own: bool
) -> None:
    world = new_world(STORES[store](), ManualClock())
    queue = world.use.queues.create(
        "mail",
        QueueSettings(
            history_retention_in_seconds=0,
            dead_letter_queue_config=DeadLetterConfig(enable=False),
            retry_strategy=RetryStrategy(max_retries=0),
            keepalive_timeout_in_seconds=5,
            expires_in_seconds=30,
        ),
    ).name
    task_id = "order-1" if own else "tsk_" + "0" * 26
    written = insert(world, queue, task_id, "token" if own else None)
    ended = 0

    for step in order:
        world.clock.forward(0.001)
        if step == WRITE:  # the very same, as its client sends it again
            assert isinstance(world.store.commit([written])[0], Done)
        elif step == POST:  # the same id, by a call of its own
            (again,) = world.use.tasks.enqueue(queue, [TaskSpec("1", id=task_id)])
            assert again.outcome is EnqueueOutcome.EXISTING
        elif step == TAKE:
            ended += ends(world, queue, end)
    ended += ends(world, queue, end)

    assert ended == 1
    for state in SHOWN_STATES:
        assert world.use.queues.purge(queue, (state,)).deleted == 0


def ends(world: World, queue: str, how: str) -> int:
    """Let the tasks there are end; return how many they were."""
    there = world.use.inspect.count(queue).count
    if how == "expire":
        world.clock.forward(31)
    else:
        for task in world.take(queue, 5):
            if how == "lapse":
                world.clock.forward(6)
            else:
                world.say(task, how)
    world.use.reaping.run()
    return there - world.use.inspect.count(queue).count
