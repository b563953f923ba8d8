"""What the service encodes the SDK decodes, whichever of the two is older."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args

import msgspec
import pytest

from headrace.domain.task import DeadReason, ErrorKind
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.wire.base import instant, raw, to_json
from headrace.wire.service import Health
from headrace.wire.tasks import Count, Enqueued, Reported, Task, TaskError

NOW: Final = datetime(2026, 11, 21, 8, tzinfo=UTC)
TASK: Final[dict[str, Any]] = {
    "id": "tsk_1",
    "queue": "mail",
    "state": "INFLIGHT",
    "status": "INFLIGHT",
    "tags": {"a": "1"},
    "dedupe_key": None,
    "created_at": "2026-11-21T08:00:00.000000Z",
    "scheduled_at": "2026-11-21T08:00:00.000001Z",
    "expires_at": None,
    "attempts": 1,
    "max_retries": 5,
    "keepalive_timeout_in_seconds": 30,
    "lease_expires_at": None,
    "worker": None,
    "started_at": None,
    "finished_at": None,
    "dead_reason": None,
    "errors": [],
    "trail": [],
    "retained_until": None,
    "schedule": None,
}


@pytest.mark.parametrize(
    ("answer", "member", "words"),
    [
        (Enqueued, "outcome", EnqueueOutcome),
        (Reported, "outcome", ReportOutcome),
        (TaskError, "kind", ErrorKind),
        (Task, "dead_reason", DeadReason),
    ],
)
def test_a_member_of_fixed_words_lists_those_of_its_enum(
    answer: type[Any], member: str, words: Any
) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(answer)}

    assert _words(fields[member]) == {str(word) for word in words}


def _words(kind: Any) -> set[str]:
    if isinstance(kind, str):
        return {kind}
    return set().union(*(_words(part) for part in get_args(kind)))


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NOW, "2026-11-21T08:00:00.000000Z"),
        (NOW + timedelta(microseconds=1), "2026-11-21T08:00:00.000001Z"),
        (NOW + timedelta(milliseconds=120), "2026-11-21T08:00:00.120000Z"),
    ],
)
def test_an_instant_has_six_digits_whatever_they_are(at: datetime, text: str) -> None:
    shown = to_json(Health(status="ok", version="1", now=instant(at)))

    assert json.loads(shown)["now"] == text
    assert msgspec.json.decode(shown, type=Health).now == at


@pytest.mark.parametrize(
    "text",
    [
        "1.10",
        '"\\ud800"',
        "12345678901234567890123",
    ],
)
def test_what_a_task_carries_is_written_as_it_came(text: str) -> None:
    task = msgspec.convert(TASK, Task)
    shown = to_json(msgspec.structs.replace(task, payload_json=raw(text)))

    assert f'"payload":{text},' in shown


def test_an_answer_of_a_newer_service_is_read() -> None:
    task = msgspec.convert({**TASK, "colour": "red", "lease": {"id": "l", "expires_at": NOW}}, Task)

    assert task.id == "tsk_1"


def test_an_answer_of_an_older_service_is_read() -> None:
    task = msgspec.convert(TASK, Task)
    enqueued = msgspec.convert(
        {"outcome": "CREATED", "id": "a", "task": None, "detail": None}, Enqueued
    )
    count = msgspec.convert({"count": 0, "by_state": {}, "exact": True, "as_of": NOW}, Count)

    assert (task.payload, task.result, task.progress) == (None, None, None)
    assert enqueued.queue is None
    assert (count.partial, count.cursor) == (False, None)
