"""The demo's part on Spark, as far as it goes without Spark: what is sent, and what is expected."""

import json
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from examples.ngsi.accounting import compared, expected
from examples.ngsi.app import ENTITIES_QUEUE
from examples.ngsi.ngsi import split
from examples.ngsi.spark_part import SparkLeftOut, Stations
from examples.ngsi.summary import OfType, SparkSummary
from examples.ngsi.traffic import LATE_BY, Notification, series
from headrace.wire.tasks import Task

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NUMBER = 140


def times(notification: Notification) -> set[str]:
    return {row.time_index for row in split(notification.body, notification.headers, NOON)}


def test_every_notification_of_the_series_is_observed_at_a_time_of_its_own() -> None:
    sent = series(NUMBER, NOON).sent
    well = [one for one in sent if one.error is None]

    assert all(len(times(one)) == 1 for one in well)
    seen = Counter(next(iter(times(one))) for one in well)
    assert Counter(seen.values()) == {1: 119, 2: 7}
    assert len({one.correlator for one in sent}) == NUMBER


def test_some_come_malformed_late_twice_and_out_of_order() -> None:
    plan = series(NUMBER, NOON)
    observed = [max(times(one)) for one in plan.sent if one.error is None]

    assert sum(one.error is not None for one in plan.sent) == 7
    assert (plan.late, plan.repeated) == (7, 7)
    two_days_ago = (NOON - LATE_BY).isoformat()
    assert sum(at < two_days_ago for at in observed) == 7
    assert observed != sorted(observed)


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


def test_of_two_readings_of_one_time_the_one_received_last_is_expected() -> None:
    assert problems(READING, INSTANT) == []


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


def test_the_table_of_numbers_names_reasons_and_rows_by_type() -> None:
    summary = SparkSummary(
        notifications=1400,
        malformed=70,
        late=70,
        repeated=70,
        entities=1900,
        rejected={"'id' is a required property - 'data.0'": 12, "x" * 60: 58},
        retries=130,
        worker_killed=True,
        readings_came=9000,
        readings=8500,
        readings_in_files=8600,
        by_type={"Room": OfType(5000, 3), "Streetlight": OfType(3500, 1)},
        spark="4.3.0",
        java="17",
        start_seconds=6.5,
        seconds=10,
        tasks_per_second=140,
        problems=(),
    )
    console = Console(width=100)
    with console.capture() as shown:
        console.print(summary.table())

    text = shown.get()
    for words in (
        "'id' is a required property - 'data.0'",
        "Room",
        "5,000",
        "Room, 3 days",
        "8,500",
    ):
        assert words in text
    assert "x" * 46 not in text
    assert replace(summary, problems=("p",)).as_json()["problems"] == ("p",)
