"""What is of the wrong type, or no field at all, is refused by name."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from headrace.http.bulk import BulkBody, MoveBody
from headrace.http.fields import TOO_LARGE
from headrace.http.queue_bodies import CreateQueueBody, PurgeBody, ReplaceQueueBody
from headrace.http.rawjson import decode
from headrace.http.report_bodies import ReportsBody
from headrace.http.task_bodies import DequeueBody, EnqueueBody
from tests.unit.http.bodies import dequeuing, queue, rate, read, refused, report, task

WRONG_TYPES = [
    (EnqueueBody, {"tasks": None}, "tasks"),
    (EnqueueBody, {}, "tasks"),
    (EnqueueBody, {"tasks": [[]]}, "tasks[0]"),
    (EnqueueBody, task(delay_in_seconds="5"), "tasks[0].delay_in_seconds"),
    (EnqueueBody, task(delay_in_seconds=10**400), "tasks[0].delay_in_seconds"),
    (EnqueueBody, task(id="a b"), "tasks[0].id"),
    (EnqueueBody, task(tags={"a": 1}), "tasks[0].tags.a"),
    (EnqueueBody, task(retry_strategy={"kind": "cubic"}), "tasks[0].retry_strategy.kind"),
    (EnqueueBody, task(retry_strategy={"max_retries": 1.0}), "tasks[0].retry_strategy.max_retries"),
    (EnqueueBody, {"tasks": [{}], "queue": "a"}, "queue"),
    (EnqueueBody, task(dedupe_key="\ud800"), "tasks[0].dedupe_key"),
    (
        EnqueueBody,
        task(dedupe_key="a", overwrite_on_duplicate=["id"]),
        "tasks[0].overwrite_on_duplicate[0]",
    ),
    (DequeueBody, {"batch_size": 1.0}, "batch_size"),
    (DequeueBody, {"batch_size": None}, "batch_size"),
    (DequeueBody, {"lease_id": "a"}, "lease_id"),
    (ReportsBody, report("DONE"), "reports[0].status"),
    (ReportsBody, report("FAILED", retryable=0), "reports[0].retryable"),
    (ReportsBody, report("FAILED", error={"message": 1}), "reports[0].error.message"),
    (ReportsBody, report("FAILED", spawn=[{"queue": "a"}]), "reports[0].spawn"),
    (
        ReportsBody,
        report(spawn=[{"queue": "a", "overwrite_on_duplicate": ["tags"]}]),
        "reports[0].spawn[0].overwrite_on_duplicate",
    ),
    (BulkBody, {}, "filter"),
    (BulkBody, {"ids": ["a"], "limit": 1}, "limit"),
    (BulkBody, {"ids": ["a b"]}, "ids[0]"),
    (BulkBody, {"filter": {}, "dry_run": 1}, "dry_run"),
    (BulkBody, {"filter": {"state": ["DEAD"]}}, "filter.state"),
    (MoveBody, {"filter": {}, "to_queue": "a b"}, "to_queue"),
    (CreateQueueBody, queue(name=None), "name"),
    (CreateQueueBody, queue(version=1), "version"),
    (
        CreateQueueBody,
        rate(interval_unit="DAYS"),
        "dequeuing_settings.rate_limiting.interval_unit",
    ),
    (
        CreateQueueBody,
        dequeuing(rate_limiting={}),
        "dequeuing_settings.rate_limiting.max_tokens",
    ),
    (ReplaceQueueBody, {"version": "1"}, "version"),
    (PurgeBody, {"states": "DEAD"}, "states"),
    (PurgeBody, {"states": ["READY"]}, "states[0]"),
]


@pytest.mark.parametrize(
    ("model", "body", "field"),
    WRONG_TYPES,
    ids=[case[2] + str(case[1])[:40] for case in WRONG_TYPES],
)
def test_wrong_types_and_unknown_fields_are_refused_by_name(
    model: type[BaseModel], body: Any, field: str
) -> None:
    assert field in refused(model, body)


@pytest.mark.parametrize("name", ["payload", "progress"])  # a result is its own report's business
def test_what_is_too_large_is_told_apart(name: str) -> None:
    status = {"payload": "MOVED", "progress": "INFLIGHT"}[name]
    with pytest.raises(ValidationError) as failed:
        read(ReportsBody, report(status, **{name: "x" * 300_000}))
    assert TOO_LARGE in {error["type"] for error in failed.value.errors()}


def test_half_a_surrogate_pair_is_no_text() -> None:
    for body, model in (
        ('{"tasks":[{"tags":{"a":"\\ud800"}}]}', EnqueueBody),
        ('{"tasks":[{"tags":{"\\ud800":"a"}}]}', EnqueueBody),
        ('{"tasks":[{"\\ud800":"a"}]}', EnqueueBody),
        ('{"tasks":[{"id":"\\ud800"}]}', EnqueueBody),
        ('{"worker":"\\ud800"}', DequeueBody),
        ('{"name":"a","description":"\\ud800"}', CreateQueueBody),
        ('{"name":"\\ud800"}', CreateQueueBody),
    ):
        with pytest.raises(ValidationError):
            model.model_validate(decode(body))
