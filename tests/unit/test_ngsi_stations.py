"""What the demo's workers report, what they write, and how the demo holds them to account."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.ngsi.accounting import Crash, audit, rows_by_task
from examples.ngsi.ngsi import Row, rows_payload, split
from examples.ngsi.rows_file import RowsFile, Written
from examples.ngsi.stations import (
    ENTITIES_QUEUE,
    NOTIFY_QUEUE,
    ON_PURPOSE,
    Loader,
    Splitter,
    Task,
    fails_once,
    split_report,
)
from examples.ngsi.traffic import notifications
from examples.ngsi.values import instant_of

CREATED = "2026-11-21T08:00:00.000000Z"
STEADY = next(f"tsk_{n}" for n in range(1000) if not fails_once(f"tsk_{n}"))
SHAKY = next(f"tsk_{n}" for n in range(1000) if fails_once(f"tsk_{n}"))
ROOM = {"id": "Room1", "type": "Room", "temperature": {"type": "Number", "value": 20}}


def task(payload: object, task_id: str = STEADY, **fields: object) -> Task:
    return {
        "id": task_id,
        "payload": payload,
        "tags": {},
        "attempts": 1,
        "created_at": CREATED,
        "lease": {"id": "lease-1"},
        **fields,
    }


def rows_of(place: int) -> list[Row]:
    sent = notifications(place + 1)[place]
    received_at = instant_of(CREATED)
    assert received_at is not None
    return split(sent.body, sent.headers, received_at)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RowsFile]:
    opened = RowsFile(tmp_path / "rows.sqlite")
    yield opened
    opened.close()


def test_a_readable_notification_moves_on_with_its_rows() -> None:
    report = split_report(task({"data": [ROOM]}, tags={"fiware-service": "x"}))

    assert (report["status"], report["to_queue"]) == ("MOVED", ENTITIES_QUEUE)
    assert (report["task_id"], report["lease_id"]) == (STEADY, "lease-1")
    (row,) = report["payload"]["rows"]
    assert (row["service"], row["time_index"]) == ("x", CREATED)


def test_an_unreadable_notification_fails_for_good_with_the_reason() -> None:
    report = split_report(task({"data": [{"type": "Room"}]}))

    assert (report["status"], report["retryable"]) == ("FAILED", False)
    assert report["error"]["message"] == "'id' is a required property - 'data.0'"


def test_rows_too_large_for_a_payload_fail_for_good() -> None:
    # Small as it came, ten times as large with the header that goes into every row.
    entities = [{**ROOM, "id": f"Room{n}"} for n in range(3000)]

    report = split_report(task({"data": entities}))

    assert (report["status"], report["retryable"]) == ("FAILED", False)
    assert "bytes" in report["error"]["message"]


def test_one_task_in_ten_fails_on_its_first_attempt_only() -> None:
    first = split_report(task({"data": [ROOM]}, SHAKY))
    second = split_report(task({"data": [ROOM]}, SHAKY, attempts=2))

    assert (first["status"], first["error"]["type"]) == ("FAILED", ON_PURPOSE)
    assert first.get("retryable", True)
    assert second["status"] == "MOVED"
    assert 60 < sum(fails_once(f"tsk_{n}") for n in range(1000)) < 140


def test_the_splitter_counts_its_reports() -> None:
    reports, totals = Splitter().work([task({"data": [ROOM]}), task({})])

    assert [report["status"] for report in reports] == ["MOVED", "FAILED"]
    assert totals == {"MOVED": 1, "FAILED": 1}


def test_the_loader_writes_rows_and_a_task_that_comes_again_writes_none(tmp_path: Path) -> None:
    loader = Loader(tmp_path / "rows.sqlite")
    again = [task(rows_payload(rows_of(0)), "tsk_a"), task({"no": "rows"}, "tsk_b")]

    _, first = loader.work(again)
    reports, second = loader.work(again)
    loader.close()

    assert [report["status"] for report in reports] == ["SUCCEEDED", "FAILED"]
    assert reports[0]["result"] == {"rows": 2}
    assert reports[1]["retryable"] is False
    assert (first["rows_new"], first["rows_known"]) == (2, 0)
    assert (second["rows_new"], second["rows_known"]) == (0, 2)


def test_rows_are_read_from_the_file_as_they_were_written(file: RowsFile) -> None:
    rows = {"tsk_a": rows_of(3), "tsk_b": rows_of(4), "tsk_c": []}

    assert file.write(rows) == Written(new=4, known=0)
    assert rows_by_task(file.read()) == {"tsk_a": rows_of(3), "tsk_b": rows_of(4)}


def finished(place: int, **fields: object) -> Task:
    """The task of the demo's notification of that number, as it should end."""
    sent = notifications(place + 1)[place]
    ended: dict[str, object] = {
        "queue": ENTITIES_QUEUE,
        "state": "SUCCEEDED",
        "dead_reason": None,
        "errors": [],
    }
    if sent.error is not None:
        error = {"kind": "failed", "attempt": 1, "type": "Unreadable", "message": sent.error}
        ended = {
            "queue": NOTIFY_QUEUE,
            "state": "DEAD",
            "dead_reason": "rejected",
            "errors": [{**error, "worker": "w"}],
        }
    steady = (f"tsk_{place}_{n}" for n in range(1000) if not fails_once(f"tsk_{place}_{n}"))
    tags = {"fiware-correlator": sent.correlator}
    return {"id": next(steady), "created_at": CREATED, "tags": tags, **ended, **fields}


def lapsed(worker: str) -> dict[str, object]:
    return {"kind": "lease_expired", "attempt": 1, "type": "", "message": "", "worker": worker}


class Run:
    """A run of eleven notifications in which all went well; the last of them is malformed."""

    def __init__(self) -> None:
        self.sent = notifications(11)
        self.tasks = [finished(place) for place in range(11)]
        self.tasks[0]["errors"] = [lapsed("worker-1")]
        self.rows = {self.tasks[place]["id"]: rows_of(place) for place in range(10)}
        self.crash = Crash("worker-1", frozenset({self.tasks[0]["id"]}))

    def problems(self) -> list[str]:
        return list(audit(self.sent, self.tasks, self.rows, self.crash).problems)


def test_a_run_in_which_all_went_well_has_no_problems() -> None:
    run = Run()
    outcome = audit(run.sent, run.tasks, run.rows, run.crash)

    assert outcome.problems == ()
    assert (outcome.reclaimed, outcome.retries) == (1, 0)
    assert outcome.rows_out == outcome.rows_expected == sum(map(len, run.rows.values()))


def test_a_retry_is_a_failure_with_another_attempt_after_it() -> None:
    run = Run()
    failed = {"kind": "failed", "attempt": 1, "type": ON_PURPOSE, "message": "", "worker": "w"}
    run.tasks[1]["errors"] = [failed]
    run.tasks[10]["errors"].insert(0, failed)

    assert audit(run.sent, run.tasks, run.rows, run.crash).retries == 2


def test_a_lost_task_is_a_problem() -> None:
    run = Run()
    del run.rows[run.tasks.pop(3)["id"]]

    assert run.problems() == ["demo-000003: 0 tasks instead of one"]


def test_a_notification_taken_twice_is_a_problem() -> None:
    run = Run()
    run.tasks.append({**run.tasks[3], "id": "tsk_twice"})

    assert run.problems() == ["demo-000003: 2 tasks instead of one"]


def test_an_unfinished_task_is_a_problem() -> None:
    run = Run()
    run.tasks[3]["state"] = "ENQUEUED"

    (problem,) = run.problems()
    assert "ENQUEUED in ngsi.entities instead of SUCCEEDED" in problem


def test_a_malformed_notification_that_ends_with_another_error_is_a_problem() -> None:
    run = Run()
    run.tasks[10]["errors"][0]["message"] = "something else"

    (problem,) = run.problems()
    assert "ended with 'something else' instead of \"'id' is a required" in problem


def test_a_missing_and_a_changed_row_are_problems() -> None:
    run = Run()
    run.rows[run.tasks[0]["id"]] = rows_of(0)[:1]
    run.rows[run.tasks[1]["id"]] = [replace(rows_of(1)[0], entity_id="other")]

    first, second = run.problems()
    assert "1 rows in the file, not the 2 expected" in first
    assert "a row is not as expected" in second


def test_rows_and_tasks_that_nobody_sent_are_problems() -> None:
    run = Run()
    run.tasks.append({**finished(3), "tags": {}, "id": "tsk_foreign"})
    run.rows["tsk_gone"] = rows_of(1)

    assert run.problems() == ["task tsk_foreign: nobody sent it", "task tsk_gone: rows of no task"]


def test_a_task_held_by_the_killed_worker_must_have_been_reclaimed() -> None:
    run = Run()
    run.tasks[0]["errors"] = []

    (problem,) = run.problems()
    assert problem.endswith("held by worker-1 when it was killed, never reclaimed")


def test_a_run_without_a_kill_is_a_problem() -> None:
    run = Run()
    run.crash = Crash("", frozenset())

    assert run.problems() == ["no worker was killed with leases in hand"]
