"""A record that a newer version wrote is refused if this version does not know all its fields."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.domain.filters import NewerRecord
from headrace.domain.schedule import ScheduleSettings
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.runtime.service import Service
from headrace.store.records.queues import build_anew, change_index, index_of
from headrace.store.records.reaper import PARTS, PassCheckpoint, ReaperPart, parts_for
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock

READS: dict[str, tuple[tuple[str, ...], Callable[[Service], object]]] = {
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


# -- passes of the reaper --------------------------------------------------------------------------

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


def left(part: int, parts: int, *, used: float = 0.2, cut: bool = False) -> PassCheckpoint:
    return PassCheckpoint(part, parts, NOW, used, cut)


@pytest.mark.parametrize(
    ("passes", "needed"),
    [
        ([], 1),
        ([left(1, 2)], 1),
        ([left(0, 3), left(1, 3)], 2),
        ([left(0, 2), left(1, 2, cut=True)], PARTS),
        ([left(0, 2, used=0.9), left(1, 2, used=0.6)], 3),
        ([left(0, 2, used=0.01), left(1, 2, used=0.01)], 1),
    ],
)
def test_the_next_pass_is_divided_by_what_the_last_ones_needed(
    passes: list[PassCheckpoint], needed: int
) -> None:
    assert parts_for(passes, NOW) == needed
    assert parts_for(passes, NOW + timedelta(days=1)) == 1


def test_a_part_is_found_in_its_event_and_in_no_timers() -> None:
    part = ReaperPart(1, 2, NOW, NOW + timedelta(minutes=1))

    assert ReaperPart.of(part.event()) == part
    assert ReaperPart.of({"source": "aws.events"}) is None


# -- fields that are indexed -----------------------------------------------------------------------


def test_fields_of_a_queue_are_indexed_and_taken_out_as_they_are_named() -> None:
    store = SqliteStore(":memory:")
    build_anew(store, "mail", NOW)
    change_index(store, "mail", (), NOW)
    assert index_of(store, "mail") is None

    change_index(store, "mail", ("tag:a", "tag:b"), NOW)
    change_index(store, "mail", ("tag:b",), NOW)
    change_index(store, "mail", ("tag:b",), NOW)

    index = index_of(store, "mail")
    assert index is not None
    assert (index.fields, index.gone, index.built) == (("tag:b",), ("tag:a",), False)
    build_anew(store, "mail", NOW)
    again = index_of(store, "mail")
    assert again is not None
    assert (again.fields, again.gone, again.wanted) == ((), ("tag:a", "tag:b"), ("tag:b",))
