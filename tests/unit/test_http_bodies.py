"""Every limit of the contract: the value at it passes, one over is refused by name."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from headrace.domain import limits
from headrace.domain.plan import NewTask
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State
from headrace.http.bodies import DequeueBody, EnqueueBody
from headrace.http.bulk_bodies import BulkBody, MoveBody
from headrace.http.fields import TOO_LARGE
from headrace.http.problems import invalid
from headrace.http.queue_bodies import CreateQueueBody, PauseBody, PurgeBody, ReplaceQueueBody
from headrace.http.rawjson import decode
from headrace.http.report_bodies import ReportsBody
from headrace.ops.reports import Report, ReportStatus, WorkerError

HELD = {"task_id": "tsk_1", "lease_id": "lse_1.1."}


def task(**fields: Any) -> dict[str, Any]:
    return {"tasks": [fields]}


def report(status: str = "SUCCEEDED", **fields: Any) -> dict[str, Any]:
    return {"reports": [{**HELD, "status": status, **fields}]}


def moved(**fields: Any) -> dict[str, Any]:
    return report("MOVED", **{"to_queue": "next", **fields})


def queue(**fields: Any) -> dict[str, Any]:
    return {"name": "mail", **fields}


def retry(**fields: Any) -> dict[str, Any]:
    return queue(retry_strategy=fields)


def intervals(*waits: float, **fields: Any) -> dict[str, Any]:
    return retry(kind="intervals", intervals=list(waits), **fields)


def dead(**fields: Any) -> dict[str, Any]:
    return queue(dead_letter_queue_config=fields)


def dequeuing(**fields: Any) -> dict[str, Any]:
    return queue(dequeuing_settings=fields)


def rate(**fields: Any) -> dict[str, Any]:
    return dequeuing(rate_limiting={"max_tokens": 1, "interval": 1, **fields})


def tags(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


def text(size: int) -> str:
    """Return a text whose JSON is *size* bytes, quotes included."""
    return "é" + "x" * (size - 4)


def read(model: type[BaseModel], body: Any) -> Any:
    """Return *body* as a request of it would be read."""
    return model.model_validate(decode(json.dumps(body, ensure_ascii=False)))


def refused(model: type[BaseModel], body: Any) -> dict[str, str]:
    """Return the fields that are refused, each with why."""
    with pytest.raises(ValidationError) as failed:
        read(model, body)
    errors = [{**error, "loc": ("body", *error["loc"])} for error in failed.value.errors()]
    return {error.field: error.message for error in invalid(errors).errors}


@dataclass(frozen=True)
class Limit:
    """A field, a body with its value at the limit, one just over it, and how the limit reads."""

    model: type[BaseModel]
    field: str
    good: Any
    bad: Any
    named: str


LIMITS = [
    Limit(EnqueueBody, "tasks", {"tasks": [{}]}, {"tasks": []}, "1"),
    Limit(EnqueueBody, "tasks", {"tasks": [{}] * 25}, {"tasks": [{}] * 26}, "25"),
    Limit(
        EnqueueBody,
        "tasks[0].payload",
        task(payload=text(262_144)),
        task(payload=text(262_145)),
        "262144",
    ),
    Limit(EnqueueBody, "tasks[0].id", task(id="a" * 64), task(id="a" * 65), "{1,64}"),
    Limit(EnqueueBody, "tasks[0].id", task(id="a"), task(id=""), "{1,64}"),
    Limit(
        EnqueueBody,
        "tasks[0].delay_in_seconds",
        task(delay_in_seconds=31_536_000),
        task(delay_in_seconds=31_536_000.5),
        "31536000",
    ),
    Limit(
        EnqueueBody,
        "tasks[0].delay_in_seconds",
        task(delay_in_seconds=0),
        task(delay_in_seconds=-0.001),
        "0",
    ),
    Limit(
        EnqueueBody,
        "tasks[0].keepalive_timeout_in_seconds",
        task(keepalive_timeout_in_seconds=1),
        task(keepalive_timeout_in_seconds=0.5),
        "1",
    ),
    Limit(
        EnqueueBody,
        "tasks[0].keepalive_timeout_in_seconds",
        task(keepalive_timeout_in_seconds=43_200),
        task(keepalive_timeout_in_seconds=43_201),
        "43200",
    ),
    Limit(EnqueueBody, "tasks[0].tags", task(tags=tags(10)), task(tags=tags(11)), "10"),
    Limit(
        EnqueueBody,
        "tasks[0].tags.k",
        task(tags={"k": "é" * 128}),
        task(tags={"k": "é" * 128 + "x"}),
        "256",
    ),
    Limit(
        EnqueueBody,
        f"tasks[0].tags.{'k' * 65}",
        task(tags={"k" * 64: ""}),
        task(tags={"k" * 65: ""}),
        "64",
    ),
    Limit(EnqueueBody, "tasks[0].tags.", task(tags={"k": ""}), task(tags={"": ""}), "empty"),
    Limit(
        EnqueueBody,
        "tasks[0].dedupe_key",
        task(dedupe_key="é" * 128),
        task(dedupe_key="é" * 128 + "x"),
        "256",
    ),
    Limit(EnqueueBody, "tasks[0].dedupe_key", task(dedupe_key="k"), task(dedupe_key=""), "empty"),
    Limit(DequeueBody, "batch_size", {"batch_size": 1}, {"batch_size": 0}, "1"),
    Limit(DequeueBody, "batch_size", {"batch_size": 25}, {"batch_size": 26}, "25"),
    Limit(DequeueBody, "wait_seconds", {"wait_seconds": 20}, {"wait_seconds": 20.5}, "20"),
    Limit(DequeueBody, "wait_seconds", {"wait_seconds": 0}, {"wait_seconds": -1}, "0"),
    Limit(DequeueBody, "worker", {"worker": "é" * 128}, {"worker": "é" * 128 + "x"}, "256"),
    Limit(ReportsBody, "reports", report(), {"reports": []}, "1"),
    Limit(
        ReportsBody,
        "reports",
        {"reports": report()["reports"] * 25},
        {"reports": report()["reports"] * 26},
        "25",
    ),
    Limit(
        ReportsBody,
        "reports[0].result",
        report(result=text(32_768)),
        report(result=text(32_769)),
        "32768",
    ),
    Limit(
        ReportsBody,
        "reports[0].progress",
        report("INFLIGHT", progress=text(4096)),
        report("INFLIGHT", progress=text(4097)),
        "4096",
    ),
    Limit(
        ReportsBody,
        "reports[0].payload",
        moved(payload=text(262_144)),
        moved(payload=text(262_145)),
        "262144",
    ),
    Limit(ReportsBody, "reports[0].tags", moved(tags=tags(10)), moved(tags=tags(11)), "10"),
    Limit(
        ReportsBody,
        "reports[0].delay_in_seconds",
        report("RELEASED", delay_in_seconds=31_536_000),
        report("RELEASED", delay_in_seconds=31_536_001),
        "31536000",
    ),
    Limit(
        ReportsBody,
        "reports[0].keepalive_timeout_in_seconds",
        report("INFLIGHT", keepalive_timeout_in_seconds=43_200),
        report("INFLIGHT", keepalive_timeout_in_seconds=43_200.1),
        "43200",
    ),
    Limit(
        ReportsBody,
        "reports[0].spawn",
        report(spawn=[{"queue": "a"}] * 24),
        report(spawn=[{"queue": "a"}] * 25),
        "24",
    ),
    Limit(
        ReportsBody,
        "reports[0].spawn[0].payload",
        report(spawn=[{"queue": "a", "payload": text(262_144)}]),
        report(spawn=[{"queue": "a", "payload": text(262_145)}]),
        "262144",
    ),
    Limit(
        ReportsBody,
        "reports[0].spawn",
        report(spawn=[{"queue": "a", "payload": text(262_144)}] * 8),
        report(
            spawn=[{"queue": "a", "payload": text(262_144)}] * 8 + [{"queue": "a", "payload": 1}]
        ),
        "2097152",
    ),
    Limit(BulkBody, "ids", {"ids": ["a"]}, {"ids": []}, "1"),
    Limit(BulkBody, "ids", {"ids": ["a"] * 250}, {"ids": ["a"] * 251}, "250"),
    Limit(BulkBody, "limit", {"filter": {}, "limit": 1}, {"filter": {}, "limit": 0}, "1"),
    Limit(
        BulkBody,
        "limit",
        {"filter": {}, "limit": 1_000_000},
        {"filter": {}, "limit": 1_000_001},
        "1000000",
    ),
    Limit(
        BulkBody,
        "filter.worker",
        {"filter": {"worker": "é" * 128}},
        {"filter": {"worker": "é" * 128 + "x"}},
        "256",
    ),
    Limit(
        BulkBody,
        "filter.error",
        {"filter": {"error": "x" * 4096}},
        {"filter": {"error": "x" * 4097}},
        "4096",
    ),
    Limit(
        BulkBody,
        "filter.tags",
        {"filter": {"tags": tags(10)}},
        {"filter": {"tags": tags(11)}},
        "10",
    ),
    Limit(
        BulkBody,
        "filter.min_attempts",
        {"filter": {"min_attempts": 0}},
        {"filter": {"min_attempts": -1}},
        "0",
    ),
    Limit(CreateQueueBody, "name", queue(name="a" * 128), queue(name="a" * 129), "{0,127}"),
    Limit(CreateQueueBody, "name", queue(name="0._-"), queue(name=".a"), "[A-Za-z0-9]"),
    Limit(
        CreateQueueBody,
        "description",
        queue(description="é" * 512),
        queue(description="é" * 512 + "x"),
        "1024",
    ),
    Limit(
        CreateQueueBody,
        "keepalive_timeout_in_seconds",
        queue(keepalive_timeout_in_seconds=43_200),
        queue(keepalive_timeout_in_seconds=43_201),
        "43200",
    ),
    Limit(
        CreateQueueBody,
        "expires_in_seconds",
        queue(expires_in_seconds=31_536_000),
        queue(expires_in_seconds=31_536_001),
        "31536000",
    ),
    Limit(
        CreateQueueBody,
        "expires_in_seconds",
        queue(expires_in_seconds=0),
        queue(expires_in_seconds=0.5),
        "0 (never) or at least 1",
    ),
    Limit(
        CreateQueueBody,
        "history_retention_in_seconds",
        queue(history_retention_in_seconds=0),
        queue(history_retention_in_seconds=-1),
        "0",
    ),
    Limit(
        CreateQueueBody,
        "history_retention_in_seconds",
        queue(history_retention_in_seconds=31_536_000),
        queue(history_retention_in_seconds=31_536_001),
        "31536000",
    ),
    Limit(CreateQueueBody, "shards", queue(shards=64), queue(shards=65), "64"),
    Limit(CreateQueueBody, "shards", queue(shards=1), queue(shards=0), "1"),
    Limit(
        CreateQueueBody,
        "dead_letter_queue_config.retention_period_in_seconds",
        dead(retention_period_in_seconds=31_536_000),
        dead(retention_period_in_seconds=31_536_001),
        "31536000",
    ),
    Limit(
        CreateQueueBody,
        "dead_letter_queue_config.max_size",
        dead(max_size=0),
        dead(max_size=-1),
        "0",
    ),
    Limit(
        CreateQueueBody,
        "dequeuing_settings.max_inflight_tasks",
        dequeuing(max_inflight_tasks=1_000_000_000),
        dequeuing(max_inflight_tasks=1_000_000_001),
        "1000000000",
    ),
    Limit(
        CreateQueueBody,
        "dequeuing_settings.rate_limiting.max_tokens",
        rate(max_tokens=1),
        rate(max_tokens=0),
        "1",
    ),
    Limit(
        CreateQueueBody,
        "dequeuing_settings.rate_limiting.interval",
        rate(interval=86_400),
        rate(interval=86_401),
        "86400",
    ),
    Limit(
        CreateQueueBody,
        "retry_strategy.max_retries",
        retry(max_retries=100),
        retry(max_retries=101),
        "100",
    ),
    Limit(
        CreateQueueBody,
        "retry_strategy.base_seconds",
        retry(base_seconds=86_400),
        retry(base_seconds=86_400.5),
        "86400",
    ),
    Limit(
        CreateQueueBody,
        "retry_strategy.max_delay_seconds",
        retry(max_delay_seconds=2_592_000),
        retry(max_delay_seconds=2_592_001),
        "2592000",
    ),
    Limit(CreateQueueBody, "retry_strategy.jitter", retry(jitter=1), retry(jitter=1.01), "1"),
    Limit(CreateQueueBody, "retry_strategy.intervals", intervals(1), intervals(), "1 to 100"),
    Limit(
        CreateQueueBody,
        "retry_strategy.intervals",
        intervals(*[1] * 100),
        intervals(*[1] * 101),
        "100",
    ),
    Limit(
        CreateQueueBody,
        "retry_strategy.intervals[1]",
        intervals(0, 2_592_000),
        intervals(0, 2_592_001),
        "2592000",
    ),
    Limit(
        PauseBody,
        "resume_in_seconds",
        {"resume_in_seconds": 31_536_000},
        {"resume_in_seconds": 31_536_001},
        "31536000",
    ),
    Limit(
        PauseBody, "resume_in_seconds", {"resume_in_seconds": 0.1}, {"resume_in_seconds": 0}, "0"
    ),
    Limit(PurgeBody, "states", {"states": ["DEAD"]}, {"states": []}, "1"),
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.field} {limit.named}"[:60])
def test_the_value_at_the_limit_passes_and_one_over_is_refused_by_name(limit: Limit) -> None:
    read(limit.model, limit.good)

    wrong = refused(limit.model, limit.bad)

    assert list(wrong) == [limit.field]
    assert limit.named in wrong[limit.field]


WRONG_TYPES = [
    (EnqueueBody, {"tasks": {}}, "tasks"),
    (EnqueueBody, {"tasks": None}, "tasks"),
    (EnqueueBody, {}, "tasks"),
    (EnqueueBody, {"tasks": [1]}, "tasks[0]"),
    (EnqueueBody, {"tasks": [[]]}, "tasks[0]"),
    (EnqueueBody, task(delay_in_seconds="5"), "tasks[0].delay_in_seconds"),
    (EnqueueBody, task(delay_in_seconds=True), "tasks[0].delay_in_seconds"),
    (EnqueueBody, task(delay_in_seconds=10**400), "tasks[0].delay_in_seconds"),
    (EnqueueBody, task(id=5), "tasks[0].id"),
    (EnqueueBody, task(id="a b"), "tasks[0].id"),
    (EnqueueBody, task(id="a\n"), "tasks[0].id"),
    (EnqueueBody, task(id="é"), "tasks[0].id"),
    (EnqueueBody, task(tags=[]), "tasks[0].tags"),
    (EnqueueBody, task(tags={"a": 1}), "tasks[0].tags.a"),
    (EnqueueBody, task(retry_strategy=5), "tasks[0].retry_strategy"),
    (EnqueueBody, task(retry_strategy={"kind": "cubic"}), "tasks[0].retry_strategy.kind"),
    (EnqueueBody, task(retry_strategy={"kind": 1}), "tasks[0].retry_strategy.kind"),
    (EnqueueBody, task(retry_strategy={"max_retries": 1.0}), "tasks[0].retry_strategy.max_retries"),
    (EnqueueBody, task(retries=1), "tasks[0].retries"),
    (EnqueueBody, {"tasks": [{}], "queue": "a"}, "queue"),
    (EnqueueBody, task(dedupe_key=5), "tasks[0].dedupe_key"),
    (EnqueueBody, task(dedupe_key="\ud800"), "tasks[0].dedupe_key"),
    (EnqueueBody, task(overwrite_on_duplicate=["tags"]), "tasks[0].overwrite_on_duplicate"),
    (
        EnqueueBody,
        task(dedupe_key="a", overwrite_on_duplicate=["id"]),
        "tasks[0].overwrite_on_duplicate[0]",
    ),
    (
        EnqueueBody,
        task(dedupe_key="a", overwrite_on_duplicate="tags"),
        "tasks[0].overwrite_on_duplicate",
    ),
    (DequeueBody, {"batch_size": "5"}, "batch_size"),
    (DequeueBody, {"batch_size": True}, "batch_size"),
    (DequeueBody, {"batch_size": 1.0}, "batch_size"),
    (DequeueBody, {"batch_size": None}, "batch_size"),
    (DequeueBody, {"worker": 5}, "worker"),
    (DequeueBody, {"lease_id": "a"}, "lease_id"),
    (ReportsBody, {"reports": [{}]}, "reports[0].task_id"),
    (ReportsBody, report("DONE"), "reports[0].status"),
    (ReportsBody, report("failed"), "reports[0].status"),
    (ReportsBody, report("FAILED", retryable="no"), "reports[0].retryable"),
    (ReportsBody, report("FAILED", retryable=0), "reports[0].retryable"),
    (ReportsBody, report("FAILED", error="boom"), "reports[0].error"),
    (ReportsBody, report("FAILED", error={"code": 1}), "reports[0].error.code"),
    (ReportsBody, report("FAILED", error={"message": 1}), "reports[0].error.message"),
    (ReportsBody, report("FAILED", spawn=[{"queue": "a"}]), "reports[0].spawn"),
    (ReportsBody, report(spawn=[{"payload": 1}]), "reports[0].spawn[0].queue"),
    (
        ReportsBody,
        report(spawn=[{"queue": "a", "overwrite_on_duplicate": ["tags"]}]),
        "reports[0].spawn[0].overwrite_on_duplicate",
    ),
    (BulkBody, {}, "ids"),
    (BulkBody, {}, "filter"),
    (BulkBody, {"ids": ["a"], "filter": {}}, "filter"),
    (BulkBody, {"ids": ["a"], "limit": 1}, "limit"),
    (BulkBody, {"ids": ["a"], "cursor": "a"}, "cursor"),
    (BulkBody, {"ids": ["a b"]}, "ids[0]"),
    (BulkBody, {"filter": {}, "to_queue": "a"}, "to_queue"),
    (BulkBody, {"filter": {}, "dry_run": 1}, "dry_run"),
    (BulkBody, {"filter": {"state": ["DEAD"]}}, "filter.state"),
    (BulkBody, {"filter": {"state": "DEAD, READY"}}, "filter.state"),
    (BulkBody, {"filter": {"min_attempts": "1"}}, "filter.min_attempts"),
    (BulkBody, {"filter": {"queue": "a"}}, "filter.queue"),
    (MoveBody, {"filter": {}}, "to_queue"),
    (MoveBody, {"filter": {}, "to_queue": "a b"}, "to_queue"),
    (ReportsBody, moved(to_queue="a b"), "reports[0].to_queue"),
    (CreateQueueBody, {}, "name"),
    (CreateQueueBody, queue(name=None), "name"),
    (CreateQueueBody, queue(version=1), "version"),
    (CreateQueueBody, queue(shards="1"), "shards"),
    (CreateQueueBody, queue(shards=None), "shards"),
    (CreateQueueBody, queue(retry_strategy=None), "retry_strategy"),
    (CreateQueueBody, dequeuing(dequeuing_paused="no"), "dequeuing_settings.dequeuing_paused"),
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
    (CreateQueueBody, dead(enable=1), "dead_letter_queue_config.enable"),
    (ReplaceQueueBody, {"version": "1"}, "version"),
    (ReplaceQueueBody, {"versions": 1}, "versions"),
    (PauseBody, {"resume_in_seconds": "5"}, "resume_in_seconds"),
    (PurgeBody, {"states": "DEAD"}, "states"),
    (PurgeBody, {"states": ["READY"]}, "states[0]"),
    (PurgeBody, {"states": [None]}, "states[0]"),
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


@pytest.mark.parametrize("name", ["payload", "result", "progress"])
def test_what_is_too_large_is_told_apart(name: str) -> None:
    status = {"payload": "MOVED", "result": "SUCCEEDED", "progress": "INFLIGHT"}[name]
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


# -------------------------------------------------------------------------------------- instants


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21t08:00:00z", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21 08:00:00+02:00", "2026-11-21T06:00:00+00:00"),
        ("2026-11-21T08:00:00.123456Z", "2026-11-21T08:00:00.123456+00:00"),
        ("2026-11-21T08:00:00.1Z", "2026-11-21T08:00:00.100000+00:00"),
        ("2026-11-21T08:00:00.123456789-05:30", "2026-11-21T13:30:00.123456+00:00"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00+00:00"),
        ("9998-12-31T23:59:59.999999Z", "9998-12-31T23:59:59.999999+00:00"),
    ],
)
def test_an_instant_may_have_any_offset_and_becomes_utc(written: str, meant: str) -> None:
    (entry,) = read(EnqueueBody, task(scheduled_at=written)).tasks

    assert entry.scheduled_at == datetime.fromisoformat(meant)
    assert entry.scheduled_at.tzinfo is UTC


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-21T08:00:00",
        "2026-11-21",
        "2026-11-21T08:00Z",
        "20261121T080000Z",
        "2026-W47-6T08:00:00Z",
        "2026-02-30T08:00:00Z",
        "2026-11-21T25:00:00Z",
        "2026-11-21T08:00:00+25:00",
        "2026-11-21T08:00:00.Z",
        "2026-11-21T08:00:00Z\n",
        "1969-12-31T23:59:59Z",
        "9999-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "٢٠٢٦-11-21T08:00:00Z",
        "tomorrow",
        "",
        1_795_248_000,
        True,
    ],
    ids=str,
)
def test_what_is_no_instant_of_the_clock_is_refused(written: Any) -> None:
    assert "tasks[0].scheduled_at" in refused(EnqueueBody, task(scheduled_at=written))


# -------------------------------------------------------------------------------- contradictions

CONTRADICTIONS = [
    (
        EnqueueBody,
        task(scheduled_at="2026-11-21T08:00:00Z", delay_in_seconds=0),
        {"tasks[0].scheduled_at", "tasks[0].delay_in_seconds"},
    ),
    (
        EnqueueBody,
        task(scheduled_at="2026-11-21T08:00:00Z", expires_at="2026-11-21T08:00:00Z"),
        {"tasks[0].expires_at"},
    ),
    (CreateQueueBody, intervals(1, 2, max_retries=3), {"retry_strategy.max_retries"}),
    (CreateQueueBody, retry(kind="fixed", intervals=[1]), {"retry_strategy.intervals"}),
    (ReportsBody, report("MOVED"), {"reports[0].to_queue"}),
    (ReportsBody, report("SUCCEEDED", to_queue="a"), {"reports[0].to_queue"}),
    (ReportsBody, report("FAILED", result=1), {"reports[0].result"}),
    (ReportsBody, report("SUCCEEDED", progress=1), {"reports[0].progress"}),
    (ReportsBody, report("SUCCEEDED", retryable=False), {"reports[0].retryable"}),
    (ReportsBody, report("RELEASED", error={"type": "a"}), {"reports[0].error"}),
    (
        ReportsBody,
        report("INFLIGHT", delay_in_seconds=1, tags={}),
        {"reports[0].delay_in_seconds", "reports[0].tags"},
    ),
    (ReportsBody, report("FAILED", payload={}), {"reports[0].payload"}),
    (
        ReportsBody,
        moved(keepalive_timeout_in_seconds=5),
        {"reports[0].keepalive_timeout_in_seconds"},
    ),
]


@pytest.mark.parametrize(("model", "body", "fields"), CONTRADICTIONS)
def test_contradictions_inside_an_entry_are_refused_by_name(
    model: type[BaseModel], body: Any, fields: set[str]
) -> None:
    assert set(refused(model, body)) == fields


def test_every_bad_field_of_a_batch_is_named() -> None:
    body = {
        "tasks": [
            {"payload": 1},
            {"delay_in_seconds": -1, "id": "a b", "x": 1},
            {"scheduled_at": "2026-11-21T08:00:00Z", "delay_in_seconds": 1},
        ]
    }

    assert set(refused(EnqueueBody, body)) == {
        "tasks[1].delay_in_seconds",
        "tasks[1].id",
        "tasks[1].x",
        "tasks[2].delay_in_seconds",
        "tasks[2].scheduled_at",
    }


# ------------------------------------------------------------------------------------ what it means


def test_an_entry_with_everything_left_out_or_null() -> None:
    nulls = dict.fromkeys(
        (
            "payload",
            "id",
            "scheduled_at",
            "delay_in_seconds",
            "expires_at",
            "dedupe_key",
            "overwrite_on_duplicate",
            "keepalive_timeout_in_seconds",
            "retry_strategy",
            "tags",
        )
    )
    body = {"tasks": [{}, nulls, {"overwrite_on_duplicate": []}]}

    tasks = [entry.new_task() for entry in read(EnqueueBody, body).tasks]

    assert tasks == [NewTask("null")] * 3


def test_an_entry_with_everything() -> None:
    body = (
        '{"tasks":[{"payload":{"n": 1.10},"id":"a-1","scheduled_at":"2026-11-21T08:00:00Z",'
        '"expires_at":"2026-11-21T09:00:00Z","keepalive_timeout_in_seconds":2.5,'
        '"retry_strategy":{"kind":"intervals","intervals":[1,2.5]},"tags":{"a":"b"}}]}'
    )

    (entry,) = EnqueueBody.model_validate(decode(body)).tasks

    assert entry.new_task() == NewTask(
        payload='{"n": 1.10}',
        id="a-1",
        scheduled_at=datetime(2026, 11, 21, 8, tzinfo=UTC),
        expires_at=datetime(2026, 11, 21, 9, tzinfo=UTC),
        keepalive=2.5,
        retry=RetryStrategy(Backoff.INTERVALS, max_retries=2, intervals=(1, 2.5)),
        tags={"a": "b"},
    )


def test_whole_numbers_stay_whole() -> None:
    settings = read(CreateQueueBody, queue(keepalive_timeout_in_seconds=60)).settings()

    assert json.dumps(settings.keepalive_timeout_in_seconds) == "60"


def test_a_report_with_nothing_but_defaults_means_the_same_with_any_status() -> None:
    defaults: dict[str, Any] = {
        "result": None,
        "progress": None,
        "error": {"type": "", "message": "", "detail": ""},
        "retryable": True,
        "delay_in_seconds": None,
        "payload": None,
        "tags": None,
        "keepalive_timeout_in_seconds": None,
        "spawn": [],
    }
    for status in ReportStatus:
        target = "next" if status is ReportStatus.MOVED else None

        (entry,) = read(ReportsBody, report(status, to_queue=target, **defaults)).reports

        assert entry.report() == Report("tsk_1", "lse_1.1.", status, to_queue=target)


def test_a_report_of_failure() -> None:
    (entry,) = read(
        ReportsBody,
        report(
            "FAILED",
            error={"type": "Timeout", "message": "slow", "detail": None},
            retryable=False,
            delay_in_seconds=1.5,
        ),
    ).reports

    assert entry.report() == Report(
        "tsk_1",
        "lse_1.1.",
        ReportStatus.FAILED,
        error=WorkerError("Timeout", "slow", ""),
        retryable=False,
        delay_in_seconds=1.5,
    )


def test_a_report_of_a_move_keeps_an_explicit_payload_and_empty_tags() -> None:
    (entry,) = read(ReportsBody, moved(payload={"a": 1}, tags={}, delay_in_seconds=0)).reports

    assert entry.report() == Report(
        "tsk_1",
        "lse_1.1.",
        ReportStatus.MOVED,
        to_queue="next",
        payload='{"a": 1}',
        tags={},
        delay_in_seconds=0,
    )


def test_the_longest_text_of_an_error_is_cut_to_its_limit() -> None:
    error = {"type": "Timeout", "message": "slow", "detail": "é" * 100_000}

    cut = read(ReportsBody, report("FAILED", error=error)).reports[0].report().error

    assert (cut.type, cut.message) == ("Timeout", "slow")
    assert cut.detail.endswith("… [cut]")
    assert 3000 < len(cut.detail.encode()) < limits.ERROR_BYTES


def test_a_queue_with_only_a_name_has_the_defaults() -> None:
    assert read(CreateQueueBody, queue()).settings() == QueueSettings()


def test_nested_settings_may_be_given_in_part() -> None:
    settings = read(CreateQueueBody, retry(kind="fixed", base_seconds=1)).settings()

    assert settings.retry_strategy == RetryStrategy(Backoff.FIXED, base_seconds=1)


def test_states_to_purge_count_once() -> None:
    assert read(PurgeBody, {"states": ["DEAD", "SUCCEEDED", "DEAD"]}).chosen() == (
        State.DEAD,
        State.SUCCEEDED,
    )


def test_bodies_do_not_show_payloads_when_printed() -> None:
    body = read(EnqueueBody, task(payload="secret"))

    assert "secret" not in f"{body} {body!r} {body.tasks}"
