"""Groups of a queue take turns, whatever each of them has waiting."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.errors import NotFound
from headrace.domain.fairness import GroupMode, GroupSettings, TurnTaking, turn_of_instant
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DequeuingSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import RETURN_LANE, TURN_LANE, State, Task
from headrace.ops.delivery.dequeue import Order
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store.base import Store
from tests.contract.conftest import World, new_world

FAIR = GroupSettings(GroupMode.FAIR)
AT_ONCE = RetryStrategy(Backoff.FIXED, 5, 0, 0, 0.0)


def fair(world: World, name: str = "mail", **settings: Any) -> str:
    settings.setdefault("groups", FAIR)
    return world.queue(name, **settings)


def keys_of(tasks: tuple[Task, ...]) -> list[str | None]:
    return [task.group_key for task in tasks]


# -- the store ------------------------------------------------------------


@pytest.mark.parametrize("ahead", [False, True])
def test_a_line_goes_on_from_where_it_is_or_from_what_is_delivered(
    store: Store, *, ahead: bool
) -> None:
    assert store.line("mail", "=a") is None
    assert store.take_turns("mail", TurnTaking("=a", 5, 0, ahead)) == 5
    assert store.take_turns("mail", TurnTaking("=a", 5, 2, ahead)) == 10
    assert store.take_turns("mail", TurnTaking("=a", 3, 10, ahead)) == 13
    assert store.take_turns("mail", TurnTaking("=a", 3, 100, ahead)) == 103
    assert (store.line("mail", "=a"), store.line("mail", "=b")) == (103, None)
    assert store.line("news", "=a") is None


def test_the_highest_turn_delivered_only_rises(world: World) -> None:
    store, later = world.store, world.clock() + timedelta(days=9)
    assert store.delivered_turn("mail") == 0
    for turn in (7, 3, 9):
        store.note_delivered("mail", turn, expires_at=later)
    assert (store.delivered_turn("mail"), store.delivered_turn("news")) == (9, 0)


# -- whose turn it is ------------------------------------------------------------


@pytest.mark.gate
def test_whoever_has_little_waiting_is_not_behind_whoever_has_much(world: World) -> None:
    queue = fair(world)
    for _ in range(3):
        world.put(queue, *(["1"] * 10), group_key="noisy")
    world.put(queue, group_key="quiet")
    world.put(queue)

    assert sorted(map(str, keys_of(world.take(queue, 3)))) == ["None", "noisy", "quiet"]
    world.put(queue, group_key="quiet")
    assert "quiet" in keys_of(world.take(queue, 3))


@pytest.mark.gate
def test_a_group_has_as_many_turns_as_its_weight_says(world: World) -> None:
    queue = fair(world, groups=GroupSettings(GroupMode.FAIR, {"large": 4, "small": 0.5}))
    for key in ("large", "small", "usual"):
        world.put(queue, *(["1"] * 24), group_key=key)

    taken = keys_of(world.take(queue, 22))
    assert (taken.count("large"), taken.count("usual"), taken.count("small")) == (16, 4, 2)


def test_tasks_of_one_group_keep_their_order(world: World) -> None:
    queue = fair(world)
    ids = [
        *world.put(queue, "1", "2", group_key="a"),
        *world.put(queue, "3", group_key="a"),
        *world.put(queue, "4", "5", group_key="a"),
    ]

    assert [task.id for task in world.take(queue, 5)] == ids


def test_the_lanes_share_a_batch(world: World) -> None:
    queue = fair(world, retry_strategy=AT_ONCE)
    world.put(queue, *(["1"] * 9))
    for task in world.take(queue, 9):
        world.say(task, "FAILED")
    world.put(queue, *(["2"] * 9), delay_in_seconds=1)
    world.clock.forward(2)
    for _ in range(2):
        world.put(queue, *(["3"] * 9))

    payloads = [task.payload for task in world.take(queue, 9)]
    assert sorted(map(str, payloads)) == sorted(["1", "2", "3"] * 3)
    rest = [str(world.one(queue).payload) for _ in range(9)]
    assert {rest.count(one) for one in "123"} == {3}
    assert len(world.take(queue, 25)) == 18
    assert not world.take(queue)


def test_what_is_delayed_or_comes_back_takes_no_turn(world: World) -> None:
    queue = fair(world, retry_strategy=AT_ONCE)
    (later,) = world.put(queue, delay_in_seconds=5, group_key="a")
    (now,) = world.put(queue, group_key="a")
    assert (world.see(later).place.lane, world.see(later).turn) == (0, None)
    first = world.see(now)
    assert (first.place.lane, first.turn, first.scheduled_at) == (
        TURN_LANE,
        first.scheduled_at,
        first.turn,
    )
    assert turn_of_instant(first.scheduled_at) == 0  # the first of all

    world.say(world.one(queue), "FAILED")
    again = world.see(now)
    assert (again.place.lane, again.turn, again.group_key) == (RETURN_LANE, None, "a")


def test_an_answer_that_is_too_large_gives_back_tasks_to_their_turn(world: World) -> None:
    queue = fair(world)
    large = '"' + "x" * (250 * 1024) + '"'
    ids = [world.put(queue, large, group_key="a")[0] for _ in range(20)]
    before = world.see(ids[-1])

    taken = len(world.take(queue, 20))
    assert taken < 20
    back = world.see(ids[-1])
    assert (back.state, back.place, back.turn) == (State.ENQUEUED, before.place, before.turn)
    assert [task.id for task in world.take(queue, 20 - taken)] == ids[taken:]


@pytest.mark.parametrize("way", ["restart", "move", "moved", "spawned"])
def test_whoever_begins_anew_takes_a_turn(world: World, way: str) -> None:
    plain, queue = world.queue("plain"), fair(world)
    world.put(queue, *(["1"] * 20), group_key="noisy")
    source = queue if way == "restart" else plain
    # A queue without groups keeps the key of what comes to it from one that has some.
    (name,) = world.put(queue, group_key="quiet")
    if source == plain:
        world.use.bulk.by_ids(queue, BulkAction.MOVE, [name], to_queue=plain)
        assert world.see(name).group_key == "quiet"
        assert world.see(name).place.lane == 0
    if way == "restart":
        while (task := world.one(queue)).id != name:
            world.say(task, "SUCCEEDED")
        world.say(task, "FAILED", retryable=False)
        world.use.bulk.by_ids(queue, BulkAction.RESTART, [name])
    elif way == "move":
        world.use.bulk.by_ids(plain, BulkAction.MOVE, [name], to_queue=queue)
    elif way == "moved":
        said = world.say(world.one(plain), "MOVED", to_queue=queue)
        assert said.outcome is ReportOutcome.OK
    else:
        child = TaskSpec("1", id="child", group_key="quiet")
        said = world.say(world.one(plain), "SUCCEEDED", spawn=((queue, child),))
        assert said.outcome is ReportOutcome.OK
        name = "child"

    shown = world.see(name)
    assert (shown.place.lane, shown.group_key) == (TURN_LANE, "quiet")
    assert name in [task.id for task in world.take(queue, 3)]


def test_an_undo_brings_it_back_in_its_turn(world: World) -> None:
    queue = fair(world)
    (name,) = world.put(queue, group_key="a")
    before = world.see(name)
    undo = world.use.tasks.delete(name, undo_in_seconds=60)
    assert undo is not None
    world.use.undoing.undo(undo.id)

    back = world.see(name)
    assert (back.place, back.turn) == (before.place, before.turn)
    assert world.one(queue).id == name


def test_a_key_where_there_are_no_groups_is_invalid(world: World) -> None:
    queue = world.queue()
    (result,) = world.use.tasks.enqueue(queue, [TaskSpec("1", group_key="a")])
    assert result.outcome is EnqueueOutcome.INVALID
    assert result.detail == "group_key has no meaning in queue mail, whose settings have no groups"


def test_groups_may_come_and_go_and_nothing_is_left_behind(world: World) -> None:
    queue = world.queue()
    world.put(queue, *(["1"] * 4))
    settings = world.use.queues.get(queue).settings
    grouped = world.use.queues.replace(queue, replace(settings, groups=FAIR))
    assert grouped.lanes == [0, TURN_LANE, RETURN_LANE]
    world.put(queue, *(["2"] * 4), group_key="a")
    world.use.queues.replace(queue, replace(settings, groups=None))
    world.put(queue, *(["3"] * 4))

    assert len(world.take(queue, 25)) == 12


def test_a_limit_of_tasks_in_flight_holds_beside_groups(world: World) -> None:
    queue = fair(world, dequeuing_settings=DequeuingSettings(max_inflight_tasks=2))
    world.put(queue, *(["1"] * 5), group_key="a")
    taken = world.take(queue, 5)
    assert len(taken) == 2
    assert not world.take(queue)
    for task in taken:
        world.say(task, "SUCCEEDED")
    assert len(world.take(queue, 5)) == 2


def test_several_queues_by_due_time_go_by_due_times_though_one_has_groups(world: World) -> None:
    queue, plain = fair(world), world.queue("plain")
    first = world.put(plain)
    world.clock.forward(1)
    second = world.put(queue, group_key="a")
    world.clock.forward(1)
    third = world.put(plain)

    taken = world.take([queue, plain], 2, order=Order.DUE)
    assert [task.id for task in taken] == [*first, *second]
    assert [task.id for task in world.take([queue, plain], 2, order=Order.DUE)] == third


def test_what_has_expired_goes_though_its_turn_is_late(world: World) -> None:
    queue = fair(world)
    world.put(queue, "1", group_key="a")
    ids = world.put(queue, "2", group_key="a", expires_at=world.clock() + timedelta(seconds=5))
    world.clock.forward(10)
    world.use.reaping.run()
    assert world.see(ids[0]).state is State.DEAD


# -- lists and counts ------------------------------------------------------------


def test_lists_and_counts_go_by_due_times(world: World) -> None:
    queue = fair(world)
    begin = world.clock()
    early = world.put(queue, *(["1"] * 3), group_key="a")
    world.clock.forward(100)
    late = world.put(queue, *(["1"] * 2), group_key="b")
    later = world.put(queue, "1", group_key="a", delay_in_seconds=50)
    world.clock.forward(1)
    list_, count = world.use.inspect.list, world.use.inspect.count

    def found(**where: Any) -> set[str]:
        named = TaskFilter(**where)
        ids = {task.id for task in list_(queue, named).tasks}
        assert count(queue, named).count == len(ids)
        assert ids == {task.id for task in list_(queue, named, descending=True).tasks}
        return ids

    assert found() == {*early, *late, *later}
    assert found(states=("READY",)) == {*early, *late}
    assert found(states=("SCHEDULED",)) == {*later}
    middle = begin + timedelta(seconds=50)
    assert found(scheduled_after=middle) == {*late, *later}
    assert found(scheduled_before=middle) == {*early}
    assert found(states=("READY",), scheduled_after=middle) == {*late}
    assert found(group_key="a") == {*early, *later}
    assert found(group_key="a", states=("READY",)) == {*early}
    assert found(group_key="c") == set()
    assert world.use.stats.of(queue).age_of_oldest_ready == pytest.approx(101, abs=0.01)
    shown = [task.id for task in list_(queue, TaskFilter()).tasks]
    assert shown.index(late[1]) < shown.index(early[2])  # by turn, and then what has none
    assert shown[-1:] == later


def test_bulk_takes_those_of_a_group(world: World) -> None:
    queue = fair(world)
    world.put(queue, *(["1"] * 3), group_key="noisy")
    quiet = world.put(queue, group_key="quiet")
    done = world.use.bulk.by_filter(queue, BulkAction.DELETE, TaskFilter(group_key="noisy"))
    assert done.changed == 3
    assert [task.id for task in world.take(queue, 5)] == quiet


def test_explain_tells_the_turn(world: World) -> None:
    queue = fair(world)
    world.put(queue, *(["1"] * 3), group_key="a")
    (last,) = world.put(queue, group_key="a")
    world.clock.forward(1)
    (reason,) = world.use.explain.reasons(world.see(last))
    assert reason.code == "behind"
    assert reason.detail == ("3 tasks have their turn before it: its turn is 3, delivered is 0")


def test_there_is_no_line_of_a_queue_without_groups(world: World) -> None:
    queue = world.use.queues.get(world.queue())
    with pytest.raises(LookupError):
        world.use.tasks.lines.take(queue, None, ["one"])
    with pytest.raises(NotFound):
        world.use.queues.get("other")


def test_how_far_turns_are_delivered_is_written_at_most_once_a_second(world: World) -> None:
    queue = world.queue("mail", groups=GroupSettings(GroupMode.FAIR))
    world.put(queue, *map(str, range(20)), group_key="a")
    written: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.store, name)

        def note_delivered(self, queue: str, turn: int, **how: Any) -> None:
            written.append(turn)
            world.store.note_delivered(queue, turn, **how)

    process = new_world(Counting(), world.clock)
    for _ in range(15):
        assert len(process.take(queue, 1)) == 1
        world.clock.forward(0.2)
    assert len(written) == 3  # in three seconds; the first turn is where all begin
    assert written == sorted(set(written))
    assert world.store.delivered_turn(queue) == written[-1]
