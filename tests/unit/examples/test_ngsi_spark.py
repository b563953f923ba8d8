"""The demo's part on Spark, as far as it goes without Spark: what is sent, and what is expected."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples.ngsi.accounting import compared, expected
from examples.ngsi.app import ENTITIES_QUEUE
from examples.ngsi.spark_part import SparkLeftOut, Stations
from examples.ngsi.traffic import Notification
from headrace.wire.tasks import Task

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def task_of(notification: Notification, *, received_at: datetime = NOON) -> Task:
    """The task of a notification that has reached its end, with no more said than is asked."""
    absent: dict[str, Any] = {
        one.name: None for one in msgspec.structs.fields(Task) if one.required
    }
    ended = {"queue": ENTITIES_QUEUE, "state": "SUCCEEDED", "status": "SUCCEEDED", "errors": []}
    plain = {
        "id": f"tsk_well_{notification.correlator}_{received_at:%H%M}",
        "tags": dict(notification.headers),
        "created_at": received_at,
        "scheduled_at": received_at,
        "attempts": 1,
        "max_retries": 8,
        "trail": [],
        "batches": [],
    }
    return msgspec.json.decode(msgspec.json.encode({**absent, **plain, **ended}), type=Task)


def room(value: object, correlator: str) -> Notification:
    entity: Any = {
        "id": "Room1",
        "type": "Room",
        "t": {"type": "Number", "value": value, "unitCode": "CEL"},
        "TimeInstant": {"type": "DateTime", "value": "2026-11-21T08:00:00Z"},
    }
    return Notification({"data": [entity]}, {"fiware-correlator": correlator}, None)


READING = {
    "entity_type": "Room",
    "service": "",
    "service_path": "/",
    "entity_id": "Room1",
    "attribute": "t",
    "time": "2026-11-21T08:00:00.000000Z",
    "type": "Number",
    "unit": "CEL",
    "number": 21.0,
    "text": "21.0",
}
INSTANT = READING | {
    "attribute": "TimeInstant",
    "type": "DateTime",
    "unit": None,
    "number": None,
    "text": "2026-11-21T08:00:00.000000Z",
}


def problems(*readings: dict[str, Any]) -> list[str]:
    sent = [room(20, "first"), room(21, "second")]
    tasks = [task_of(sent[1], received_at=NOON + timedelta(minutes=1)), task_of(sent[0])]
    should_be = expected(sent, tasks)
    assert (should_be.entities, should_be.came) == (2, 4)
    return compared(should_be.readings, map(json.dumps, readings))


def test_a_reading_that_is_missing_changed_or_there_twice_is_a_problem() -> None:
    assert [one.rpartition(": ")[2] for one in problems(READING)] == ["is not in the table"]
    assert [one.rpartition(": ")[2] for one in problems(READING, READING, INSTANT)] == [
        "is there twice, or nobody sent it"
    ]
    for changed in ({"number": 20.0}, {"text": "20.0"}, {"unit": None}, {"type": "Integer"}):
        (reported,) = problems(READING | changed, INSTANT)
        assert "Room/" in reported


@pytest.mark.parametrize(
    ("python", "reported"),
    [
        (Path("/nowhere/python"), "there is no PySpark"),
        (Path(sys.executable), "PySpark is missing"),
    ],
)
def test_without_pyspark_the_part_is_left_out_and_says_so_in_one_line(
    tmp_path: Path, python: Path, reported: str
) -> None:
    with pytest.raises(SparkLeftOut, match=reported) as refused:
        waited_for(python, tmp_path)
    assert "\n" not in str(refused.value)


def waited_for(python: Path, folder: Path) -> None:
    stations = Stations(python, "http://127.0.0.1:1", folder, fatal="")
    with stations.ended_after():
        while stations.up is None:
            time.sleep(0.02)
