"""A schedule of one second makes every tick, however slow the table is and whoever changes it.

Two services on one clock over one store, each with a scheduler that runs every minute.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from headrace.domain.queue_settings import QueueSettings
from headrace.domain.schedule import ScheduleSettings
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.every_task import everything
from tests.simulation.stage import Stage
from tests.wrapped_store import WrappedStore

_SLOW = {"records", "record", "put_record", "read", "commit", "key_lock", "key_locks"}
_SLOW |= {"set_key_lock", "drop_record"}


@pytest.mark.parametrize("most", [0.1, 0.6])
@pytest.mark.parametrize("puts", [1, 4])
def test_no_tick_is_lost_while_a_schedule_is_put_on_a_slow_table(most: float, puts: int) -> None:
    """The ticks that fall due while the call works are not missed ones."""
    stage, store = Stage(random.Random(puts)), SqliteStore(":memory:")

    def slowly(name: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        slow = name in _SLOW
        stage.sleep(stage.chance.uniform(0, most / 2) if slow else 0)
        answer = call(*given, **named)
        stage.sleep(stage.chance.uniform(0, most / 2) if slow else 0)
        return answer

    slow: Any = WrappedStore(store, slowly)
    services = [build(Settings(admin_key="test"), slow, now=stage.now) for _ in range(2)]
    near = build(Settings(admin_key="test"), store, now=stage.now)
    near.queues.create("mail", QueueSettings())

    def put() -> None:
        for number in range(puts):
            settings = ScheduleSettings(every_seconds=1, payload=str(number))
            services[0].schedules.put("mail", "tick", settings)
            stage.sleep(stage.chance.uniform(20, 100))

    def scheduler(use: Service) -> Callable[[], None]:
        def act() -> None:
            stage.sleep(stage.chance.uniform(1, 60))
            while stage.passed < 300:
                use.ticking.run()
                stage.sleep(60)

        return act

    for act in (put, *map(scheduler, services)):
        stage.add("one", act)
    stage.play()

    anchor = near.schedules.get("mail", "tick").schedule.anchor
    due = sorted(task.due_at for task in everything(store))
    assert len(due) > 250
    assert {later - earlier for earlier, later in pairwise([anchor, *due])} == {
        timedelta(seconds=1)
    }
