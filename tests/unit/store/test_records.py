"""A record that a newer version wrote is refused if this version does not know all its fields."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.domain.filters import NewerRecord
from headrace.domain.schedule import ScheduleSettings
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.runtime.wiring import UseCases
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock

READS: dict[str, tuple[tuple[str, ...], Callable[[UseCases], object]]] = {
    "queue": (("settings", "dequeuing_settings"), lambda use: use.queues.get("mail")),
    "key": ((), lambda use: use.keys.list(BOOTSTRAP, limit=9)),
    "schedule": (("settings",), lambda use: use.schedules.get("mail", "daily")),
}
"""For each kind: the path of an object within the record, and a call that reads the record."""


@pytest.mark.parametrize("kind", READS)
def test_a_field_that_only_a_newer_version_knows_is_refused_at_any_depth(kind: str) -> None:
    store, clock = SqliteStore(":memory:"), ManualClock()
    world = new_world(store, clock)
    world.queue()
    world.use.schedules.put("mail", "daily", ScheduleSettings(cron="0 9 * * 1-5"))
    world.use.keys.create(BOOTSTRAP, name="ops", role=Role.OPERATOR, queues=("mail",))
    path, read = READS[kind]
    read(new_world(store, clock).use)
    ((record, *_), _) = store.records(kind, limit=9)

    for depth in {0, len(path)}:
        body: dict[str, Any] = {**record.body}
        inside = body
        for name in path[:depth]:
            inside[name] = {**inside[name]}
            inside = inside[name]
        inside["newer"] = None
        store.renew_record(replace(record, body=body))
        with pytest.raises(NewerRecord, match=r"newer version .*\bnewer\).*update"):
            read(new_world(store, clock).use)
