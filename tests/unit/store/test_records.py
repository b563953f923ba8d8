"""Records of the control table stay readable: their layout is what earlier versions have written.

Long, because each kind of record is here in full, as each version wrote it.

The bodies here are literal, as they stand in tables that are in use.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
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
from headrace.domain.repeat import First, KeyedRequest, NotedBatch, RecordedAnswer
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.schedule import Progress, Schedule, ScheduleSettings
from headrace.domain.task import Place, Priority, State
from headrace.domain.worker import Command, LiveWorker, WorkerHeartbeat
from headrace.store.base import Position, Record
from headrace.store.records import (
    keys,
    queues,
    reaper,
    repeats,
    schedules,
    selections,
    workers,
)
from headrace.store.records.actions import ActionPart, ActionRun

EARLY: Final = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
LATE: Final = datetime(2026, 11, 22, 9, 30, 15, 250_000, tzinfo=UTC)
EARLY_TEXT: Final = "2026-11-22T09:30:00+00:00"
LATE_TEXT: Final = "2026-11-22T09:30:15.250000+00:00"
REQUEST: Final = KeyedRequest("key_1", "k-1", "f00d")

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
QUEUE_BODY: Final = {
    "settings": {
        "description": "letters",
        "keepalive_timeout_in_seconds": 45,
        "expires_in_seconds": 0,
        "retry_strategy": {
            "kind": "intervals",
            "max_retries": 3,
            "base_seconds": 20,
            "max_delay_seconds": 3600,
            "jitter": 0,
            "intervals": [1, 2.5, 60],
        },
        "dequeuing_settings": {
            "max_inflight_tasks": 16,
            "rate_limiting": {"max_tokens": 50, "interval": 1, "interval_unit": "MINUTES"},
            "dequeuing_paused": True,
        },
        "dead_letter_queue_config": {
            "enable": True,
            "retention_period_in_seconds": 86400.5,
            "max_size": 100,
        },
        "history_retention_in_seconds": 0,
        "shards": 2,
        "priority": {"aging_in_seconds": 60},
    },
    "created_at": EARLY_TEXT,
    "updated_at": LATE_TEXT,
    "resume_at": LATE_TEXT,
    "shards_in_use": 4,
    "uncounted_since": LATE_TEXT,
    "resharded_at": EARLY_TEXT,
    "shards_ever": 8,
    "drained": ["DEAD", "SUCCEEDED"],
    "lanes_in_use": [0, 1, 2],
    "lanes_ever": [0, 1, 2, 3],
}
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
KEY_BODY: Final = {
    "name": "ops",
    "role": "operator",
    "queues": ["mail", "img-*"],
    "hash": "ab" * 32,
    "former": {"hash": "cd" * 32, "until": LATE_TEXT},
    "created_at": EARLY_TEXT,
    "last_used_at": LATE_TEXT,
    "expires_at": "2026-12-22T09:30:00+00:00",
}
REMOVAL: Final = queues.Removal(
    queue="mail",
    states=(State.ENQUEUED, State.DEAD),
    requested_at=EARLY,
    shards=2,
    deletes_queue=False,
    name="p1",
    swept=True,
    at=1,
    after=Position(LATE, "tsk_1"),
    quiet=-1,
    away=frozenset({"b", "a"}),
    removed=12,
    noted="2026/x",
    version=5,
)
REMOVAL_BODY: Final = {
    "queue": "mail",
    "states": ["ENQUEUED", "DEAD"],
    "asked_at": EARLY_TEXT,
    "shards": 2,
    "deletes_queue": False,
    "swept": True,
    "at": 1,
    "after": [LATE_TEXT, "tsk_1"],
    "quiet": -1,
    "away": ["a", "b"],
    "removed": 12,
    "noted": "2026/x",
}
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
SCHEDULE_BODY: Final = {
    "settings": {
        "cron": "0 9 * * 1-5",
        "every_seconds": None,
        "timezone": "Europe/Athens",
        "payload": '{"a":1}',
        "tags": {"team": "post"},
        "dedupe_key": "daily",
        "expires_in_seconds": 0,
        "keepalive_timeout_in_seconds": 30,
        "retry_strategy": {
            "kind": "linear",
            "max_retries": 2,
            "base_seconds": 1,
            "max_delay_seconds": 5,
            "jitter": 0.1,
            "intervals": [],
        },
        "paused": True,
        "priority": "low",
        "missed": "latest",
        "on_expiry": "dead",
        "dedupe_until": "end",
    },
    "created_at": EARLY_TEXT,
    "updated_at": LATE_TEXT,
    "since": EARLY_TEXT,
    "anchor": EARLY_TEXT,
    "edition": "ed1",
    "queue_created_at": EARLY_TEXT,
    "changes": 2,
    "put_by": None,
}
LEFT: Final = reaper.Left(
    part=1,
    parts=4,
    run=EARLY,
    used=3.25,
    cut=True,
    next="mail",
    scans={Place("mail", State.INFLIGHT, 1): Position(LATE, "tsk_2")},
)
LEFT_BODY: Final = {
    "parts": 4,
    "run": EARLY_TEXT,
    "used": 3.25,
    "cut": True,
    "next": "mail",
    "scans": [["mail", "INFLIGHT", 1, LATE_TEXT, "tsk_2"]],
}
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
SELECTION_BODY: Final = {
    "action": "move",
    "queues": ["mail", "img"],
    "by": "key_1",
    "queue": 2,
    "walk": {"page": [1, "x"]},
    "looked_at": 40,
    "count": 3,
    "chunks": [[0, 2], [1, 1]],
    "samples": [["mail", "tsk_1"]],
    "to_queue": "other",
    "at": 1,
    "trouble": "oops",
    "where": {"state": "DEAD"},
    "seen_at": EARLY_TEXT,
    "busy_until": LATE_TEXT,
}
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
ACTION_BODY: Final = {
    "set_name": "sel1",
    "action": "delete",
    "queues": ["mail"],
    "where": {"state": "DEAD"},
    "by": "anna",
    "by_id": "key_1",
    "request_id": "req-1",
    "reason": "sent twice",
    "seen_at": EARLY_TEXT,
    "started_at": LATE_TEXT,
    "noted": "9-1",
    "to_queue": None,
    "undo_for": 60,
    "first": 1,
    "at": 2,
    "until": 3,
    "changed": 1,
    "left": {"inflight": 2},
    "undos": {"mail": "und_1"},
    "status": "PAUSED",
    "ended_at": None,
    "trouble": "oops",
    "part": {"end": 3, "stamps": [EARLY_TEXT, LATE_TEXT]},
    "busy_until": LATE_TEXT,
}
WORKER: Final = LiveWorker(
    WorkerHeartbeat("host:1", ("mail",), EARLY, 8, ("tsk_1",), "1.0"),
    LATE,
    Command.STOP,
)
WORKER_BODY: Final = {
    "queues": ["mail"],
    "started_at": EARLY_TEXT,
    "concurrency": 8,
    "running": ["tsk_1"],
    "version": "1.0",
    "stopped": False,
    "seen_at": LATE_TEXT,
}
SESSION: Final = keys.Session(
    "key_1", "n0nce", EARLY + timedelta(hours=8), LATE, "ef" * 32, version=2
)

Codec = tuple[Callable[[Any], Record], Callable[[Record], Any]]
KINDS: Final[dict[str, tuple[Any, Record, Codec]]] = {
    "queue": (
        QUEUE,
        Record("queue", "mail", QUEUE_BODY, 7),
        (queues.to_record, queues.from_record),
    ),
    "key": (
        KEY,
        Record("key", "key_0123456789abcdef0123", KEY_BODY, 3, EARLY + timedelta(days=120)),
        (keys.to_record, keys.from_record),
    ),
    "removal": (
        REMOVAL,
        Record("chore", "purge:mail:p1", REMOVAL_BODY, 5),
        (queues.Removal.record, queues.Removal.of),
    ),
    "schedule": (
        SCHEDULE,
        Record("schedule", "mail/daily", SCHEDULE_BODY, 4),
        (schedules.to_record, schedules.from_record),
    ),
    "session": (
        SESSION,
        Record(
            "session",
            "key_1:n0nce",
            {"seen_at": LATE_TEXT, "digest": "ef" * 32},
            2,
            EARLY + timedelta(hours=8),
        ),
        (keys.session_record, keys.session_of),
    ),
    "reaper": (LEFT, Record("reaper", "1", LEFT_BODY), (reaper.Left.record, reaper.Left.of)),
    "selection": (
        SELECTION,
        Record("matched", "sel1", SELECTION_BODY, 6, EARLY + timedelta(days=7)),
        (selections.to_record, selections.from_record),
    ),
}


def stored(record: Record) -> Record:
    """Return *record* as it comes out of a table: its body has been JSON."""
    return replace(record, body=json.loads(json.dumps(record.body)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_in_a_table_is_read_as_what_it_was(kind: str) -> None:
    value, record, (_, read) = KINDS[kind]

    assert read(stored(record)) == value
    # 1 stays 1 and does not become 1.0; members of a set have no order.
    assert sorted(repr(read(stored(record)))) == sorted(repr(value))


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_written_as_it_always_was(kind: str) -> None:
    value, record, (write, _) = KINDS[kind]

    written = stored(write(value))

    assert written == record
    as_text = partial(json.dumps, sort_keys=True)  # 1 stays 1; members of JSON have no order
    assert as_text(written.body) == as_text(record.body)


_NESTED: Final = {
    "queue": ("settings", "dequeuing_settings"),
    "schedule": ("settings", "retry_strategy"),
    "selection": ("where",),
}


@pytest.mark.parametrize("kind", ["queue", "key", "removal", "schedule", "selection"])
def test_a_field_that_only_a_newer_version_knows_is_refused_at_any_depth(kind: str) -> None:
    _, record, (_, read) = KINDS[kind]
    whole: dict[str, Any] = {**stored(record).body}
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


def test_a_worker_is_kept_as_it_always_was_and_a_command_is_a_note() -> None:
    record = workers.to_record(WORKER.heartbeat, WORKER.seen_at)

    assert stored(record) == Record("worker", "host:1", WORKER_BODY, 1, LATE + timedelta(hours=1))
    noted = replace(stored(record), note=f"stop {EARLY_TEXT}")
    assert workers.note_of(Command.STOP, WORKER.heartbeat) == noted.note
    assert workers.from_record(noted) == WORKER


def test_what_was_found_out_of_a_queue_is_a_note_about_its_version() -> None:
    note = '{"version": 7, "shards_in_use": 2, "drained": null, "uncounted_since": null}'
    record = stored(Record("queue", "mail", QUEUE_BODY, 7, note=note))

    found = queues.from_record(record)

    assert (found.shards_in_use, found.drained, found.uncounted_since) == (2, frozenset(), None)
    assert queues.from_record(replace(record, version=8)).shards_in_use == 4
    assert queues.note_of(QUEUE) == (
        '{"version": 7, "shards_in_use": 4, "lanes_in_use": [0, 1, 2], '
        '"drained": ["DEAD", "SUCCEEDED"], '
        f'"uncounted_since": "{LATE_TEXT}"}}'
    )


def test_queues_of_before_there_were_shards_in_retirement_are_read() -> None:
    lanes = ("lanes_in_use", "lanes_ever")
    later = ("drained", "resharded_at", "shards_ever", "uncounted_since", *lanes)
    body = {name: value for name, value in QUEUE_BODY.items() if name not in later}

    found = queues.from_record(Record("queue", "mail", body | {"resume_at": None}, 7))

    assert (found.shards_ever, found.drained, found.resharded_at) == (4, frozenset(), None)
    assert found.lanes_in_use == found.lanes_ever == {0}
    assert (found.resume_at, found.uncounted_since) == (None, None)


def test_keys_of_before_they_could_expire_or_rotate_are_read() -> None:
    later = ("expires_at", "former")
    body = {name: value for name, value in KEY_BODY.items() if name not in later}

    found = keys.from_record(Record("key", KEY.key.id, body | {"last_used_at": None}, 3))

    assert (found.former, found.key.expires_at, found.key.last_used_at) == (None, None, None)


def test_the_name_of_a_key_is_a_record_whose_version_never_comes_again() -> None:
    version = int("0123456789abcdef0123", 16)
    body = {"id": "key_0123456789abcdef0123"}
    kept = Record("key_name", "ops", body, version, EARLY + timedelta(days=120))

    assert keys.name_record(KEY.key) == kept


def test_the_progress_of_a_schedule_is_read_as_it_was_written() -> None:
    text = (
        '{"edition":"ed1","done":[[1795339800000000,1795339815250000]],'
        '"recent":[1795339815250000],"ran_at":1795339815250000,"ran_id":"tsk_9",'
        '"ids":{"1795339815250000":"sch_1"}}'
    )
    progress = Progress("ed1", ((EARLY, LATE),), (LATE,), LATE, "tsk_9", {LATE: "sch_1"})

    assert schedules.to_text(progress) == text
    assert schedules.from_text(text) == progress


def test_a_large_payload_of_a_schedule_is_packed_and_comes_back() -> None:
    quotes = replace(SCHEDULE, settings=replace(SCHEDULE.settings, payload='"' * 200_000))

    record = stored(schedules.to_record(quotes))

    assert isinstance(record.body["settings"]["payload"], list)
    assert schedules.from_record(record) == quotes


def test_the_answer_under_a_key_is_kept_in_microseconds_and_short_ones_as_they_are() -> None:
    answer = RecordedAnswer(200, "application/json", '{"a":1}')
    first = First("f00d", EARLY, LATE, answer)
    body = {
        "of": "f00d",
        "at": 1795339800000000,
        "until": 1795339815250000,
        "status": 200,
        "type": "application/json",
        "text": '={"a":1}',
    }

    assert stored(repeats.record_of(REQUEST, first, version=2)).body == body
    assert repeats.first_of(Record("repeat:key_1:k-1", "first", body, 2)) == first


def test_a_noted_batch_is_kept_short_and_comes_back() -> None:
    batch = NotedBatch(EARLY, LATE, "tag", ("tsk_1", "own"), closed=True)
    body = {
        "of": "f00d",
        "at": 1795339800000000,
        "until": 1795339815250000,
        "tag": "tag",
        "ids": ".1,own",
        "closed": True,
    }

    assert stored(repeats.batch_record(REQUEST, batch, version=2)).body == body
    assert repeats.batch_of(Record("repeat:key_1:k-1", "first", body, 2)) == batch
