"""Bodies of requests: their instants, their contradictions, and what they mean."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.domain import limits
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.http.queue_bodies import CreateQueueBody
from headrace.http.rawjson import decode
from headrace.http.report_bodies import ReportsBody
from headrace.http.task_bodies import EnqueueBody
from tests.unit.http.bodies import intervals, moved, read, refused, report, task

# -------------------------------------------------------------------------------------- instants


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-11-21t08:00:00z", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21 08:00:00+02:00", "2026-11-21T06:00:00+00:00"),
        ("2026-11-21T08:00:00.1Z", "2026-11-21T08:00:00.100000+00:00"),
        ("2026-11-21T08:00:00.123456789-05:30", "2026-11-21T13:30:00.123456+00:00"),
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
        "20261121T080000Z",
        "2026-02-30T08:00:00Z",
        "2026-11-21T08:00:00+25:00",
        "1969-12-31T23:59:59Z",
        "9999-01-01T00:00:00Z",
        "٢٠٢٦-11-21T08:00:00Z",
        1_795_248_000,
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
    (ReportsBody, report("MOVED"), {"reports[0].to_queue"}),
    (ReportsBody, report("FAILED", result=1), {"reports[0].result"}),
    (ReportsBody, report("RELEASED", error={"type": "a"}), {"reports[0].error"}),
    (
        ReportsBody,
        report("INFLIGHT", delay_in_seconds=1, tags={}),
        {"reports[0].delay_in_seconds", "reports[0].tags"},
    ),
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


# ------------------------------------------------------------------------------------ what it means


def test_an_entry_with_everything() -> None:
    body = (
        '{"tasks":[{"payload":{"n": 1.10},"id":"a-1","scheduled_at":"2026-11-21T08:00:00Z",'
        '"expires_at":"2026-11-21T09:00:00Z","keepalive_timeout_in_seconds":2.5,'
        '"retry_strategy":{"kind":"intervals","intervals":[1,2.5]},"tags":{"a":"b"}}]}'
    )

    (entry,) = EnqueueBody.model_validate(decode(body)).tasks

    assert entry.new_task() == TaskSpec(
        payload='{"n": 1.10}',
        id="a-1",
        scheduled_at=datetime(2026, 11, 21, 8, tzinfo=UTC),
        expires_at=datetime(2026, 11, 21, 9, tzinfo=UTC),
        keepalive=2.5,
        retry=RetryStrategy(Backoff.INTERVALS, max_retries=2, intervals=(1, 2.5)),
        tags={"a": "b"},
    )


def test_the_longest_text_of_an_error_is_cut_to_its_limit() -> None:
    error = {"type": "Timeout", "message": "slow", "detail": "é" * 100_000}

    cut = read(ReportsBody, report("FAILED", error=error)).reports[0].report().error

    assert (cut.type, cut.message) == ("Timeout", "slow")
    assert cut.detail.endswith("… [cut]")
    assert 3000 < len(cut.detail.encode()) < limits.ERROR_BYTES


def test_bodies_do_not_show_payloads_when_printed() -> None:
    body = read(EnqueueBody, task(payload="secret"))

    assert "secret" not in f"{body} {body!r} {body.tasks}"
