"""What every store promises about schedules: each tick makes one task, and only one."""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest

from headrace.domain.errors import NotFound, Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.schedule import GRACE, LOOK_AHEAD, ScheduleSettings, tick_id
from headrace.domain.task import State, Task
from headrace.domain.ticks import cron_ticks, zone
from headrace.ops import schedule_body
from headrace.ops.tasks import EnqueueOutcome
from headrace.ops.ticking import Ticking
from headrace.runtime.cron import read_cron
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Store
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

NAME = "report"


def schedule(world: World, queue: str, cron: str | None = "* * * * *", **settings: Any) -> str:
    """Make a schedule and return its queue."""
    if settings.get("every_seconds"):
        cron = None
    world.use.schedules.put(queue, NAME, ScheduleSettings(cron=cron, **settings))
    return queue


def waiting(world: World, queue: str) -> list[Task]:
    page = world.use.inspect.list(queue, TaskFilter(states=("ENQUEUED",)), payload=True, limit=250)
    return list(page.tasks)


def due(world: World, queue: str) -> list[datetime]:
    return [task.due_at for task in waiting(world, queue)]


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-21T{text}Z")


def minutes(world: World, count: int) -> int:
    """Let the scheduler run once a minute; return how many ticks it enqueued."""
    made = 0
    for _ in range(count):
        world.clock.forward(60)
        made += world.use.ticking.run().enqueued
    return made


@dataclass
class Interposed:
    """A store that lets a test happen just before or after one kind of call."""

    store: Store
    before: dict[str, Callable[[], object]]
    after: dict[str, Callable[[], object]]

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self.store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.before.pop(name, lambda: None)()
            answer = inner(*args, **kwargs)
            self.after.pop(name, lambda: None)()
            return answer

        return call


def interposed(world: World, **hooks: Callable[[], object]) -> Ticking:
    """Return another scheduler, in whose calls ``before_…`` and ``after_…`` happen once."""
    before = {name[7:]: hook for name, hook in hooks.items() if name.startswith("before_")}
    after = {name[6:]: hook for name, hook in hooks.items() if name.startswith("after_")}
    store: Any = Interposed(world.store, before, after)
    return new_world(store, world.clock).use.ticking


def dies() -> None:
    raise Unavailable("the process ends here")


def test_ticks_are_enqueued_minutes_ahead_with_their_exact_time(world: World) -> None:
    queue = world.queue()
    world.clock.forward(12.5)

    schedule(world, queue, payload='{"city": "Murcia"}', tags={"service": "smartcity"})

    assert due(world, queue) == [at("08:01:00"), at("08:02:00"), at("08:03:00")]
    task = waiting(world, queue)[0]
    assert (task.payload, task.tags) == ('{"city": "Murcia"}', {"service": "smartcity"})
    assert (task.schedule, task.id) == (NAME, tick_id(queue, NAME, at("08:01:00")))
    assert world.take(queue) == ()
    assert minutes(world, 1) == 1
    assert world.one(queue).due_at == at("08:01:00")


def test_the_tasks_of_a_schedule_have_what_it_says(world: World) -> None:
    queue = world.queue(expires_in_seconds=0)
    retry = RetryStrategy(Backoff.FIXED, max_retries=1, base_seconds=5)

    schedule(
        world,
        queue,
        expires_in_seconds=90,
        keepalive_timeout_in_seconds=7,
        retry_strategy=retry,
        dedupe_key="k",
    )

    (task,) = waiting(world, queue)
    assert task.expires_at == at("08:02:30")
    assert (task.keepalive, task.retry, task.dedupe_key) == (7, retry, "k")


@pytest.mark.parametrize("seconds", [None, 0])
def test_a_schedule_may_leave_the_expiry_to_the_queue_or_ask_for_none(
    world: World, seconds: int | None
) -> None:
    queue = world.queue(expires_in_seconds=100)

    schedule(world, queue, expires_in_seconds=seconds)
    run = world.use.schedules.run(queue, NAME).task

    ticked = waiting(world, queue)[-1]
    assert run is not None
    expected = [None, None] if seconds == 0 else [at("08:01:40"), at("08:04:40")]
    assert [run.expires_at, ticked.expires_at] == expected


def test_a_tick_is_enqueued_once_however_often_the_scheduler_runs(world: World) -> None:
    queue = schedule(world, world.queue())

    assert [world.use.ticking.run().enqueued for _ in range(3)] == [0, 0, 0]

    assert len(waiting(world, queue)) == 3


def test_a_tick_that_ran_and_left_nothing_behind_is_not_enqueued_again(world: World) -> None:
    queue = schedule(world, world.queue(history_retention_in_seconds=0))
    world.clock.forward(60)
    world.say(world.one(queue), "SUCCEEDED")

    made = [world.use.ticking.run().enqueued for _ in range(2)]

    assert made == [1, 0]
    assert due(world, queue) == [at("08:02:00"), at("08:03:00"), at("08:04:00")]


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_what_an_operator_removed_does_not_come_back(world: World, how: str) -> None:
    queue = schedule(world, world.queue())
    if how == "purge":
        world.use.queues.purge(queue, (State.ENQUEUED,))
    else:
        ids = [task.id for task in waiting(world, queue)]
        world.use.bulk.by_ids(queue, BulkAction.DELETE, ids)

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
    assert ran.count(tick_id(queue, NAME, at("08:04:00"))) == 1
    assert due(world, queue) == [at("08:05:00"), at("08:06:00"), at("08:07:00")]


def test_missed_ticks_are_skipped_save_the_newest_within_a_minute(world: World) -> None:
    queue = schedule(world, world.queue(), every_seconds=20)
    world.clock.forward(600 + 15)  # nobody has looked for ten minutes

    world.use.ticking.run()

    late = [task for task in waiting(world, queue) if task.created_at == world.clock()]
    assert late[0].due_at == world.clock()
    assert late[0].id == tick_id(queue, NAME, at("08:10:00"))
    assert [task.due_at for task in late[1:3]] == [at("08:10:20"), at("08:10:40")]


def test_a_tick_missed_by_more_than_a_minute_is_gone(world: World) -> None:
    queue = schedule(world, world.queue(), "0 * * * *")
    world.clock.forward(3600 + 61)

    assert world.use.ticking.run().enqueued == 0
    assert due(world, queue) == []
    assert world.use.schedules.get(queue, NAME).last_run_at is None


def test_what_was_due_before_the_schedule_was_made_is_not_missed(world: World) -> None:
    queue = world.queue()
    world.clock.forward(20)

    schedule(world, queue, "0 * * * *")

    assert due(world, queue) == []
    assert world.use.ticking.run().enqueued == 0


def test_an_interval_counts_from_when_it_was_set(world: World) -> None:
    queue = world.queue()
    world.clock.forward(7.25)
    schedule(world, queue, every_seconds=90)
    world.clock.forward(30)

    schedule(world, queue, every_seconds=90, payload="2")  # keeps its beat
    assert due(world, queue) == [at("08:01:37.250"), at("08:03:07.250")]

    schedule(world, queue, every_seconds=100)
    assert due(world, queue) == [at("08:02:17.250")]


def test_an_interval_of_a_second_is_kept_to_the_second(world: World) -> None:
    queue = schedule(world, world.queue(), every_seconds=1)

    minutes(world, 1)

    expected = [world.clock.time + timedelta(seconds=number - 60) for number in range(1, 241)]
    assert due(world, queue) == expected


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
    early = tick_id(queue, NAME, at("08:02:00"))
    world.use.bulk.by_ids(queue, BulkAction.RUN, [early])
    world.say(world.one(queue), "SUCCEEDED")

    schedule(world, queue, payload="2")

    assert due(world, queue) == [at("08:01:00"), at("08:03:00")]
    minutes(world, 3)
    assert at("08:02:00") not in due(world, queue)


def test_the_same_settings_again_change_nothing(world: World) -> None:
    queue = schedule(world, world.queue(), payload="1")
    before = world.use.schedules.get(queue, NAME)

    schedule(world, queue, payload="1")

    assert world.use.schedules.get(queue, NAME) == before
    assert [task.version for task in waiting(world, queue)] == [1, 1, 1]


def test_a_paused_schedule_has_no_ticks_and_catches_up_on_none(world: World) -> None:
    queue = schedule(world, world.queue())

    schedule(world, queue, paused=True)

    assert due(world, queue) == []
    assert minutes(world, 3) == 0
    assert world.use.schedules.get(queue, NAME).next_run_at is None
    schedule(world, queue)
    assert due(world, queue) == [at("08:04:00"), at("08:05:00"), at("08:06:00")]


def test_pausing_and_resuming_at_once_loses_and_doubles_nothing(world: World) -> None:
    queue = schedule(world, world.queue())
    for _ in range(3):
        schedule(world, queue, paused=True)
        schedule(world, queue)
    world.clock.forward(60)
    world.use.ticking.run()

    assert due(world, queue) == [at(f"08:0{minute}:00") for minute in range(1, 5)]


def test_deleting_takes_back_what_is_ahead(world: World) -> None:
    queue = schedule(world, world.queue())
    world.clock.forward(60)

    world.use.schedules.delete(queue, NAME)

    assert due(world, queue) == [at("08:01:00")]
    assert world.store.marks(schedule_body.PROGRESS) == {}
    assert minutes(world, 1) == 0
    with pytest.raises(NotFound, match="no schedule"):
        world.use.schedules.get(queue, NAME)
    with pytest.raises(NotFound, match="no schedule"):
        world.use.schedules.delete(queue, NAME)


def test_a_schedule_made_again_after_deletion_goes_on_where_it_is(world: World) -> None:
    queue = schedule(world, world.queue())
    world.clock.forward(60)
    world.use.schedules.delete(queue, NAME)

    schedule(world, queue)

    assert due(world, queue) == [at(f"08:0{minute}:00") for minute in range(1, 5)]


@pytest.mark.parametrize("moment", ["before_commit", "before_records", "after_records"])
@pytest.mark.parametrize("change", ["put", "pause", "delete"])
def test_a_stale_scheduler_cannot_enqueue_for_settings_that_are_gone(
    world: World, change: str, moment: str
) -> None:
    queue = schedule(world, world.queue(), payload='"old"')
    world.clock.forward(60)

    def people() -> None:
        if change == "delete":
            world.use.schedules.delete(queue, NAME)
        else:
            schedule(world, queue, payload='"new"', paused=change == "pause")

    interposed(world, **{moment: people}).run()
    world.use.ticking.run()

    ahead = [task for task in waiting(world, queue) if task.due_at > world.clock()]
    assert [task.payload for task in ahead] == (['"new"'] * 3 if change == "put" else [])


@pytest.mark.parametrize("moment", ["after_put_record", "before_set_mark", "after_set_mark"])
def test_a_change_that_was_cut_off_is_settled_by_the_scheduler(world: World, moment: str) -> None:
    queue = schedule(world, world.queue(), payload='"old"')
    ticking = interposed(world, **({moment: dies} if "mark" in moment else {}))
    schedules = replace_ticking(world, ticking)
    if moment == "after_put_record":
        other: Any = Interposed(world.store, {}, {"put_record": dies})
        schedules = replace(schedules, store=other)

    with pytest.raises(Unavailable):
        schedules.put(queue, NAME, ScheduleSettings(cron="*/2 * * * *", payload='"new"'))
    world.use.ticking.run()

    tasks = [(task.due_at, task.payload) for task in waiting(world, queue)]
    assert tasks == [(at("08:02:00"), '"new"')]


def replace_ticking(world: World, ticking: Ticking) -> Any:
    return replace(world.use.schedules, ticking=ticking)


def test_a_deletion_that_was_cut_off_is_settled_by_the_scheduler(world: World) -> None:
    queue = schedule(world, world.queue())
    other: Any = Interposed(world.store, {}, {"drop_record": dies})
    with pytest.raises(Unavailable):
        replace(world.use.schedules, store=other).delete(queue, NAME)

    world.use.ticking.run()

    assert due(world, queue) == []
    assert world.store.marks(schedule_body.PROGRESS) == {}


def test_a_tick_whose_dedupe_key_is_held_waits_until_it_is_missed(world: World) -> None:
    queue = schedule(world, world.queue(), dedupe_key="one at a time")
    assert due(world, queue) == [at("08:01:00")]  # it lives, so the next ones cannot
    minutes(world, 1)
    running = world.one(queue, keepalive=3600)
    assert minutes(world, 3) == 0
    world.say(running, "SUCCEEDED")
    world.clock.forward(30)

    assert world.use.ticking.run().enqueued == 1

    assert waiting(world, queue)[0].id == tick_id(queue, NAME, at("08:04:00"))


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


def test_run_answers_duplicate_while_the_key_is_held(world: World) -> None:
    queue = schedule(world, world.queue(), "0 0 * * *", dedupe_key="k")
    first = world.use.schedules.run(queue, NAME)

    again = world.use.schedules.run(queue, NAME)

    assert (again.outcome, again.id) == (EnqueueOutcome.DUPLICATE, first.id)


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
    schedule_body.drop_all(world.store, queue)
    world.use.queues.delete(queue)

    world.queue()

    assert world.use.schedules.of_queue(world.use.queues.get(queue)) == []
    world.use.ticking.run()
    assert due(world, queue) == []
    assert len(due(world, other)) == 3


def test_a_schedule_left_behind_by_a_deleted_queue_is_dead(world: World) -> None:
    queue = schedule(world, world.queue())
    record = world.store.record(schedule_body.KIND, f"{queue}/{NAME}")
    world.use.queues.delete(queue)
    assert record is not None
    world.clock.forward(30)
    world.queue()
    world.store.put_record(record, replaces=None)  # as if its deletion had been cut off

    assert world.use.ticking.run().enqueued == 0
    assert world.use.schedules.of_queue(world.use.queues.get(queue)) == []
    with pytest.raises(NotFound):
        world.use.schedules.get(queue, NAME)
    schedule(world, queue)
    assert due(world, queue) == [at("08:01:00"), at("08:02:00"), at("08:03:00")]


def test_a_schedule_that_cannot_be_read_does_not_hold_up_the_others(world: World) -> None:
    queue = schedule(world, world.queue("a"))
    record = world.store.record(schedule_body.KIND, f"{queue}/{NAME}")
    assert record is not None
    settings = {**record.body["settings"], "timezone": "Atlantis/Capital"}
    broken = replace(record, body={**record.body, "settings": settings}, version=2)
    world.store.put_record(broken, replaces=1)
    schedule(world, world.queue("b"))
    world.clock.forward(60)

    ticked = world.use.ticking.run()

    assert (ticked.schedules, ticked.enqueued, ticked.unreadable) == (2, 1, 1)


def test_a_large_payload_full_of_quotes_is_kept(world: World) -> None:
    payload = "[" + ",".join(['"\\""'] * 40_000) + "]"

    queue = schedule(world, world.queue(), "0 0 * * *", payload=payload)

    assert world.use.schedules.get(queue, NAME).schedule.settings.payload == payload


# ------------------------------------------------------------------------- many at once, for long


@dataclass
class Wall:
    """A clock that the test moves, there and back; it stands still while schedulers run."""

    clock: ManualClock
    chance: random.Random
    jumped: float = 0.0

    def moments(self, hours: float) -> Iterator[datetime]:
        """Give the times at which the scheduler is started, for so many hours."""
        until = self.clock() + timedelta(hours=hours)
        while self.clock() - timedelta(seconds=self.jumped) < until:
            yield self.clock()
            self.clock.forward(self.chance.choice([0, 1, 60, 60, 61, 130, 170]))
            jump = self.chance.choice([0] * 100 + [7200, 600, 150, 30, -30, -150, -600, -7200])
            if abs(self.jumped + jump) < 9000:
                self.jumped += jump
                self.clock.forward(jump)


def wanted_by(moments: list[datetime], ticks: list[datetime]) -> set[datetime]:
    """Return the ticks that must have been enqueued by schedulers run at these moments."""
    wanted: set[datetime] = set()
    for now in moments:
        near = ticks[bisect_right(ticks, now - GRACE) : bisect_right(ticks, now + LOOK_AHEAD)]
        missed = [tick for tick in near if tick <= now]
        wanted |= {*(tick for tick in near if tick > now), *missed[-1:]}
    return wanted


def run_many(store: Store, hours: float, cron: str, seed: int) -> tuple[list[str], set[datetime]]:
    """Let four schedulers run at once beside a worker that leaves nothing behind.

    Return the ids of the tasks that ran, and the ticks that were to run.
    """
    clock = ManualClock()
    world = new_world(store, clock)
    queue = world.queue(history_retention_in_seconds=0, expires_in_seconds=0)
    schedule(world, queue, cron, timezone="Europe/Madrid")
    others = [build(Settings(), store, now=clock).ticking for _ in range(4)]
    began, moments, ran = clock(), [clock()], []
    wall = Wall(clock, random.Random(seed))

    def work() -> None:
        for task in world.use.deliveries.dequeue(queue, batch_size=25, worker="w").tasks:
            world.say(task, "SUCCEEDED")
            ran.append(task.id)

    with ThreadPoolExecutor(5) as pool:
        for now in wall.moments(hours):
            moments.append(now)
            jobs = [pool.submit(one.run) for one in others] + [pool.submit(work)]
            for job in jobs:
                job.result()
    clock.time = max(moments) + timedelta(minutes=10)
    for _ in range(20):
        work()
    stop = max(moments) + LOOK_AHEAD
    local = cron_ticks(read_cron(cron), zone("Europe/Madrid"), began)
    ticks = list(takewhile(lambda tick: tick <= stop, local))
    return ran, wanted_by(moments, ticks)


def check_each_once(ran: list[str], wanted: set[datetime]) -> None:
    assert len(ran) == len(set(ran))
    assert set(ran) == {tick_id("mail", NAME, tick) for tick in wanted}


@pytest.mark.slow
def test_four_schedulers_at_once_for_five_hundred_hours_make_each_tick_once() -> None:
    ran, wanted = run_many(MemoryStore(), 500, "*/7 * * * *", seed=1)

    check_each_once(ran, wanted)
    assert len(wanted) > 3000


def test_four_schedulers_at_once_make_each_tick_once(store: Store) -> None:
    ran, wanted = run_many(store, 2, "*/2 * * * *", seed=3)

    check_each_once(ran, wanted)
    assert len(wanted) > 25
