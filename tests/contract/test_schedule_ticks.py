"""What every store promises about ticks: each makes one task, and only one."""

from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.schedule import Missed
from headrace.domain.task import DeadReason, OnExpiry, State
from headrace.ops.tasks.enqueue import EnqueueOutcome
from tests.contract.conftest import World, dies, overtaken
from tests.contract.scheduling import (
    NAME,
    at,
    due,
    id_of_tick,
    interposed,
    minutes,
    schedule,
    waiting,
)
from tests.contract.test_dedupe import with_fickle_key


@pytest.mark.gate
def test_ticks_are_enqueued_minutes_ahead_with_their_exact_time(world: World) -> None:
    queue = world.queue()
    world.clock.forward(12.5)
    retry = RetryStrategy(Backoff.FIXED, max_retries=1, base_seconds=5)
    named: dict[str, Any] = {"tags": {"service": "smartcity"}, "payload": '{"city": "Murcia"}'}
    schedule(
        world,
        queue,
        expires_in_seconds=90,
        keepalive_timeout_in_seconds=7,
        retry_strategy=retry,
        **named,
    )
    assert due(world, queue) == [at("08:01:00"), at("08:02:00"), at("08:03:00")]
    task = waiting(world, queue)[0]
    assert {"tags": task.tags, "payload": task.payload} == named
    assert (task.keepalive, task.retry, task.expires_at) == (7, retry, at("08:02:30"))
    assert (task.schedule, task.id) == (NAME, id_of_tick(world, queue, at("08:01:00")))
    assert world.take(queue) == ()
    assert minutes(world, 1) == 1
    assert world.one(queue).due_at == at("08:01:00")


def test_what_an_operator_removed_does_not_come_back(world: World) -> None:
    queue = schedule(world, world.queue())
    world.use.queues.purge(queue, (State.ENQUEUED,))

    world.use.ticking.run()
    schedule(world, queue, payload="2")

    assert waiting(world, queue) == []


def test_a_scheduler_that_stalls_before_its_write_makes_nothing_twice(world: World) -> None:
    """Another one enqueues the tick, which runs and leaves nothing behind meanwhile."""
    queue = schedule(world, world.queue(history_retention_in_seconds=0))
    world.clock.forward(240)  # the newest missed tick is due at once

    def others() -> None:
        world.use.ticking.run()
        for task in world.take(queue, 25):
            world.say(task, "SUCCEEDED")

    made = interposed(world, before_commit=others).run().enqueued

    assert made == 0
    assert due(world, queue) == [at("08:05:00"), at("08:06:00"), at("08:07:00")]


@pytest.mark.parametrize("when", ["before_commit", "after_commit"])
def test_a_scheduler_that_dies_in_the_middle_loses_and_doubles_nothing(
    world: World, when: str
) -> None:
    queue = schedule(world, world.queue(history_retention_in_seconds=0))
    world.clock.forward(240)
    with pytest.raises(Unavailable):
        interposed(world, **{when: dies}).run()
    tasks = world.take(queue, 25)
    for task in tasks:
        world.say(task, "SUCCEEDED")

    world.use.ticking.run()

    ran = [task.id for task in tasks]

    ran += [task.id for task in world.take(queue, 25)]
    assert ran.count(id_of_tick(world, queue, at("08:04:00"))) == 1
    assert due(world, queue) == [at("08:05:00"), at("08:06:00"), at("08:07:00")]


def test_of_missed_ticks_the_newest_is_made_up_for(world: World) -> None:
    queue = schedule(world, world.queue(), every_seconds=20)
    world.clock.forward(600 + 15)  # nobody has looked for ten minutes

    world.use.ticking.run()

    late = [task for task in waiting(world, queue) if task.created_at == world.clock()]
    assert late[0].id == id_of_tick(world, queue, at("08:10:00"))
    assert [task.due_at for task in late[:3]] == [at("08:10:00"), at("08:10:20"), at("08:10:40")]


def test_a_late_tick_has_its_own_time_and_its_turn(world: World) -> None:
    queue = schedule(world, world.queue(), expires_in_seconds=90)
    world.use.queues.purge(queue, (State.ENQUEUED,))
    world.clock.forward(240 + 30)
    (other,) = world.put(queue)
    world.clock.forward(16.5)

    world.use.ticking.run()

    assert [task.id for task in world.take(queue, 2)] == [
        id_of_tick(world, queue, at("08:04:00")),
        other,
    ]
    task = world.see(id_of_tick(world, queue, at("08:04:00")))
    assert (task.due_at, task.expires_at) == (at("08:04:00"), at("08:05:30"))
    assert task.created_at == at("08:04:46.500")
    assert world.use.schedules.get(queue, NAME).last_run_at == at("08:04:00")


def test_a_tick_that_comes_after_its_expiry_is_a_dead_letter(world: World) -> None:
    queue = schedule(world, world.queue(), "*/10 * * * *", expires_in_seconds=30, dedupe_key="k")
    world.clock.forward(600 + 45)

    assert world.use.ticking.run().enqueued == 1
    assert world.take(queue) == ()
    world.use.reaping.run()

    task = world.see(id_of_tick(world, queue, at("08:10:00")))
    assert (task.state, task.dead_reason) == (State.DEAD, DeadReason.EXPIRED)
    assert (task.due_at, task.expires_at) == (at("08:10:00"), at("08:10:30"))
    assert world.use.ticking.run().enqueued == 0
    # It holds no key.
    assert world.use.schedules.run(queue, NAME).outcome is EnqueueOutcome.CREATED


def test_a_schedule_without_an_expiry_overrides_that_of_its_queue(world: World) -> None:
    queue = world.queue(expires_in_seconds=60)
    schedule(world, queue, "*/10 * * * *", expires_in_seconds=0)
    world.clock.forward(600)
    world.use.ticking.run()

    assert world.see(id_of_tick(world, queue, at("08:10:00"))).expires_at is None


@pytest.mark.parametrize(
    ("missed", "made"),
    [
        ("skip", []),
        ("latest", ["11:00:00"]),
        ("all", ["09:00:00", "10:00:00", "11:00:00"]),
    ],
)
def test_a_schedule_says_which_missed_ticks_are_made_up_for(
    world: World, missed: str, made: list[str]
) -> None:
    queue = schedule(world, world.queue(), "0 * * * *", missed=Missed(missed))
    world.clock.forward(3 * 3600 + 1800)

    assert world.use.ticking.run().enqueued == len(made)

    assert due(world, queue) == [at(one) for one in made]
    last = world.use.schedules.get(queue, NAME).last_run_at
    assert last == (at(made[-1]) if made else None)
    assert world.use.ticking.run().enqueued == 0


def test_missed_ticks_are_looked_for_in_the_last_24_hours(world: World) -> None:
    queue = world.queue(expires_in_seconds=0)
    schedule(world, queue, "30 * * * *", missed=Missed.ALL)
    world.clock.forward(50 * 3600)

    assert world.use.ticking.run().enqueued == 24
    assert due(world, queue)[0] > world.clock() - timedelta(hours=24)


def test_of_all_missed_ticks_the_newest_hundred_are_made_once(world: World) -> None:
    queue = schedule(world, world.queue(), every_seconds=10, missed=Missed.ALL)
    world.clock.forward(7200 + 5)
    newest = world.clock() - timedelta(seconds=5)

    world.use.ticking.run()

    late = [one for one in due(world, queue) if at("08:03:00") < one <= newest]
    assert late == [newest - timedelta(seconds=10 * number) for number in range(99, -1, -1)]
    for _ in range(5):
        for task in world.take(queue, 25):
            world.say(task, "SUCCEEDED")
    before = len(due(world, queue))
    assert world.use.ticking.run().enqueued == 0  # the older ones are given up
    assert len(due(world, queue)) == before


def test_of_missed_ticks_with_a_dedupe_key_the_first_is_made(world: World) -> None:
    queue = schedule(world, world.queue(), dedupe_key="k", missed=Missed.ALL)
    minutes(world, 1)
    world.say(world.one(queue), "SUCCEEDED")
    world.use.queues.purge(queue, (State.ENQUEUED,))
    world.clock.forward(600 + 5)

    assert world.use.ticking.run().enqueued == 1
    (late,) = waiting(world, queue)
    assert late.due_at < world.clock() - timedelta(minutes=8)
    world.say(world.one(queue), "SUCCEEDED")
    world.use.ticking.run()

    assert all(one > world.clock() for one in due(world, queue))


def test_nothing_is_missed_while_a_schedule_is_paused(world: World) -> None:
    queue = schedule(world, world.queue(), missed=Missed.ALL, paused=True)
    world.clock.forward(600 + 5)
    schedule(world, queue, missed=Missed.ALL)

    assert min(due(world, queue)) > world.clock()


def test_a_tick_that_expires_before_its_delivery_is_dropped_if_its_schedule_says_so(
    world: World,
) -> None:
    queue = schedule(
        world,
        world.queue(),
        "*/10 * * * *",
        expires_in_seconds=30,
        dedupe_key="k",
        on_expiry=OnExpiry.DROP,
    )
    world.clock.forward(600 + 45)
    assert world.use.ticking.run().enqueued == 1

    assert world.use.reaping.run().expired == 1

    assert world.store.read([id_of_tick(world, queue, at("08:10:00"))]) == {}
    assert world.use.inspect.count(queue).count == 0
    assert world.use.ticking.run().enqueued == 0
    assert world.use.schedules.run(queue, NAME).outcome is EnqueueOutcome.CREATED


def test_a_tick_that_was_delivered_and_a_run_by_hand_are_not_dropped(world: World) -> None:
    queue = schedule(world, world.queue(), expires_in_seconds=90, on_expiry=OnExpiry.DROP)
    minutes(world, 1)
    task = world.one(queue)
    world.say(task, "RELEASED")
    by_hand = world.use.schedules.run(queue, NAME).id
    world.clock.forward(100)

    world.use.reaping.run()

    for task_id in (task.id, str(by_hand)):
        seen = world.see(task_id)
        assert (seen.state, seen.dead_reason) == (State.DEAD, DeadReason.EXPIRED)


def test_a_tick_whose_dedupe_key_is_held_is_tried_for_a_minute(world: World) -> None:
    queue = schedule(world, world.queue(), dedupe_key="one at a time")
    assert due(world, queue) == [at("08:01:00")]  # it lives, so the next ones cannot
    minutes(world, 1)
    running = world.one(queue, keepalive=3600)
    assert minutes(world, 3) == 0
    world.say(running, "SUCCEEDED")
    world.clock.forward(30)

    assert world.use.ticking.run().enqueued == 1

    assert waiting(world, queue)[0].id == id_of_tick(world, queue, at("08:04:00"))


def take_id(world: World, task_id: str, queue: str) -> None:
    (result,) = world.use.tasks.enqueue(queue, [TaskSpec("{}", id=task_id)])
    assert result.outcome is EnqueueOutcome.CREATED


@pytest.mark.gate
def test_a_tick_whose_id_another_task_holds_is_made_once_under_another_id(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    queue, other = schedule(world, world.queue()), world.queue("other")
    seen = waiting(world, queue)
    world.use.schedules.delete(queue, NAME)  # its ticks go, and their ids are known
    for task in seen:
        take_id(world, task.id, other)
    taken = {task.id for task in seen}

    schedule(world, queue, payload="2")
    minutes(world, 3)

    made = [task for task in waiting(world, queue) if task.schedule == NAME]
    assert [task.due_at for task in made][:3] == [task.due_at for task in seen]
    assert not taken & {task.id for task in made}
    assert len(made) == 6
    assert f"has the id of a tick of schedule {NAME}" in caplog.text
    last = world.use.schedules.last_run(world.use.schedules.get(queue, NAME).schedule)
    assert last is not None
    assert last.task is not None
    assert last.task.id == made[2].id


def test_a_run_by_hand_whose_key_keeps_changing_hands_is_unavailable(world: World) -> None:
    queue = schedule(world, world.queue(), dedupe_key="k")
    world.use.queues.purge(queue, (State.ENQUEUED,))
    other = with_fickle_key(world, queue)
    with pytest.raises(Unavailable, match="the dedupe key keeps changing hands"):
        other.use.schedules.run(queue, NAME)


def test_a_schedule_that_too_many_run_while_it_is_changed_is_unavailable(world: World) -> None:
    queue = schedule(world, world.queue())

    def runs() -> None:
        world.clock.forward(1)
        world.use.schedules.run(queue, NAME)

    other = overtaken(world, "set_key_lock", runs)
    with pytest.raises(Unavailable, match="is being changed by too many at once"):
        schedule(other, queue, payload='"mine"')
