"""Answers have the contract's fields, in its forms, and payloads exactly as they came in.

Long, because it is a list: each answer with its fields, in full.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.domain.ids import LeaseName
from headrace.domain.queue import DequeuingSettings, Queue, QueueSettings, RateLimiting
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import DeadReason, ErrorKind, Hop, Place, State, Task, TaskError
from headrace.http import audit, bulk, queues, task_answers
from headrace.http.ngsi.quantumleap import notification
from headrace.http.queue_bodies import ReplaceQueueBody
from headrace.ops.delivery.dequeue import DequeueResult
from headrace.ops.delivery.reports import ReportOutcome, ReportResult, ReportStatus, TaskReport
from headrace.ops.operators.bulk import BulkAnswer, BulkOutcome
from headrace.ops.shared.audit import AuditRecord
from headrace.ops.shared.paging import Found
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult
from headrace.ops.tasks.explain import NotRunningReason, ReasonCode
from headrace.ops.tasks.inspect import Counted, TaskListing
from headrace.wire.base import to_json
from tests.documented import check_documented

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
PAYLOAD = '{"n": 1.10, "big": 12345678901234567890, "u": "\\u00e9"}'
WAITING = Task(
    id="tsk_1",
    place=Place("mail", State.ENQUEUED, 0),
    scheduled_at=NOW,
    due_at=NOW,
    created_at=NOW,
    enqueued_at=NOW,
    payload=PAYLOAD,
)
LEASED = replace(
    WAITING,
    place=Place("mail", State.INFLIGHT, 0),
    attempts=1,
    lease_id="lse_1",
    lease_expires_at=NOW + timedelta(seconds=30),
    worker='ada "1"\n',
    progress="0.50",
    has_progress=True,
    started_at=NOW,
)
ENDED = replace(
    LEASED,
    place=Place("mail", State.DEAD, 0),
    lease_id=None,
    lease_expires_at=None,
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
HELD = TaskReport("tsk_1", "lse_1.1.", ReportStatus.SUCCEEDED)


def five(queue: str) -> int:
    return 5


def task_text(task: Task, *, payload: bool = True) -> str:
    return to_json(task_answers.task_answer(task, now=NOW, max_retries=five, payload=payload))


def shown(task: Task, *, payload: bool = True) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(task_text(task, payload=payload))
    return loaded


@pytest.mark.parametrize("task", [WAITING, LEASED, ENDED], ids=lambda task: task.state)
def test_a_task_has_the_fields_of_the_contract_in_its_order(task: Task) -> None:
    contract = (
        "id queue state status payload tags dedupe_key created_at scheduled_at expires_at attempts "
        "max_retries keepalive_timeout_in_seconds lease_expires_at worker progress started_at "
        "finished_at result dead_reason errors trail retained_until schedule priority "
        "group_key batches batch"
    )

    delivered = ["last_progress"] if task is LEASED else []
    assert list(shown(task)) == contract.split() + delivered
    check_documented("Task", shown(task))
    check_documented("TaskWithoutPayload", shown(task, payload=False))


def test_a_finished_task() -> None:
    assert shown(ENDED) == {
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
        "batches": [],
        "batch": None,
    }


def test_payload_result_and_progress_stand_as_they_came_in() -> None:
    assert f'"payload":{PAYLOAD},' in task_text(ENDED)
    assert '"progress":0.50,' in task_text(ENDED)
    assert '"result":[1.0],' in task_text(ENDED)


def test_scheduled_at_is_the_due_time_and_not_the_key_of_the_index() -> None:
    task = replace(LEASED, scheduled_at=NOW + timedelta(hours=1))

    assert shown(task)["scheduled_at"] == "2026-11-21T08:00:00.000000Z"


def test_a_waiting_task_is_ready_or_scheduled() -> None:
    later = replace(WAITING, due_at=NOW + timedelta(microseconds=1))

    assert [shown(task)["status"] for task in (WAITING, later)] == ["READY", "SCHEDULED"]


def test_only_the_worker_sees_the_lease() -> None:
    assert "lse_1" not in task_text(LEASED)
    (leased,) = task_answers.dequeued_answer(
        DequeueResult((LEASED,), 0, NOW), max_retries=five
    ).tasks
    assert json.loads(to_json(leased.lease)) == {
        "id": str(LeaseName.of(LEASED)),
        "expires_at": "2026-11-21T08:00:30.000000Z",
    }


def test_a_page_of_tasks() -> None:
    page = TaskListing((WAITING, ENDED), "next")

    text = to_json(task_answers.tasks_answer(page, now=NOW, max_retries=five, payload=True))

    check_documented("TaskPage", json.loads(text))
    assert [task["id"] for task in json.loads(text)["tasks"]] == ["tsk_1", "tsk_1"]
    nothing = task_answers.tasks_answer(
        TaskListing((), None), now=NOW, max_retries=five, payload=True
    )
    assert to_json(nothing) == '{"tasks":[],"cursor":null}'


def test_results_of_an_enqueue() -> None:
    results = [
        EnqueueResult(EnqueueOutcome.CREATED, "tsk_1", WAITING),
        EnqueueResult(EnqueueOutcome.INVALID, None, detail='said "no"'),
        EnqueueResult(EnqueueOutcome.EXISTING, "tsk_3", elsewhere="other"),
    ]

    text = to_json(task_answers.enqueued_answer(results, now=NOW, max_retries=five))

    check_documented("EnqueueResults", json.loads(text))
    first, second, third = json.loads(text)["results"]
    assert "payload" not in first["task"]
    assert first["queue"] == first["task"]["queue"]
    nothing = {"id": None, "task": None, "queue": None}
    assert second == {"outcome": "INVALID", **nothing, "detail": 'said "no"'}
    moved = {"id": "tsk_3", "task": None, "queue": "other"}
    assert third == {"outcome": "EXISTING", **moved, "detail": None}


def test_what_a_dequeue_hands_out() -> None:
    text = to_json(
        task_answers.dequeued_answer(DequeueResult((LEASED,), 0.02, NOW), max_retries=five)
    )

    check_documented("Dequeued", json.loads(text))
    assert json.loads(text)["now"] == "2026-11-21T08:00:00.000000Z"
    assert json.loads(text)["poll_after_seconds"] == 0.02


def test_results_of_reports() -> None:
    beat = replace(HELD, status=ReportStatus.INFLIGHT)
    results = [
        ReportResult("tsk_1", ReportOutcome.OK, ENDED),
        ReportResult("tsk_1", ReportOutcome.OK, LEASED),
        ReportResult("tsk_1", ReportOutcome.STALE_LEASE, detail="x"),
    ]

    text = to_json(task_answers.reported_answer([HELD, beat, HELD], results, NOW))

    check_documented("ReportResults", json.loads(text))
    ended, alive, stale = json.loads(text)["results"]
    assert (ended["state"], ended["lease"]) == ("DEAD", None)
    assert alive["lease"]["expires_at"] == "2026-11-21T08:00:30.000000Z"
    assert stale == {
        "task_id": "tsk_1",
        "outcome": "STALE_LEASE",
        "state": None,
        "scheduled_at": None,
        "lease": None,
        "spawned": [],
        "detail": "x",
    }


def test_a_task_of_which_nothing_is_kept_has_no_state_any_more() -> None:
    text = to_json(
        task_answers.reported_answer([HELD], [ReportResult("tsk_1", ReportOutcome.OK)], NOW)
    )

    (result,) = json.loads(text)["results"]
    assert (result["outcome"], result["state"], result["lease"]) == ("OK", None, None)


def test_a_count_names_every_stored_state() -> None:
    text = to_json(task_answers.count_answer(Counted({State.DEAD: 3}, NOW, None)))

    check_documented("TaskCount", json.loads(text))
    assert json.loads(text)["by_state"] == {"ENQUEUED": 0, "INFLIGHT": 0, "SUCCEEDED": 0, "DEAD": 3}


def test_a_count_that_broke_off_is_not_exact() -> None:
    found = json.loads(to_json(task_answers.count_answer(Counted({}, NOW, "more"))))

    assert (found["exact"], found["partial"], found["cursor"]) == (False, True, "more")


def test_what_a_report_has_spawned() -> None:
    spawned = (
        EnqueueResult(EnqueueOutcome.CREATED, "tsk_2", WAITING),
        EnqueueResult(EnqueueOutcome.DUPLICATE, "tsk_3"),
    )

    text = to_json(
        task_answers.reported_answer(
            [HELD], [ReportResult("tsk_1", ReportOutcome.OK, ENDED, spawned=spawned)], NOW
        )
    )

    check_documented("ReportResults", json.loads(text))
    assert json.loads(text)["results"][0]["spawned"] == [
        {"outcome": "CREATED", "id": "tsk_2"},
        {"outcome": "DUPLICATE", "id": "tsk_3"},
    ]


def test_reasons() -> None:
    reasons = [
        NotRunningReason(ReasonCode.SCHEDULED, "é", NOW),
        NotRunningReason(ReasonCode.BEHIND, "2 before it"),
    ]

    text = to_json(task_answers.explained_answer(reasons))

    check_documented("Explained", json.loads(text))
    assert json.loads(text)["reasons"] == [
        {"code": "scheduled", "detail": "é", "until": "2026-11-21T08:00:00.000000Z"},
        {"code": "behind", "detail": "2 before it", "until": None},
    ]


def test_what_a_bulk_action_did() -> None:
    results = (BulkOutcome("tsk_1", "DELETED"), BulkOutcome("tsk_2", "SKIPPED", "inflight"))

    text = to_json(bulk.bulk_answer(BulkAnswer(1, 1, results, "next")))

    check_documented("BulkDone", json.loads(text))
    assert json.loads(text) == {
        "matched": 1,
        "changed": 1,
        "results": [
            {"id": "tsk_1", "outcome": "DELETED", "detail": None},
            {"id": "tsk_2", "outcome": "SKIPPED", "detail": "inflight"},
        ],
        "cursor": "next",
    }


def test_a_page_of_the_audit() -> None:
    where = {"state": "DEAD", "scheduled_after": NOW.isoformat(), "tags": {"a": "1"}}
    page = Found(
        (
            AuditRecord(NOW, "ada", "restart", "mail", where, None, 2, 1, "r-1", "key_1"),
            AuditRecord(NOW, "ada", "delete", "mail", ids=("tsk_1",)),
        ),
        None,
    )

    text = to_json(audit.audit_answer(page))

    check_documented("AuditEntries", json.loads(text))
    done, going_on = json.loads(text)["entries"]
    assert done == {
        "at": "2026-11-21T08:00:00.000000Z",
        "actor": "ada",
        "action": "restart",
        "queue": "mail",
        "filter": {
            "state": "DEAD",
            "scheduled_after": "2026-11-21T08:00:00.000000Z",
            "tags": {"a": "1"},
        },
        "ids": None,
        "matched": 2,
        "changed": 1,
        "request_id": "r-1",
        "actor_id": "key_1",
    }
    assert (going_on["ids"], going_on["filter"], going_on["changed"]) == (["tsk_1"], None, None)


def test_a_notification_has_the_shape_of_quantumleaps() -> None:
    tags = {"fiware-service": 'x "', "fiware-servicepath": "/", "other": "y"}
    task = replace(ENDED, tags=tags, payload=f'{{"data": [{PAYLOAD}]}}')

    text = to_json(notification(task, max_retries=five))

    check_documented("Notification", json.loads(text))
    assert PAYLOAD in text
    assert json.loads(text)["input"]["fiware_service"] == 'x "'
    assert json.loads(text)["input"]["fiware_correlator"] is None
    assert json.loads(text)["runtime"] == {
        "task_id": "tsk_1",
        "task_type": "mail",
        "status": "failed",
        "retries_left": 0,
        "errors": ["T: é"],
    }


def test_a_queue_is_shown_with_the_defaults_of_the_contract_and_may_be_sent_back() -> None:
    queue = Queue("mail", QueueSettings(), NOW, NOW)

    text = to_json(queues.queue_answer(queue))

    check_documented("Queue", json.loads(text))
    assert json.loads(text) == {
        "name": "mail",
        "description": "",
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


def test_a_queue_with_every_setting_survives_being_sent_back() -> None:
    settings = QueueSettings(
        description="é",
        keepalive_timeout_in_seconds=2.5,
        expires_in_seconds=0,
        retry_strategy=RetryStrategy(Backoff.INTERVALS, max_retries=2, intervals=(1, 2.5)),
        dequeuing_settings=DequeuingSettings(7, RateLimiting(1000, 1), dequeuing_paused=True),
        shards=4,
    )
    text = to_json(queues.queues_answer(Found((Queue("mail", settings, NOW, NOW, 3),), "next")))

    check_documented("QueuePage", json.loads(text))
    body = ReplaceQueueBody.model_validate(json.loads(text)["queues"][0])
    assert body.settings() == settings
    assert body.version == 3
