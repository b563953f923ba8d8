"""A task is checked when it is written down, as an enqueue would."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from headrace import NewTask
from headrace.client.codec import PLAIN
from headrace.domain.errors import InvalidRequest
from headrace.outbox.rows import new_row

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)


def entry(**fields: Any) -> dict[str, Any]:
    row = new_row("mail", NewTask(**fields), PLAIN, now=NOW)
    found: dict[str, Any] = json.loads(row.entry)
    return found


def test_an_id_is_drawn_when_the_row_is_written() -> None:
    row = new_row("mail", NewTask(payload=1), PLAIN, now=NOW)

    assert row.task_id.startswith("tsk_")
    assert json.loads(row.entry) == {"payload": 1, "id": row.task_id}


def test_a_delay_counts_from_when_the_row_was_written() -> None:
    assert entry(delay_in_seconds=60)["scheduled_at"] == "2026-11-21T08:01:00.000000Z"
    assert "delay_in_seconds" not in entry(delay_in_seconds=60)
    assert "scheduled_at" not in entry(delay_in_seconds=0)


def test_a_task_belongs_to_the_trace_in_which_its_row_was_written() -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("tests")

    with tracer.start_as_current_span("checkout") as span:
        tags = entry(tags={"a": "b"})["tags"]

    assert tags["a"] == "b"
    assert f"{span.get_span_context().trace_id:032x}" in tags["traceparent"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"id": "a b"}, "task.id"),
    ({"scheduled_at": datetime(2026, 1, 1)}, "task.scheduled_at"),  # noqa: DTZ001 (that is wrong)
    ({"payload": "x" * 300_000}, "task.payload"),
]


@pytest.mark.parametrize(("fields", "field"), WRONG)
def test_a_task_that_cannot_be_written_has_no_row(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        entry(**fields)

    assert field in [one.field for one in refused.value.errors]
