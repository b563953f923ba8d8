"""What every store promises when a schedule changes, pauses or goes: nothing lost or doubled."""

from dataclasses import replace

import pytest

from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.operate import BulkAction
from headrace.domain.schedule import ScheduleSettings
from headrace.domain.task import Priority
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store.records import schedules as schedule_records
from tests.contract.conftest import World
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


@pytest.mark.gate
def test_a_change_takes_back_what_is_ahead_and_doubles_nothing(world: World) -> None:
    queue = schedule(world, world.queue(), payload="1")
    world.clock.forward(60)

    schedule(world, queue, "*/2 * * * *", payload="2")

    tasks = [(task.due_at, task.payload) for task in waiting(world, queue)]
    assert tasks == [
        (at("08:01:00"), "1"),  # was due already
        (at("08:02:00"), "2"),
        (at("08:04:00"), "2"),
    ]


def test_a_tick_that_an_operator_ran_early_does_not_run_again_after_a_change(world: World) -> None:
    queue = schedule(world, world.queue(history_retention_in_seconds=0))
    early = id_of_tick(world, queue, at("08:02:00"))
    world.use.bulk.by_ids(queue, BulkAction.RUN, [early])
    world.say(world.one(queue), "SUCCEEDED")

    schedule(world, queue, payload="2")

    assert due(world, queue) == [at("08:01:00"), at("08:03:00")]
    minutes(world, 3)
    assert at("08:02:00") not in due(world, queue)


def test_pausing_and_resuming_at_once_loses_and_doubles_nothing(world: World) -> None:
    queue = schedule(world, world.queue())
    for _ in range(3):
        schedule(world, queue, paused=True)
        schedule(world, queue)
    world.clock.forward(60)
    world.use.ticking.run()

    assert due(world, queue) == [at(f"08:0{minute}:00") for minute in range(1, 5)]


@pytest.mark.parametrize("change", ["put", "pause", "delete"])
def test_a_stale_scheduler_cannot_enqueue_for_settings_that_are_gone(
    world: World, change: str
) -> None:
    queue = schedule(world, world.queue(), payload='"old"')
    world.clock.forward(60)

    def people() -> None:
        if change == "delete":
            world.use.schedules.delete(queue, NAME)
        else:
            schedule(world, queue, payload='"new"', paused=change == "pause")

    interposed(world, before_commit=people).run()
    world.use.ticking.run()

    ahead = [task for task in waiting(world, queue) if task.due_at > world.clock()]
    assert [task.payload for task in ahead] == (['"new"'] * 3 if change == "put" else [])


@pytest.mark.gate
def test_run_enqueues_one_now_and_is_the_latest_run(world: World) -> None:
    queue = schedule(world, world.queue(), "0 0 * * *", payload='"x"', paused=True)
    world.clock.forward(5)

    result = world.use.schedules.run(queue, NAME)

    assert result.outcome is EnqueueOutcome.CREATED
    task = world.one(queue)
    assert (task.id, task.payload, task.schedule) == (result.id, '"x"', NAME)
    assert world.use.schedules.get(queue, NAME).last_run_at == at("08:00:05")
    with pytest.raises(NotFound):
        world.use.schedules.run(queue, "another")


@pytest.mark.gate
def test_a_deleted_queue_takes_its_schedules_with_it(world: World) -> None:
    queue = schedule(world, world.queue())
    other = schedule(world, world.queue("mail.other"))
    schedule_records.drop_all(world.store, queue)
    world.use.queues.delete(queue)

    world.queue()

    assert world.use.schedules.of_queue(world.use.queues.get(queue)) == []
    world.use.ticking.run()
    assert due(world, queue) == []
    assert len(due(world, other)) == 3


@pytest.mark.gate
def test_a_schedule_that_cannot_be_read_does_not_hold_up_the_others(world: World) -> None:
    queue = schedule(world, world.queue("a"))
    record = world.store.record(schedule_records.KIND, f"{queue}/{NAME}")
    assert record is not None
    settings = {**record.body["settings"], "timezone": "Atlantis/Capital"}
    broken = replace(record, body={**record.body, "settings": settings}, version=2)
    world.store.put_record(broken, replaces=1)
    schedule(world, world.queue("b"))
    world.clock.forward(60)

    ticked = world.use.ticking.run()

    assert (ticked.schedules, ticked.enqueued, ticked.unreadable) == (2, 1, 1)


def test_a_schedule_that_could_not_work_is_refused(world: World) -> None:
    queue = world.queue()
    world.queue("strict", groups=GroupSettings(GroupMode.STRICT))
    settings = ScheduleSettings(cron="* * * * *")
    for place, name, given, field in (
        (queue, "no name", settings, "name"),
        ("strict", "a", settings, "queue"),
        (queue, "a", replace(settings, priority=Priority.HIGH), "priority"),
    ):
        with pytest.raises(InvalidRequest, match=field):
            world.use.schedules.put(place, name, given)


def test_a_run_whose_task_has_moved_on_is_shown_without_it(world: World) -> None:
    queue, other = schedule(world, world.queue()), world.queue("other")
    world.clock.forward(1)
    world.use.schedules.run(queue, NAME)
    (seen,) = world.use.schedules.of_queue(world.use.queues.get(queue))
    run = world.use.schedules.last_run(seen.schedule)
    assert run is not None
    assert run.task is not None
    world.say(world.one(queue), "MOVED", to_queue=other)

    moved = world.use.schedules.last_run(seen.schedule)
    assert moved is not None
    assert (moved.by_hand, moved.task) == (True, None)
