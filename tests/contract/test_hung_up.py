"""A client that hangs up while its dequeue waits takes no task along."""

import itertools
from collections.abc import Callable

import pytest

from headrace.domain.task import State
from tests.contract.conftest import World


def hangs_up_after(calls: int) -> Callable[[], bool]:
    """Return what tells that the client hung up from the call numbered *calls* on."""
    numbers = itertools.count()
    return lambda: next(numbers) >= calls


def test_a_client_that_hung_up_leases_nothing(world: World) -> None:
    queue = world.queue()
    world.put(queue, "1")

    found = world.use.deliveries.dequeue(queue, wait_seconds=20, is_gone=lambda: True)

    assert found.tasks == ()
    assert world.one(queue).attempts == 1


@pytest.mark.gate
def test_what_was_leased_meanwhile_goes_back_with_no_attempt_used(world: World) -> None:
    queue = world.queue()
    ids = world.put(queue, *["1"] * 3)

    found = world.use.deliveries.dequeue(
        queue, batch_size=3, wait_seconds=20, is_gone=hangs_up_after(1)
    )

    assert found.tasks == ()
    assert {world.see(one).state for one in ids} == {State.ENQUEUED}
    assert [(task.id, task.attempts) for task in world.take(queue, 3)] == [(one, 1) for one in ids]


def test_a_call_that_does_not_wait_is_answered(world: World) -> None:
    queue = world.queue()
    world.put(queue, "1")

    assert len(world.use.deliveries.dequeue(queue, is_gone=lambda: True).tasks) == 1
