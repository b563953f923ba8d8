"""Every limit of the contract: the value at it passes, one over is refused by name."""

import pytest

from headrace.http.bulk import BulkBody
from headrace.http.queue_bodies import CreateQueueBody, PauseBody
from headrace.http.report_bodies import ReportsBody
from headrace.http.task_bodies import DequeueBody, EnqueueBody
from tests.unit.http.bodies import (
    Limit,
    dead,
    intervals,
    moved,
    queue,
    rate,
    read,
    refused,
    report,
    retry,
    tags,
    task,
    text,
)

LIMITS = [
    Limit(
        EnqueueBody,
        "tasks[0].payload",
        task(payload=text(262_144)),
        task(payload=text(262_145)),
        "262144",
    ),
    Limit(EnqueueBody, "tasks[0].id", task(id="a" * 64), task(id="a" * 65), "1 to 64"),
    Limit(
        EnqueueBody,
        "tasks[0].delay_in_seconds",
        task(delay_in_seconds=31_536_000),
        task(delay_in_seconds=31_536_000.5),
        "31536000",
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
    Limit(
        EnqueueBody,
        "tasks[0].dedupe_key",
        task(dedupe_key="é" * 128),
        task(dedupe_key="é" * 128 + "x"),
        "256",
    ),
    Limit(DequeueBody, "wait_seconds", {"wait_seconds": 20}, {"wait_seconds": 20.5}, "20"),
    Limit(DequeueBody, "worker", {"worker": "é" * 128}, {"worker": "é" * 128 + "x"}, "256"),
    Limit(
        ReportsBody,
        "reports",
        {"reports": report()["reports"] * 25},
        {"reports": report()["reports"] * 26},
        "25",
    ),
    Limit(
        ReportsBody,
        "reports[0].payload",
        moved(payload=text(262_144)),
        moved(payload=text(262_145)),
        "262144",
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
    Limit(BulkBody, "ids", {"ids": ["a"] * 250}, {"ids": ["a"] * 251}, "250"),
    Limit(
        BulkBody,
        "limit",
        {"filter": {}, "limit": 1_000_000},
        {"filter": {}, "limit": 1_000_001},
        "1000000",
    ),
    Limit(CreateQueueBody, "name", queue(name="a" * 128), queue(name="a" * 129), "1 to 128"),
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
        "history_retention_in_seconds",
        queue(history_retention_in_seconds=31_536_000),
        queue(history_retention_in_seconds=31_536_001),
        "31536000",
    ),
    Limit(
        CreateQueueBody,
        "dead_letter_queue_config.retention_period_in_seconds",
        dead(retention_period_in_seconds=31_536_000),
        dead(retention_period_in_seconds=31_536_001),
        "31536000",
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
    Limit(
        CreateQueueBody,
        "retry_strategy.intervals",
        intervals(*[1] * 100),
        intervals(*[1] * 101),
        "100",
    ),
    Limit(
        PauseBody,
        "resume_in_seconds",
        {"resume_in_seconds": 31_536_000},
        {"resume_in_seconds": 31_536_001},
        "31536000",
    ),
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.field} {limit.named}"[:60])
def test_the_value_at_the_limit_passes_and_one_over_is_refused_by_name(limit: Limit) -> None:
    read(limit.model, limit.good)

    wrong = refused(limit.model, limit.bad)

    assert list(wrong) == [limit.field]
    assert limit.named in wrong[limit.field]
