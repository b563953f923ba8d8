"""The NGSI pipeline, on the service in memory: notifications in, rows out."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import httpx2 as httpx
import pytest

from examples.ngsi import app as pipeline
from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE, app
from examples.ngsi.ngsi import Attribute, Row, split
from examples.ngsi.rows_file import RowsFile
from examples.ngsi.traffic import Notification, notifications
from headrace.domain.task import State
from headrace.wire.tasks import Task
from tests.faults import FaultyService

ROW = Row("Room1", "Room", "2026-11-21T08:00:00.000000Z", "x", "/", {"t": Attribute("Number", 20)})


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RowsFile]:
    path = tmp_path / "rows.sqlite"
    monkeypatch.setenv("NGSI_ROWS", str(path))
    pipeline.rows_file.cache_clear()
    with closing(RowsFile(path)) as opened:
        yield opened
    pipeline.rows_file().close()
    pipeline.rows_file.cache_clear()


@pytest.fixture
def service(rows: RowsFile) -> Iterator[FaultyService]:
    with FaultyService() as service:
        for queue in (NOTIFY_QUEUE, ENTITIES_QUEUE):
            service.client.create_queue(queue)
        yield service


def notify(
    service: FaultyService, body: bytes, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """Send a notification as a context broker does."""
    sent = {"Authorization": f"Bearer {service.key}", "Content-Type": "application/json"}
    with httpx.Client(base_url=service.url, transport=service.transport) as broker:
        return broker.post("/v2/notify", content=body, headers=sent | dict(headers or {}))


def dead(service: FaultyService) -> list[Task]:
    return list(service.client.list_tasks(NOTIFY_QUEUE, state=State.DEAD))


def expected(task: Task, notification: Notification) -> list[tuple[str, Row]]:
    should_be = split(notification.body, notification.headers, task.created_at)
    return [(task.id, row) for row in should_be]


def test_real_notifications_become_the_rows_that_the_rules_say(
    service: FaultyService, rows: RowsFile
) -> None:
    sent = {each.correlator: each for each in notifications(7)}
    for each in sent.values():
        assert notify(service, each.body_bytes(), each.headers).is_success

    service.run(app, until_settled=True)

    tasks = list(service.client.list_tasks(ENTITIES_QUEUE, state=State.SUCCEEDED))
    should_be = [
        row for task in tasks for row in expected(task, sent[task.tags["fiware-correlator"]])
    ]
    assert len(tasks) == len(sent)
    assert list(rows.read()) == sorted(should_be, key=lambda row: row[0])


def test_a_notification_that_cannot_be_read_is_dead_at_once_and_says_why(
    service: FaultyService, rows: RowsFile
) -> None:
    notify(service, b'{"data": [{"type": "Room"}]}')

    service.run(app, until_settled=True)

    (task,) = dead(service)
    (error,) = task.errors
    assert (task.dead_reason, task.attempts) == ("rejected", 1)
    assert error.message == "'id' is a required property - 'data.0'"


def test_rows_that_an_attempt_without_a_report_has_left_are_not_written_twice(
    service: FaultyService, rows: RowsFile
) -> None:
    made = service.client.enqueue(ENTITIES_QUEUE, [ROW])
    service.faults.duplicate_delivery()

    service.run(app, until_settled=True)

    task = service.client.get_task(str(made.id))
    assert (task.attempts, task.result) == (2, {"new": 0, "known": 1})
    assert list(rows.read()) == [(task.id, ROW)]
