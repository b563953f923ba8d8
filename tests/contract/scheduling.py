"""A schedule to test, its tasks, and schedulers that are interrupted when told."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from headrace.domain.filters import TaskFilter
from headrace.domain.schedule import ScheduleSettings, tick_id
from headrace.domain.task import Task
from headrace.ops.scheduling.ticking import Ticking
from tests.contract.conftest import World, hooked

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


def id_of_tick(world: World, queue: str, tick: datetime) -> str:
    """Return the usual id of the task of a tick."""
    return tick_id(world.use.derived_ids.secret.value(), queue, NAME, tick)


def minutes(world: World, count: int) -> int:
    """Let the scheduler run once a minute; return how many ticks it enqueued."""
    made = 0
    for _ in range(count):
        world.clock.forward(60)
        made += world.use.ticking.run().enqueued
    return made


def interposed(world: World, **hooks: Callable[[], object]) -> Ticking:
    """Return another scheduler, in whose calls ``before_…`` and ``after_…`` happen once."""
    return hooked(world, **hooks).use.ticking
