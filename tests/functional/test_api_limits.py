"""Each limit of a request: the value at the limit is taken, one above it is refused by name."""

from typing import Any

import pytest

from tests.functional.conftest import Answer, Service


def text(size: int) -> str:
    """Return a text whose JSON has *size* bytes, with its quotes."""
    return "é" + "x" * (size - 4)


def tags(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


OF_A_TASK = [
    ("payload", text(262_144), text(262_145), "262144"),
    ("id", "a" * 64, "a" * 65, "1 to 64"),
    ("delay_in_seconds", 31_536_000, 31_536_000.5, "31536000"),
    ("tags", tags(10), tags(11), "10"),
    ("tags.k", {"k": "é" * 128}, {"k": "é" * 128 + "x"}, "256"),
    (f"tags.{'k' * 65}", {"k" * 64: ""}, {"k" * 65: ""}, "64"),
    ("dedupe_key", "é" * 128, "é" * 128 + "x", "256"),
]
OF_A_CALL = [
    ("dequeue", "wait_seconds", 0, 20.5, "20"),
    ("dequeue", "worker", "é" * 128, "é" * 128 + "x", "256"),
    ("pause", "resume_in_seconds", 31_536_000, 31_536_001, "31536000"),
    ("tasks/delete", "ids", ["a"] * 250, ["a"] * 251, "250"),
]
SPAWNED = {"queue": "mail", "payload": text(262_144)}


def is_refused(answer: Answer, field: str, named: str) -> bool:
    errors = {error["field"]: error["message"] for error in answer.json["errors"]}
    return answer.status in (400, 413) and named in errors[field]


@pytest.mark.parametrize(
    ("field", "good", "bad", "named"), OF_A_TASK, ids=[row[0] for row in OF_A_TASK]
)
def test_a_task_is_taken_at_its_limits(
    call: Service, field: str, good: Any, bad: Any, named: str
) -> None:
    path, name = f"{call.queue()}/tasks", field.partition(".")[0]

    assert call("POST", path, {"tasks": [{name: good}]}).status == 200
    assert is_refused(call("POST", path, {"tasks": [{name: bad}]}), f"tasks[0].{field}", named)


@pytest.mark.parametrize(
    ("action", "field", "good", "bad", "named"), OF_A_CALL, ids=[row[1] for row in OF_A_CALL]
)
def test_a_call_is_taken_at_its_limits(
    call: Service, action: str, field: str, good: Any, bad: Any, named: str
) -> None:
    path = f"{call.queue()}/{action}"

    assert call("POST", path, {field: good}).status == 200
    assert is_refused(call("POST", path, {field: bad}), field, named)


@pytest.mark.parametrize(
    ("field", "good", "bad", "named"),
    [
        ("payload", text(262_144), text(262_145), "262144"),
        ("spawn", [SPAWNED] * 8, [*[SPAWNED] * 8, {"queue": "mail", "payload": 1}], "2097152"),
    ],
    ids=["payload", "spawn"],
)
def test_a_report_is_taken_at_its_limits(
    call: Service, field: str, good: Any, bad: Any, named: str
) -> None:
    path = f"{call.queue()}/reports"
    held = {"task_id": "tsk_1", "lease_id": "lse_1.1."}
    to = {"status": "MOVED", "to_queue": "mail"} if field == "payload" else {"status": "SUCCEEDED"}

    assert call("POST", path, {"reports": [{**held, **to, field: good}]}).status == 200
    refused = call("POST", path, {"reports": [{**held, **to, field: bad}]})
    assert is_refused(refused, f"reports[0].{field}", named)
    assert call("POST", path, {"reports": [{**held, **to}] * 26}).fields == {"reports"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2031-11-21t08:00:00z", "2031-11-21T08:00:00.000000Z"),
        ("2031-11-21 08:00:00+02:00", "2031-11-21T06:00:00.000000Z"),
        ("2031-11-21T08:00:00.123456789-05:30", "2031-11-21T13:30:00.123456Z"),
        ("9998-12-31T23:59:59.999999Z", "9998-12-31T23:59:59.999999Z"),
        *((written, None) for written in ("2026-11-21", "20261121T080000Z", 1_795_248_000)),
        *((written, None) for written in ("2026-02-30T08:00:00Z", "2026-11-21T08:00:00+25:00")),
        *((written, None) for written in ("1969-12-31T23:59:59Z", "٢٠٢٦-11-21T08:00:00Z")),
    ],
)
def test_an_instant_has_an_offset_and_becomes_utc(
    call: Service, written: Any, meant: str | None
) -> None:
    answer = call("POST", f"{call.queue()}/tasks", {"tasks": [{"scheduled_at": written}]})

    if meant is None:
        assert answer.fields == {"tasks[0].scheduled_at"}
    else:
        (made,) = answer.json["results"]
        assert call("GET", f"/v1/tasks/{made['id']}").json["scheduled_at"] == meant


def test_the_longest_text_of_an_error_is_cut(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)
    error = {"type": "Timeout", "message": "slow", "detail": "é" * 100_000}
    failed = {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "FAILED"}

    call("POST", f"{path}/reports", {"reports": [{**failed, "error": error}]})

    (kept,) = call("GET", f"/v1/tasks/{task['id']}").json["errors"]
    assert (kept["type"], kept["message"]) == ("Timeout", "slow")
    assert kept["detail"].endswith("… [cut]")
    assert 3_000 < len(kept["detail"].encode()) < 4_096
