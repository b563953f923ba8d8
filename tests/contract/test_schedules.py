"""What every store promises about schedules: run by hand, shown, kept, gone with their queue."""

from dataclasses import replace

import pytest

from headrace.domain.errors import NotFound
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store.records import schedules as schedule_records
from tests.contract.conftest import World
from tests.contract.scheduling import NAME, at, due, minutes, schedule

pytestmark = pytest.mark.gate


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


def test_a_schedule_shows_its_next_and_its_latest_run(world: World) -> None:
    queue = schedule(world, world.queue(), "*/5 * * * *")
    seen = world.use.schedules.get(queue, NAME)
    assert (seen.next_run_at, seen.last_run_at) == (at("08:05:00"), None)

    minutes(world, 11)

    seen = world.use.schedules.get(queue, NAME)
    assert (seen.next_run_at, seen.last_run_at) == (at("08:15:00"), at("08:10:00"))
    (listed,) = world.use.schedules.of_queue(world.use.queues.get(queue))
    assert (listed.schedule.name, listed.next_run_at) == (NAME, at("08:15:00"))


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
