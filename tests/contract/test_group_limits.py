"""Limits of groups, on every store: at most so many in flight of each, and nobody stuck."""

from typing import Any

import pytest

from headrace.domain.change import Entry
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.store.call_scope import metered
from tests.contract.conftest import World

AT_ONCE = RetryStrategy(Backoff.FIXED, 5, 0, 0, 0.0)


def limited(world: World, limit: int = 1, name: str = "mail", **settings: Any) -> str:
    settings.setdefault("retry_strategy", AT_ONCE)
    groups = GroupSettings(GroupMode.FAIR, max_inflight_per_group=limit)
    return world.queue(name, groups=groups, **settings)


def keys_of(tasks: tuple[Task, ...]) -> list[str]:
    return sorted(str(task.group_key) for task in tasks)


def later(world: World, queue: str, count: int = 25, seconds: float = 2) -> tuple[Task, ...]:
    """Dequeue once all that a process remembers of groups is too old."""
    world.clock.forward(seconds)
    return world.take(queue, count)


# -- at most so many ------------------------------------------------------------


@pytest.mark.gate
def test_at_most_so_many_of_each_group_are_in_flight(world: World) -> None:
    queue = limited(world, 3)
    for key in ("a", "b", None):
        world.put(queue, *(["1"] * 10), group_key=key)

    taken = world.take(queue, 25)

    assert keys_of(taken) == sorted(["a", "b", "None"] * 3)
    assert not later(world, queue)
    (done,) = (task for task in taken[-1:])
    world.say(done, "SUCCEEDED")
    (then,) = later(world, queue)
    assert then.group_key == done.group_key


def test_who_is_at_its_limit_hides_nobody_behind_it(world: World) -> None:
    """Even if it has more tasks before the other's than one read of the index shows."""
    groups = GroupSettings(GroupMode.FAIR, {"quiet": 0.01}, max_inflight_per_group=1)
    queue = world.queue(groups=groups, retry_strategy=AT_ONCE)
    world.put(queue, "1", "2", group_key="quiet")
    world.say(world.one(queue), "SUCCEEDED")  # the next turn of quiet is a hundred turns later
    for _ in range(20):
        world.put(queue, *(["1"] * 25), group_key="noisy")
    assert keys_of(world.take(queue, 1)) == ["noisy"]
    assert keys_of(later(world, queue)) == ["quiet"]


# -- what is shown ------------------------------------------------------------


def test_a_delivery_costs_a_write_more_and_about_two_reads(world: World) -> None:
    queue = limited(world)
    world.put(queue, *(["1"] * 9), group_key="a")
    spent: list[tuple[float, float]] = []
    for _ in range(5):
        world.clock.forward(2)
        with metered() as cost:
            task = world.one(queue)
        spent.append((cost.write, cost.read))
        world.say(task, "SUCCEEDED")
    plain = world.queue("plain", groups=GroupSettings(GroupMode.FAIR))
    world.put(plain, *(["1"] * 9), group_key="a")
    world.clock.forward(2)
    with metered() as usual:
        world.one(plain)

    if usual.write:  # in memory nothing costs
        assert {write - usual.write for write, _ in spent} == {1}
        assert max(read - usual.read for _, read in spent) <= 2.5


def waiting(world: World, queue: str) -> list[Entry]:
    places = world.use.queues.get(queue).places(State.ENQUEUED)
    return [entry for place in places for entry in world.store.entries(place, limit=9).entries]


def test_explain_says_that_a_group_is_at_its_limit_and_by_what(world: World) -> None:
    queue = limited(world)
    world.put(queue, *(["1"] * 2), group_key="a")
    task = world.one(queue)
    (free,) = world.put(queue, group_key="b")
    (other,) = (one.task_id for one in waiting(world, queue) if one.group_key == "a")

    reason = world.use.explain.reasons(world.see(other))[0]
    assert reason.code == "group_limited"
    assert reason.detail == (f"group a has 1 in flight, as many as allowed: {task.id} is in flight")
    assert reason.until == task.lease_expires_at
    codes = [one.code for one in world.use.explain.reasons(world.see(free))]
    assert "group_limited" not in codes
