"""How the demo holds its workers to account, and the trouble that it makes for them."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from examples.ngsi.accounting import Crash, Outcome, audit, rows_by_task
from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE
from examples.ngsi.ngsi import Row, split
from examples.ngsi.rows_file import RowsFile, Written
from examples.ngsi.traffic import notifications
from examples.ngsi.trouble import fails_once
from headrace.wire.tasks import Task

CREATED = datetime(2026, 11, 21, 8, tzinfo=UTC)


def rows_of(place: int) -> list[Row]:
    sent = notifications(place + 1)[place]
    return split(sent.body, sent.headers, CREATED)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RowsFile]:
    with closing(RowsFile(tmp_path / "rows.sqlite")) as opened:
        yield opened


def test_rows_are_read_from_the_file_as_they_were_written(file: RowsFile) -> None:
    assert file.write("tsk_a", rows_of(3)) == Written(new=3, known=0)
    assert file.write("tsk_b", rows_of(4)) == Written(new=1, known=0)
    assert file.write("tsk_c", []) == Written(new=0, known=0)

    assert rows_by_task(file.read()) == {"tsk_a": rows_of(3), "tsk_b": rows_of(4)}


def failed(message: str) -> dict[str, object]:
    return {**lapsed("w"), "kind": "failed", "type": "Reject", "message": message}


def lapsed(worker: str) -> dict[str, object]:
    known = {"attempt": 1, "at": CREATED, "type": "", "message": "", "detail": ""}
    return {**known, "kind": "lease_expired", "worker": worker}


def steady(name: str) -> str:
    """An id that begins so, of a task that nothing is done to on purpose."""
    return next(f"{name}_{n}" for n in range(1000) if not fails_once(f"{name}_{n}"))


def finished(place: int, **fields: object) -> Task:
    """The task of the demo's notification of that number, as it should end."""
    sent = notifications(place + 1)[place]
    ended: dict[str, object] = {
        "queue": ENTITIES_QUEUE,
        "state": "SUCCEEDED",
        "status": "SUCCEEDED",
        "dead_reason": None,
        "errors": [],
        "result": {"new": 1, "known": 0},
    }
    if sent.error is not None:
        ended = {
            "queue": NOTIFY_QUEUE,
            "state": "DEAD",
            "status": "DEAD",
            "dead_reason": "rejected",
            "errors": [failed(sent.error)],
        }
    plain = {
        "id": steady(f"tsk_{place}"),
        "tags": {"fiware-correlator": sent.correlator},
        "created_at": CREATED,
        "scheduled_at": CREATED,
        "attempts": 1,
        "max_retries": 8,
        "trail": [],
        "batches": [],
    }
    absent = {one.name: None for one in msgspec.structs.fields(Task) if one.required}
    return msgspec.json.decode(
        msgspec.json.encode({**absent, **plain, **ended, **fields}), type=Task
    )


class NgsiRun:
    """A run of eleven notifications in which all went well; the last of them is malformed."""

    def __init__(self) -> None:
        self.sent = notifications(11)
        self.tasks = [finished(place) for place in range(11)]
        self.change(0, errors=[lapsed("worker-1")], result={"new": 0, "known": 2})
        self.rows = {self.tasks[place].id: rows_of(place) for place in range(10)}
        self.crash = Crash("worker-1", frozenset({self.tasks[0].id}))

    def change(self, place: int, **fields: object) -> None:
        self.tasks[place] = finished(place, **fields)

    def audit(self) -> Outcome:
        return audit(self.sent, self.tasks, self.rows, self.crash)

    def problems(self) -> list[str]:
        return list(self.audit().problems)


def test_a_run_in_which_all_went_well_has_no_problems() -> None:
    run = NgsiRun()
    outcome = run.audit()

    assert outcome.problems == ()
    assert (outcome.reclaimed, outcome.retries, outcome.rows_known) == (1, 0, 2)
    assert outcome.rows_out == outcome.rows_expected == sum(map(len, run.rows.values()))


def test_a_lost_task_is_a_problem() -> None:
    run = NgsiRun()
    del run.rows[run.tasks.pop(3).id]

    assert run.problems() == ["demo-000003: 0 tasks instead of one"]


def test_a_notification_taken_twice_is_a_problem() -> None:
    run = NgsiRun()
    run.tasks.append(finished(3, id="tsk_twice"))

    assert run.problems() == ["demo-000003: 2 tasks instead of one"]


def test_a_missing_and_a_changed_row_are_problems() -> None:
    run = NgsiRun()
    run.rows[run.tasks[0].id] = rows_of(0)[:1]
    run.rows[run.tasks[1].id] = [replace(rows_of(1)[0], entity_id="other")]

    first, second = run.problems()
    assert "1 rows in the file, not the 2 expected" in first
    assert "a row is not as expected" in second
