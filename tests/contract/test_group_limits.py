"""Limits of groups, on every store: at most so many in flight of each, and nobody stuck."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.change import Entry
from headrace.domain.fairness import STEP, GroupMode, GroupSettings, TurnTaking
from headrace.domain.ids import shard_of
from headrace.domain.operate import BulkAction
from headrace.domain.queue import DequeuingSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.slots import GroupLine, SlotTaking, Stay
from headrace.domain.task import State, Task
from headrace.store.base import Store
from headrace.store.call_scope import metered
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

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


# -- the store ------------------------------------------------------------


@pytest.mark.gate
def test_a_slot_is_taken_only_from_whom_the_taker_has_seen(store: Store) -> None:
    assert store.lines("mail", ["=a", "=b"]) == {}
    assert store.take_slot("mail", SlotTaking("=a", 0, "one 1"))
    assert store.take_slot("mail", SlotTaking("=a", 0, "one 1"))  # a repeat
    assert not store.take_slot("mail", SlotTaking("=a", 0, "two 1"))
    assert store.take_slot("mail", SlotTaking("=a", 1, "two 1"))
    assert not store.take_slot("mail", SlotTaking("=a", 0, "three 1", "two 1"))
    assert store.take_slot("mail", SlotTaking("=a", 0, "three 1", "one 1"))
    assert store.lines("mail", ["=a", "=b"])["=a"].slots == {0: "three 1", 1: "two 1"}
    assert store.lines("news", ["=a"]) == {}
    assert store.line("mail", "=a") is None


def test_turns_and_slots_leave_each_other_alone(store: Store) -> None:
    assert store.take_turns("mail", TurnTaking("=a", 5, 0, ahead=False)) == 5
    assert store.take_slot("mail", SlotTaking("=a", 2, "one 1"))
    assert store.take_turns("mail", TurnTaking("=a", 5, 0, ahead=True)) == 10
    assert store.lines("mail", ["=a"]) == {"=a": GroupLine(10, {2: "one 1"})}
    assert store.line("mail", "=a") == 10


# -- at most so many ------------------------------------------------------------


@pytest.mark.gate
@pytest.mark.parametrize("limit", [1, 3])
def test_at_most_so_many_of_each_group_are_in_flight(world: World, limit: int) -> None:
    queue = limited(world, limit)
    for key in ("a", "b", None):
        world.put(queue, *(["1"] * 10), group_key=key)

    taken = world.take(queue, 25)

    assert keys_of(taken) == sorted(["a", "b", "None"] * limit)
    assert not later(world, queue)
    (done,) = (task for task in taken[-1:])
    world.say(done, "SUCCEEDED")
    (then,) = later(world, queue)
    assert then.group_key == done.group_key


def test_who_is_at_its_limit_hides_nobody_behind_it(world: World) -> None:
    queue = limited(world)
    for _ in range(20):
        world.put(queue, *(["1"] * 25), group_key="noisy")
    assert len(world.take(queue, 5)) == 1
    behind = TurnTaking("=quiet", 1_000 * STEP, 0, ahead=False)
    world.store.take_turns(queue, behind)
    world.put(queue, group_key="quiet")

    assert keys_of(later(world, queue)) == ["quiet"]


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "RELEASED"])
def test_whatever_ends_a_delivery_its_slot_is_free_at_once(world: World, status: str) -> None:
    queue = limited(world)
    world.put(queue, *(["1"] * 3), group_key="a")
    first = world.one(queue)
    assert not world.take(queue)

    world.say(first, status)

    assert world.one(queue).group_key == "a"  # this process has heard of it


def test_tasks_of_a_group_go_on_in_their_order(world: World) -> None:
    queue = limited(world)
    ids = world.put(queue, *(["1"] * 20), group_key="a")
    done = []
    for _ in ids:
        task = world.one(queue)
        assert not world.take(queue)
        world.say(task, "SUCCEEDED")
        done.append(task.id)
    assert done == ids


def test_a_lapsed_lease_ends_its_stay(world: World) -> None:
    queue = limited(world, keepalive_timeout_in_seconds=10)
    ids = world.put(queue, "1", "2", group_key="a")
    assert world.one(queue).id == ids[0]
    assert not later(world, queue, seconds=8)

    world.clock.forward(3)
    assert world.take(queue)
    assert not world.take(queue, 5)


def test_a_zombie_reports_in_vain_and_its_slot_is_another_s(world: World) -> None:
    queue = limited(world, keepalive_timeout_in_seconds=10)
    world.put(queue, "1", "2", group_key="a")
    zombie = world.one(queue)
    world.clock.forward(11)
    taken = world.take(queue, 5)
    assert len(taken) == 1
    assert world.say(zombie, "SUCCEEDED").outcome != "OK"
    assert not later(world, queue)


def test_what_is_delayed_or_comes_back_counts_too(world: World) -> None:
    queue = limited(world)
    world.put(queue, "1", group_key="a", delay_in_seconds=5)
    world.put(queue, "2", group_key="a")
    first = world.one(queue)
    assert first.payload == "2"
    assert not later(world, queue, seconds=6)
    world.say(first, "FAILED")
    assert len(later(world, queue)) == 1


def test_several_shards_share_a_limit(world: World) -> None:
    queue = limited(world, 3, shards=4)
    world.put(queue, *(["1"] * 20), group_key="a")
    assert len(world.take(queue, 25)) == 3
    assert not later(world, queue)


@pytest.mark.parametrize("few", range(4))
def test_a_shard_with_few_of_a_group_leaves_no_slot_unused(world: World, few: int) -> None:
    queue = limited(world, 3, shards=4)
    names = [f"task-{number}" for number in range(60)]
    of_one = [name for name in names if shard_of(name, 4) == few][:2]
    others = [name for name in names if shard_of(name, 4) != few][:9]
    for name in (*of_one, *others):
        world.put(queue, id=name, group_key="a")
    assert len(world.take(queue, 25)) == 3
    stays = world.store.lines(queue, ["=a"])["=a"].slots.values()
    assert len(set(stays)) == 3, "a task has two slots"


def test_a_limit_of_the_queue_holds_beside_those_of_groups(world: World) -> None:
    queue = limited(world, 2, dequeuing_settings=DequeuingSettings(max_inflight_tasks=3))
    for key in "ab":
        world.put(queue, *(["1"] * 5), group_key=key)
    taken = world.take(queue, 10)
    assert len(taken) == 3
    for task in taken:
        world.say(task, "SUCCEEDED")
    assert len(later(world, queue)) == 3


def test_an_answer_that_is_too_large_gives_back_what_keeps_its_slot(world: World) -> None:
    queue = limited(world, 20)
    large = '"' + "x" * (250 * 1024) + '"'
    for _ in range(20):
        world.put(queue, large, group_key="a")
    taken = len(world.take(queue, 20))
    assert 0 < taken < 20
    assert len(later(world, queue)) == 20 - taken
    assert not later(world, queue)


# -- others do the same ------------------------------------------------------------


class Died(BaseException):
    """It does nothing more."""


def dying(world: World) -> World:
    """Return another process, which dies when it has reserved and is about to deliver."""
    process = new_world(world.store, world.clock)

    class Deadly:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.store, name)

        def commit(self, *_args: Any, **_how: Any) -> Any:
            raise Died

    process.use.deliveries.tables = Deadly()
    return process


def test_what_a_dead_process_has_reserved_is_completed(world: World) -> None:
    queue = limited(world)
    ids = world.put(queue, "1", "2", group_key="a")
    with pytest.raises(Died):
        dying(world).take(queue, 5)
    assert world.store.lines(queue, ["=a"])["=a"].slots

    assert [task.id for task in world.take(queue, 5)] == ids[:1]
    assert not later(world, queue)


def test_and_if_others_of_its_group_come_first_it_goes_in_their_place(world: World) -> None:
    queue = limited(world)
    (first,) = world.put(queue, "1", group_key="a")
    with pytest.raises(Died):
        dying(world).take(queue, 5)
    delayed = world.put(queue, "2", group_key="a", delay_in_seconds=1)
    (turn,) = world.put(queue, "3", group_key="a")
    world.clock.forward(3)
    entries = [
        entry
        for place in world.use.queues.get(queue).places(State.ENQUEUED)
        for entry in world.store.entries(place, limit=9).entries
        if entry.task_id in (turn, *delayed)
    ]
    source = world.use.queues.get(queue)
    limits = world.use.deliveries.limiting.groups

    assert limits.take(source, entries) == []
    world.clock.forward(2)
    assert [entry.task_id for entry in limits.take(source, entries)] == [first]


def test_processes_take_no_slot_from_under_each_other(world: World) -> None:
    queue = limited(world, 3)
    world.put(queue, *(["1"] * 20), group_key="a")
    processes = [new_world(world.store, world.clock) for _ in range(4)]
    taken = [task for one in processes for task in one.take(queue, 2)]
    assert len(taken) == 3
    processes[1].say(taken[0], "SUCCEEDED")
    world.clock.forward(2)
    assert sum(len(one.take(queue, 2)) for one in processes) == 1


def test_a_delivery_is_only_made_for_its_stay(world: World) -> None:
    """Somebody whose clock is ahead reserves and sleeps, until another has the slot."""
    queue = limited(world, keepalive_timeout_in_seconds=60)
    first, second = world.put(queue, "1", "2", group_key="a")
    ahead = ManualClock()
    ahead.forward(9)
    sleeper = new_world(world.store, ahead)

    class Sleepy:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.store, name)

        def take_slot(self, queue: str, take: SlotTaking) -> bool:
            assert world.store.take_slot(queue, take)
            world.say(world.one(queue), "FAILED", delay_in_seconds=1)
            assert world.one(queue).id == second
            return True

    sleeper.use.deliveries.limiting.groups.store = Sleepy()
    assert not sleeper.take(queue)
    assert world.see(first).state is State.ENQUEUED


@pytest.mark.parametrize("way", ["undo", "move"])
def test_what_an_operator_brings_back_has_another_stay(world: World, way: str) -> None:
    queue, other = limited(world), world.queue("other")
    (name,) = world.put(queue, group_key="a")
    before = world.see(name).due_at
    if way == "undo":
        undo = world.use.tasks.delete(name, undo_in_seconds=60)
        assert undo is not None
        world.use.undoing.undo(undo.id)
    else:
        world.use.bulk.by_ids(queue, BulkAction.MOVE, [name], to_queue=other)
        world.use.bulk.by_ids(other, BulkAction.MOVE, [name], to_queue=queue)
    assert world.see(name).due_at > before
    world.clock.forward(1)
    assert world.one(queue).id == name


# -- what is shown ------------------------------------------------------------


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


def waiting(world: World, queue: str) -> list[Entry]:
    places = world.use.queues.get(queue).places(State.ENQUEUED)
    return [entry for place in places for entry in world.store.entries(place, limit=9).entries]


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


# -- settings ------------------------------------------------------------


def test_a_limit_may_be_raised_lowered_and_lifted(world: World) -> None:
    queue = limited(world, 3, keepalive_timeout_in_seconds=3600)
    world.put(queue, *(["1"] * 20), group_key="a")

    def change(limit: int) -> None:
        settings = world.use.queues.get(queue).settings
        groups = GroupSettings(GroupMode.FAIR, max_inflight_per_group=limit)
        world.use.queues.replace(queue, replace(settings, groups=groups))
        world.clock.forward(70)

    taken = [*world.take(queue, 25)]
    assert len(taken) == 3
    change(1)
    assert not world.take(queue, 25)
    for task in taken[:2]:
        world.say(task, "SUCCEEDED")
    assert not later(world, queue)
    world.say(taken[2], "SUCCEEDED")
    assert len(later(world, queue, seconds=2)) == 1
    change(5)
    assert 4 <= len(world.take(queue, 25)) <= 5
    change(0)
    assert len(world.take(queue, 25)) == 12


def test_a_line_is_kept_as_long_as_its_tasks_wait(world: World) -> None:
    queue = limited(world, expires_in_seconds=1_000_000)
    world.put(queue, group_key="a", delay_in_seconds=1)
    world.clock.forward(2)
    assert len(world.take(queue)) == 1
    line = world.store.lines(queue, ["=a"])["=a"]
    assert line.expires_at is None or line.expires_at > world.clock() + timedelta(days=40)


def test_a_stay_says_which_task_and_when(world: World) -> None:
    stay = Stay("tsk_1", world.clock())
    assert Stay.parse(stay.text) == stay
