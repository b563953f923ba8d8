"""The NGSI pipeline on Spark: what comes late, twice, in any order or malformed, and its table."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, Row, SparkSession

from examples import ngsi
from examples.ngsi.accounting import compared, expected
from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE
from examples.ngsi.spark.play import lines_of
from examples.ngsi.spark.readings import (
    COLUMNS,
    KEY,
    MOST_TYPE_BYTES,
    NAMES,
    checked,
    once,
    readings,
    verdicts,
)
from examples.ngsi.spark.stations import loading_into, splitting
from examples.ngsi.spark.table import Loading, read
from examples.ngsi.traffic import series
from headrace.domain.plan import TaskSpec
from headrace.spark.sources.leasing import SCHEMA
from headrace.wire.tasks import Task
from tests.pipeline.harness import PipelineHarness

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ROOM = {"type": "Number", "value": 20.5, "unit": "CEL"}


def row(at: datetime = NOON, kind: str = "Room", **attributes: Any) -> dict[str, Any]:
    return {
        "entity_id": "Room1",
        "entity_type": kind,
        "time_index": at.isoformat(),
        "service": "smartcity",
        "service_path": "/",
        "attributes": attributes or {"temperature": ROOM},
    }


def tasks(spark: SparkSession, *payloads: Any, start: datetime = NOON) -> DataFrame:
    """Tasks with these payloads, or JSON texts, taken a second after one another."""
    rows: list[tuple[Any, ...]] = [
        (
            f"tsk_{n}",
            f"lease_{n}",
            ENTITIES_QUEUE,
            payload if isinstance(payload, str) else json.dumps(payload),
            {},
            1,
            start + timedelta(seconds=n),
            start,
            *[None] * 5,
        )
        for n, payload in enumerate(payloads)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def made(frame: DataFrame) -> list[Row]:
    return sorted(readings(checked(frame)).collect())


def test_what_comes_late_belongs_to_the_day_on_which_it_was_observed(spark: SparkSession) -> None:
    midnight = NOON.replace(hour=0)
    just_before = midnight - timedelta(microseconds=1)
    ancient = datetime(1, 6, 19, tzinfo=UTC)

    found = made(tasks(spark, [row(NOON), row(just_before), row(midnight), row(ancient)]))

    assert {(str(one["day"]), one["received_at"].date() == NOON.date()) for one in found} == {
        ("2026-11-21", True),
        ("2026-11-20", True),
        ("0001-06-19", True),
    }
    assert sorted(str(one["day"]) for one in found).count("2026-11-21") == 2


def test_what_came_twice_is_one_reading_and_the_one_received_last_counts(
    spark: SparkSession,
) -> None:
    first, other = ({"type": "Number", "value": n} for n in (1, 2))
    earlier = row(temperature=first, pressure=first)
    later = row(temperature=other)

    for frame in (tasks(spark, [earlier], [later]), tasks(spark, [earlier], [earlier], [later])):
        found = once(readings(checked(frame))).collect()

        assert {one["attribute"]: one["number"] for one in found} == {
            "temperature": 2,
            "pressure": 1,
        }


def test_what_cannot_be_loaded_names_the_field_and_the_limit(spark: SparkSession) -> None:
    too_long = f"payload[0].entity_type must be 1 to {MOST_TYPE_BYTES} bytes"
    reported: list[tuple[Any, str | None]] = [
        ('"rows"', "payload must be a list of rows"),
        ("[1, 2]", "payload must be a list of rows"),
        ({"entity_id": "a"}, "payload[0].entity_type must be given"),
        ([row(), {**row(), "entity_id": None}], "payload[1].entity_id must be given"),
        ([{**row(), "attributes": None}], "payload[0].attributes must be given"),
        (
            [row(), {**row(), "time_index": "soon"}],
            "payload[1].time_index must be an instant, such as 2026-11-21T08:00:00Z",
        ),
        ([row(kind="")], too_long),
        ([row(kind="é" * 41)], too_long),
        ([row(kind="é" * 40)], None),
        ([], None),
    ]

    found = verdicts(checked(tasks(spark, *(payload for payload, _ in reported)))).collect()

    assert [one["error"] for one in found] == [error for _, error in reported]
    assert [one["action"] == "fail" for one in found] == [
        error is not None for _, error in reported
    ]


def test_tasks_that_come_again_in_another_batch_are_read_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    load = Loading(str(tmp_path))
    batch = tasks(spark, [row()], [row(NOON - DAY)], [row(NOON - 2 * DAY)])

    load(batch.where("id <> 'tsk_2'"))  # written, and its station died before settling
    load(batch)
    load(tasks(spark, [row(temperature=ROOM | {"value": 30})], start=NOON + DAY))  # a correction

    assert spark.read.parquet(str(tmp_path)).count() == 6
    found = read(spark, str(tmp_path))
    assert found.select(*KEY).distinct().count() == found.count() == 3
    (today,) = found.where("day = '2026-11-21'").collect()
    assert (today["number"], today["received_at"].date()) == (30, (NOON + DAY).date())


def test_two_stations_take_notifications_to_the_table(
    spark: SparkSession, harness: PipelineHarness, tmp_path: Path
) -> None:
    """What should come out is worked out without Spark, by the demo's own accounting."""
    sent = series(60, NOON).sent
    for queue in (NOTIFY_QUEUE, ENTITIES_QUEUE):
        harness.queue(queue, shards=1)
    new = [TaskSpec(json.dumps(one.body), tags=one.headers) for one in sent]
    harness.uses.tasks.enqueue(NOTIFY_QUEUE, new)
    folder = str(tmp_path / "readings")

    splitting.run(spark, drain=True, connection=harness.connection)
    loading_into(folder).run(spark, drain=True, connection=harness.connection)

    assert harness.states(NOTIFY_QUEUE) == {"DEAD": 3}
    assert harness.states(ENTITIES_QUEUE) == {"SUCCEEDED": 57}
    assert {task.errors[-1].message for task in harness.tasks(NOTIFY_QUEUE)} == {
        one.error for one in sent if one.error
    }
    tasks = [*harness.tasks(NOTIFY_QUEUE), *harness.tasks(ENTITIES_QUEUE)]
    should_be = expected(sent, cast("list[Task]", tasks))
    assert compared(should_be.readings, lines_of(spark, folder)) == []
    assert should_be.came > len(should_be.readings) > 200


def test_the_readme_shows_the_columns_of_the_table() -> None:
    text = (Path(ngsi.__file__).parent / "README.md").read_text(encoding="utf-8")
    declared = re.findall(r"^ +(\w+) (\w+) COMMENT '(.*)',?$", COLUMNS, re.MULTILINE)

    assert len(declared) == len(NAMES)
    for name, kind, holds in declared:
        assert f"| `{name}` | {kind} | {holds} |\n" in text
