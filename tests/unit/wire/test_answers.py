"""What the service encodes the SDK decodes, whether it is older or newer than the service."""

from datetime import UTC, datetime
from typing import Any, Final, get_args

import msgspec
import pytest

from headrace.domain.task import DeadReason, ErrorKind
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.wire.tasks import Count, Enqueued, Reported, Task, TaskError

NOW: Final = datetime(2026, 11, 21, 8, tzinfo=UTC)
TASK: Final[dict[str, Any]] = {
    **dict.fromkeys(("dedupe_key", "expires_at", "lease_expires_at", "worker", "started_at")),
    **dict.fromkeys(("finished_at", "dead_reason", "retained_until", "schedule")),
    "id": "tsk_1",
    "queue": "mail",
    "state": "INFLIGHT",
    "status": "INFLIGHT",
    "tags": {"a": "1"},
    "created_at": NOW,
    "scheduled_at": NOW,
    "errors": [],
    "trail": [],
    "attempts": 1,
    "max_retries": 5,
    "keepalive_timeout_in_seconds": 30,
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
