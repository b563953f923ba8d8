"""Records of the control table come back as they were, and say so if they are too new to read."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from headrace.domain.access import Former, Role, ShownKey, StoredKey
from headrace.domain.filters import NewerRecord, TaskFilter
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.domain.queue import (
    DeadLetterConfig,
    DequeuingSettings,
    IntervalUnit,
    PrioritySettings,
    Queue,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.schedule import Schedule, ScheduleSettings
from headrace.domain.task import Priority, State
from headrace.domain.worker import Command, LiveWorker, WorkerHeartbeat
from headrace.store.base import Record
from headrace.store.records import (
    keys,
    queues,
    schedules,
    selections,
    workers,
)
from headrace.store.records.actions import ActionPart, ActionRun

EARLY: Final = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
LATE: Final = datetime(2026, 11, 22, 9, 30, 15, 250_000, tzinfo=UTC)
QUEUE: Final = Queue(
    name="mail",
    settings=QueueSettings(
        description="letters",
        keepalive_timeout_in_seconds=45,
        expires_in_seconds=0,
        retry_strategy=RetryStrategy(Backoff.INTERVALS, 3, 20, 3600, 0, (1, 2.5, 60)),
        dequeuing_settings=DequeuingSettings(
            16, RateLimiting(50, 1, IntervalUnit.MINUTES), dequeuing_paused=True
        ),
        dead_letter_queue_config=DeadLetterConfig(
            enable=True, retention_period_in_seconds=86400.5, max_size=100
        ),
        history_retention_in_seconds=0,
        shards=2,
        priority=PrioritySettings(60),
    ),
    created_at=EARLY,
    updated_at=LATE,
    version=7,
    resume_at=LATE,
    shards_in_use=4,
    drained=frozenset({State.DEAD, State.SUCCEEDED}),
    resharded_at=EARLY,
    shards_ever=8,
    uncounted_since=LATE,
    lanes_in_use=frozenset({0, 1, 2}),
    lanes_ever=frozenset({0, 1, 2, 3}),
)
KEY: Final = StoredKey(
    ShownKey(
        "key_0123456789abcdef0123",
        "ops",
        Role.OPERATOR,
        ("mail", "img-*"),
        EARLY,
        LATE,
        EARLY + timedelta(days=30),
    ),
    "ab" * 32,
    Former("cd" * 32, LATE),
    version=3,
)
SCHEDULE: Final = Schedule(
    queue="mail",
    name="daily",
    settings=ScheduleSettings(
        cron="0 9 * * 1-5",
        timezone="Europe/Athens",
        payload='{"a":1}',
        tags={"team": "post"},
        dedupe_key="daily",
        expires_in_seconds=0,
        keepalive_timeout_in_seconds=30,
        retry_strategy=RetryStrategy(Backoff.LINEAR, 2, 1, 5, 0.1, ()),
        paused=True,
        priority=Priority.LOW,
    ),
    created_at=EARLY,
    updated_at=LATE,
    since=EARLY,
    anchor=EARLY,
    edition="ed1",
    queue_created_at=EARLY,
    changes=2,
    version=4,
)
SELECTION: Final = selections.TaskSelection(
    name="sel1",
    action=BulkAction.MOVE,
    queues=("mail", "img"),
    where=TaskFilter(states=("DEAD",)),
    by="key_1",
    seen_at=EARLY,
    queue=2,
    walk={"page": [1, "x"]},
    looked_at=40,
    count=3,
    chunks=((0, 2), (1, 1)),
    samples=(("mail", "tsk_1"),),
    to_queue="other",
    at=1,
    trouble="oops",
    busy_until=LATE,
    version=6,
)
ACTION: Final = ActionRun(
    id="act_1",
    set_name="sel1",
    action=BulkAction.DELETE,
    queues=("mail",),
    where=TaskFilter(states=("DEAD",)),
    by="anna",
    by_id="key_1",
    request_id="req-1",
    reason="sent twice",
    seen_at=EARLY,
    started_at=LATE,
    noted="9-1",
    undo_for=60,
    first=1,
    at=2,
    until=3,
    changed=1,
    left={"inflight": 2},
    undos={"mail": "und_1"},
    status=ActionStatus.PAUSED,
    trouble="oops",
    part=ActionPart(3, (EARLY, LATE)),
    busy_until=LATE,
    version=6,
)
WORKER: Final = LiveWorker(
    WorkerHeartbeat("host:1", ("mail",), EARLY, 8, ("tsk_1",), "1.0"),
    LATE,
    Command.STOP,
)
Codec = tuple[Callable[[Any], Record], Callable[[Record], Any]]
KINDS: Final[dict[str, tuple[Any, Codec]]] = {
    "queue": (QUEUE, (queues.to_record, queues.from_record)),
    "key": (KEY, (keys.to_record, keys.from_record)),
    "schedule": (SCHEDULE, (schedules.to_record, schedules.from_record)),
    "selection": (SELECTION, (selections.to_record, selections.from_record)),
}


def stored(record: Record) -> Record:
    """Return *record* as it comes out of a table: its body has been JSON."""
    return replace(record, body=json.loads(json.dumps(record.body)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_read_as_it_was_written(kind: str) -> None:
    value, (write, read) = KINDS[kind]

    assert read(stored(write(value))) == value
    # 1 stays 1 and does not become 1.0; members of a set have no order.
    assert sorted(repr(read(stored(write(value))))) == sorted(repr(value))


_NESTED: Final = {
    "queue": ("settings", "dequeuing_settings"),
    "schedule": ("settings", "retry_strategy"),
    "selection": ("where",),
}


@pytest.mark.parametrize("kind", ["queue", "key", "schedule", "selection"])
def test_a_field_that_only_a_newer_version_knows_is_refused_at_any_depth(kind: str) -> None:
    value, (write, read) = KINDS[kind]
    record = stored(write(value))
    whole: dict[str, Any] = {**record.body}
    inside = whole
    for name in _NESTED.get(kind, ()):
        inside = inside[name]

    for body in (whole, inside):
        body["newer"] = None
        with pytest.raises(NewerRecord, match=r"newer version .*\bnewer\).*update"):
            read(replace(record, body=whole))
        del body["newer"]


def test_an_action_of_a_newer_version_is_refused() -> None:
    changes: tuple[dict[str, Any], ...]
    changes = ({"newer": 1}, {"where": {"state": "DEAD", "note": "x"}})
    for change in changes:
        body = {**stored(ACTION.record()).body, **change}
        with pytest.raises(NewerRecord):
            ActionRun.of(Record("action", "act_1", body))


def test_a_field_that_is_only_shown_is_ignored_if_a_newer_version_wrote_it() -> None:
    heartbeat = workers.to_record(WORKER.heartbeat, WORKER.seen_at)

    newer = replace(heartbeat, body={**heartbeat.body, "newer": 1})
    assert workers.from_record(newer) == workers.from_record(heartbeat)


def test_a_large_payload_of_a_schedule_is_packed_and_comes_back() -> None:
    quotes = replace(SCHEDULE, settings=replace(SCHEDULE.settings, payload='"' * 200_000))

    record = stored(schedules.to_record(quotes))

    assert isinstance(record.body["settings"]["payload"], list)
    assert schedules.from_record(record) == quotes
