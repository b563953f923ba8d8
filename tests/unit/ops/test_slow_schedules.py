"""A schedule of one second makes every tick, however slow the table is and whoever changes it.

Two services on one clock over one store, each with a scheduler that runs every minute.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from headrace.domain.queue import QueueSettings
from headrace.domain.schedule import ScheduleSettings
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.sqlite import SqliteStore
from tests.every_task import everything
from tests.stage import Stage

_SLOW = {"records", "record", "put_record", "read", "commit", "key_lock", "key_locks"}
_SLOW |= {"set_key_lock", "drop_record"}


class SlowStore:
    """A store of which each call takes up to so many seconds."""

    def __init__(self, store: SqliteStore, stage: Stage, most: float) -> None:
        self._store = store
        self._stage = stage
        self._most = most

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in _SLOW:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._wait()
            answer = found(*given, **named)
            self._wait()
            return answer

        return call

    def _wait(self) -> None:
        self._stage.sleep(self._stage.chance.uniform(0, self._most / 2))


@pytest.mark.parametrize("most", [0.1, 0.6])
@pytest.mark.parametrize("puts", [1, 4])
def test_no_tick_is_lost_while_a_schedule_is_put_on_a_slow_table(most: float, puts: int) -> None:
    """The ticks that fall due while the call works are not missed ones."""
    stage, store = Stage(random.Random(puts)), SqliteStore(":memory:")
    slow: Any = SlowStore(store, stage, most)
    services = [build(Settings(admin_key="test"), slow, now=stage.now) for _ in range(2)]
    near = build(Settings(admin_key="test"), store, now=stage.now)
    near.queues.create("mail", QueueSettings())

    def put() -> None:
        for number in range(puts):
            settings = ScheduleSettings(every_seconds=1, payload=str(number))
            services[0].schedules.put("mail", "tick", settings)
            stage.sleep(stage.chance.uniform(20, 100))

    def scheduler(use: UseCases) -> Callable[[], None]:
        def act() -> None:
            stage.sleep(stage.chance.uniform(1, 60))
            while stage.passed < 300:
                use.ticking.run()
                stage.sleep(60)

        return act

    stage.play([put, *map(scheduler, services)])

    anchor = near.schedules.get("mail", "tick").schedule.anchor
    due = sorted(task.due_at for task in everything(store))
    assert len(due) > 250
    assert {later - earlier for earlier, later in pairwise([anchor, *due])} == {
        timedelta(seconds=1)
    }
