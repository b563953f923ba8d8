"""The fields of a task and of a queue in an answer, in full."""

import json
from datetime import UTC, datetime
from typing import Any

from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import DeadReason, ErrorKind, Hop, Place, State, Task, TaskError
from headrace.http import queues, tasks
from headrace.http.problems import invalid, is_expected, problem
from headrace.http.queue_bodies import ReplaceQueueBody
from headrace.wire.base import to_json
from tests.documented import check_documented

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
PAYLOAD = '{"n": 1.10, "big": 12345678901234567890, "u": "\\u00e9"}'
DEAD = Task(
    id="tsk_1",
    place=Place("mail", State.DEAD, 0),
    scheduled_at=NOW,
    due_at=NOW,
    created_at=NOW,
    enqueued_at=NOW,
    payload=PAYLOAD,
    attempts=1,
    worker='ada "1"\n',
    progress="0.50",
    has_progress=True,
    started_at=NOW,
    tags={"a": 'b"'},
    expires_at=NOW,
    keepalive=2.5,
    retry=RetryStrategy(max_retries=9),
    finished_at=NOW,
    result="[1.0]",
    dead_reason=DeadReason.EXHAUSTED,
    errors=(TaskError(1, NOW, None, ErrorKind.FAILED, "T", "é", '"'),),
    trail=(Hop("before", NOW),),
    retained_until=NOW,
)


def test_a_finished_task_is_shown_with_its_payload_as_it_came_in() -> None:
    text = to_json(tasks.task_answer(DEAD, now=NOW, max_retries=lambda _: 5, payload=True))

    check_documented("Task", json.loads(text))
    assert f'"payload":{PAYLOAD},' in text
    assert json.loads(text) == {
        "id": "tsk_1",
        "queue": "mail",
        "state": "DEAD",
        "status": "DEAD",
        "payload": json.loads(PAYLOAD),
        "tags": {"a": 'b"'},
        "dedupe_key": None,
        "created_at": "2026-11-21T08:00:00.000000Z",
        "scheduled_at": "2026-11-21T08:00:00.000000Z",
        "expires_at": "2026-11-21T08:00:00.000000Z",
        "attempts": 1,
        "max_retries": 9,
        "keepalive_timeout_in_seconds": 2.5,
        "lease_expires_at": None,
        "worker": 'ada "1"\n',
        "progress": 0.5,
        "started_at": "2026-11-21T08:00:00.000000Z",
        "finished_at": "2026-11-21T08:00:00.000000Z",
        "result": [1.0],
        "dead_reason": "exhausted",
        "errors": [
            {
                "attempt": 1,
                "at": "2026-11-21T08:00:00.000000Z",
                "worker": None,
                "kind": "failed",
                "type": "T",
                "message": "é",
                "detail": '"',
            }
        ],
        "trail": [{"queue": "before", "at": "2026-11-21T08:00:00.000000Z"}],
        "retained_until": "2026-11-21T08:00:00.000000Z",
        "schedule": None,
        "priority": None,
        "group_key": None,
        "note": None,
        "batches": [],
        "batch": None,
    }


def test_a_queue_is_shown_with_the_defaults_of_the_contract_and_may_be_sent_back() -> None:
    queue = Queue("mail", QueueSettings(), NOW, NOW)

    text = to_json(queues.queue_answer(queue))

    check_documented("Queue", json.loads(text))
    assert json.loads(text) == {
        "name": "mail",
        "description": "",
        "owner": "",
        "keepalive_timeout_in_seconds": 30,
        "expires_in_seconds": 1209600,
        "retry_strategy": {
            "kind": "exponential",
            "max_retries": 5,
            "base_seconds": 20,
            "max_delay_seconds": 3600,
            "jitter": 0.1,
            "intervals": [],
        },
        "dequeuing_settings": {
            "max_inflight_tasks": 0,
            "rate_limiting": None,
            "dequeuing_paused": False,
        },
        "dead_letter_queue_config": {
            "enable": True,
            "retention_period_in_seconds": 1209600,
            "max_size": 0,
        },
        "history_retention_in_seconds": 86400,
        "shards": 1,
        "priority": None,
        "groups": None,
        "target": None,
        "on_end": None,
        "alerts": None,
        "indexed_fields": [],
        "created_at": "2026-11-21T08:00:00.000000Z",
        "updated_at": "2026-11-21T08:00:00.000000Z",
        "version": 1,
    }
    assert ReplaceQueueBody.model_validate_json(text, strict=False).settings() == QueueSettings()


# -- errors ----------------------------------------------------------------------------------------


def text(error: Exception) -> str:
    return problem(error, request_id="req-1").text()


def body(error: Exception) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text(error))
    return loaded


def wrong(location: tuple[str | int, ...], kind: str = "missing", **context: Any) -> dict[str, Any]:
    return {"loc": ("body", *location), "type": kind, "msg": "Bad", "ctx": context}


def test_an_unexpected_error_shows_only_the_request_id() -> None:
    error = ZeroDivisionError("secret in a traceback")

    shown = body(error)

    assert (shown["status"], shown["code"]) == (500, "internal_error")
    assert shown["request_id"] == "req-1"
    assert "secret" not in text(error)
    assert not is_expected(error)


def test_an_answer_is_bounded_whatever_was_sent() -> None:
    error = invalid([wrong(("x" * 100_000,))] * 1000)

    assert len(text(error)) < 100_000
    assert len(body(error)["errors"]) == 100
